"""Training generative judges by agreement with preferences, and policies by a judge's comparisons."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.judges import templates
from burnish.method import Draw, Method, Option, Part, chain, frozen, method, roles
from burnish.methods import opt, papers, register
from burnish.score.judges import read_judge
from burnish.score.judges.of_model import ModelJudge
from burnish.score.judges.pairs import leads, leads_by_score
from burnish.score.judges.self_scores import note_agreement, self_scores
from burnish.tasks.judged import GradedPairs, ScoredReplies, VerdictDemos
from burnish.tasks.refereed import KIND, OPEN, REFEREE, VERIFIED, Refereed

Words = Annotated[str, Option("How much a question says; brief is for small models.", choices=("full", "brief"))]
_SCORES = {"full": templates.PRINCIPLES, "brief": templates.PRINCIPLES_BRIEF}
_GRADED = {"full": templates.GRADED_PAIR, "brief": templates.GRADED_PAIR_BRIEF}
_LETTER = {"full": templates.PAIRWISE, "brief": templates.PAIRWISE_BRIEF}
_SMALL = {"task": "sort:1", "words": "brief"}


def _grpo(
    drawn: Draw, source: draw.Source, n: int, temperature: float, eps: float, beta: float, *scored: Part
) -> Method:
    """GRPO on the tasks of a source."""
    return method(
        draw=drawn,
        rollout=rollout.sample(n, temperature=temperature),
        score=chain(score.verify(source), *scored),
        credit=chain(credit.group_relative(), credit.behaviour(), credit.ref()),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.seq_mean), learn.kl_k3(coef=beta, norm=learn.seq_mean)),
        models=roles(ref=frozen("policy")),
    )


@register(
    papers.SPCT,
    family="reward",
    summary="A judge that writes principles, a critique and scores learns by GRPO to put the best reply first.",
    when="You have preferences (pairs or lists) and want a generative reward model.",
    trial={"n": 4, **_SMALL},
)
def spct(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.08,
    temperature: opt.Temperature = 1.0,
    words: Words = "full",
) -> Method:
    """Self-principled critique tuning, its rule-based online RL.

    R = +1 if the score of the truly best reply is strictly above all others, else -1;  GRPO with KL coefficient beta

    The judge reads all replies of a row in a shuffled order and ends with a score from 1 to 10 for each. A tie, and an
    answer without all scores, is -1; there is no format reward, so a much smaller beta lets the format collapse. beta
    = 0.08 is the paper's for 27B weights (0.002 for 16B). spct_rft is the paper's first stage; the reward `principles`
    uses the judge, with votes and a meta reward model.
    """
    source = ScoredReplies(task, _SCORES[words])
    return _grpo(draw.questions(source), source, n, temperature, eps, beta)


@register(
    papers.SPCT,
    family="reward",
    summary="Rejective fine-tuning of a judge: imitate its own right verdicts on rows that are not too easy.",
    when="Before spct, so that the judge knows the format.",
    trial={"n": 4, **_SMALL},
)
def spct_rft(
    task: draw.Source, *, n: opt.GroupSize = 3, temperature: opt.Temperature = 1.0, words: Words = "full"
) -> Method:
    """The first stage of SPCT: samples of the judge whose verdict is right, of rows on which not all are right.

    L = -(1 / N) sum over the N tokens of the kept answers of log pi

    Rows on which all n answers are right are dropped as too easy, and rows on which none is as useless. The paper's
    hinted sampling, which shows the label for some rows, is left out.
    """
    source = ScoredReplies(task, _SCORES[words])
    return method(
        draw=draw.questions(source),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(source),
        select=select.right_where_hard(0.0),
        learn=learn.Learn(learn.imitate(), logp_temperature=1.0),
        models=roles(),
    )


@register(
    papers.THINK_RM,
    family="reward",
    summary="A judge that reasons before its verdict on a pair learns by GRPO; reward by the label or its sign.",
    when="You have pairs, perhaps with a strength of 1 to 3, and a judge that may think for long.",
    trial={"n": 4, **_SMALL},
)
def think_rm(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.001,
    temperature: opt.Temperature = 1.0,
    words: Words = "full",
) -> Method:
    """Think-RM: an integer verdict from -3 to 3 without 0 after free reasoning.

    R = 1 if the verdict is the label, 1/2 if only its sign is, else 0;  GRPO

    The label's size is the row's column `strength`; without one the sign alone counts (the paper's binary variant). An
    answer that cannot be read is 0. The paper's warm-up by SFT on long traces is burnish train sft. n and beta are
    choices of ours. pairwise_grpo trains a policy with the judge.
    """
    source = GradedPairs(task, _GRADED[words])
    return _grpo(draw.questions(source), source, n, temperature, eps, beta)


@register(
    papers.PAIRWISE_RL,
    family="reward",
    summary="A generative judge of pairs: cross-entropy on the letter of the better reply, in both orders.",
    when="You have pairs; the reward `anchor` then compares replies with each row's answer.",
    trial=_SMALL,
)
def pairwise_rl(task: draw.Source, *, words: Words = "full") -> Method:
    """The pairwise reward model of Pairwise-RL as a language model.

    L = -(1 / N) sum over the N tokens of "A" or "B" (and the end of the turn) of log pi(. | question), both orders

    RECONSTRUCTED from the abstract and a review. Each row gives two tasks, one per order. The policy is then trained by
    burnish train ppo --reward "anchor(runs/DIR/model)": the chance to win against the row's answer.
    """
    source = VerdictDemos(task, _LETTER[words])
    return method(
        draw=draw.questions(source),
        rollout=rollout.given("demo"),
        learn=learn.Learn(learn.imitate(on="demo")),
        models=roles(),
    )


@register(
    papers.URPO,
    family="reward",
    summary="One model is player and referee: verifiable, preference and open-ended tasks in one GRPO run.",
    when="Some rows have answers, some preferences, some neither, and there is no reward model.",
    trial={"n": 4, **_SMALL},
)
def urpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.0,
    temperature: opt.Temperature = 1.0,
    verified: Annotated[float, Option("Share of tasks with a verifier.", at_least=0)] = 1.0,
    referee: Annotated[float, Option("Share of preference tasks.", at_least=0)] = 1.0,
    open_ended: Annotated[float, Option("Share of open-ended tasks.", at_least=0)] = 1.0,
    max_tokens: Annotated[int, Option("The longest answer of the policy as referee.", at_least=1)] = 512,
    words: Words = "full",
) -> Method:
    """Unified reward and policy optimisation.

    R = verifier's 0 or 1 (verified), Kendall's tau-a of the written scores and the given order (referee),
        the policy's own score of the reply, (s - 1) / 9 (open);  GRPO within each group, one loss for all kinds

    Each row becomes one of the kinds that it can be: verified with an answer, referee with preferences, open always; by
    a hash of its key and the shares. The self-scores are those of the present weights, in one question per group, and
    no gradient goes through them. RECONSTRUCTED from the abstract and a review: tau-a with ties counting 0, -1 for
    scores that cannot be read. Only verified tasks: GRPO. Watch self_score next to referee_agreement: without
    preference tasks in each batch self-scores drift up.
    """
    source = Refereed(task, _SCORES[words], {VERIFIED: verified, REFEREE: referee, OPEN: open_ended})
    judge = ModelJudge("policy", "policy", max_tokens=max_tokens, moves=True)
    return _grpo(
        draw.prompts(source),
        source,
        n,
        temperature,
        eps,
        beta,
        note_agreement((KIND, REFEREE)),
        self_scores(judge, _SCORES[words], (KIND, OPEN)),
    )


@register(
    papers.THINK_RM,
    family="reward",
    summary="GRPO on a judge's comparisons of all pairs of a group, with the advantage of the whole matrix.",
    when="A judge that compares (think_rm), and no score of single replies.",
    trial={"n": 4, "task": "sort:1"},
)
def pairwise_grpo(
    task: draw.Source,
    *,
    judge: Annotated[
        str | None, Option("Who compares (docs/judges.md); without one the task's verifier scores.")
    ] = None,
    n: opt.GroupSize = 4,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    temperature: opt.Temperature = 1.0,
    orders: Annotated[int, Option("Orders in which a pair is shown: 1 or both.", at_least=1, at_most=2)] = 1,
    words: Words = "full",
) -> Method:
    """Pairwise RLHF of Think-RM.

    A_i = (1/G) sum_j d_ij / sqrt( sum over ordered pairs of d^2 / (2 G (G - 1)) + 1e-6 ),  d_ij in {-3, ..., 3}

    d_ij is the judge's verdict on replies i and j, d_ji = -d_ij, 0 where it cannot be read; a group without any that
    can is left out. Each pair is asked about once, in an order by a hash of the texts; the paper keeps the order of
    sampling, and with it the judge's preference for a position. Without a judge d_ij = r_i - r_j of the task's
    verifier, which is GRPO.
    """
    who = read_judge(judge) if judge else None
    compared = leads_by_score() if who is None else leads(who, _GRADED[words], orders)
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=chain(score.verify(task), compared) if who is None else compared,
        credit=chain(credit.by_leads(), credit.behaviour(), credit.ref()),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.seq_mean), learn.kl_k3(coef=beta, norm=learn.seq_mean)),
        models=roles(ref=frozen("policy"), **(dict(who.models) if who else {})),
    )
