"""Learning from one's own samples as if they were demonstrations: the kept, the best, the relabelled, the explained."""

from __future__ import annotations

from burnish.cast.roles import frozen, stage
from burnish.credit.members import member
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.norms import seq_mean
from burnish.learn.terms import distil, entropy_bonus, imitate
from burnish.learn.terms.self_imitation import contrast, imitate_smoothed
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.parts import chain
from burnish.rollout.conditioned import under
from burnish.rollout.sample import sample
from burnish.score.model import rm_role, scoring
from burnish.score.verify import verify
from burnish.select.compare import keep_best
from burnish.select.feedback import with_feedback
from burnish.select.hindsight import relabel
from burnish.select.verified import keep_verified
from burnish.tasks.source import Source


@register(
    family="imitation",
    catalogue=("rejection-sampling",),
    title="Beyond Human Data: Scaling Self-Training for Problem-Solving with Language Models",
    arxiv="2312.06585",
    summary="Sample, keep the verified, imitate them.",
    when="You have a verifier and want nothing more than SFT.",
    trial={"n": 4},
)
def rejection_sampling(
    task: Source, *, n: int = 8, most: int = 10, epochs: int = 1, temperature: float = 1.0
) -> Method:
    """Rejection-sampling fine-tuning, or expert iteration (ReST-EM, STaR).

    E step: y_i ~ pi(.|x), i = 1..n, kept where the verifier accepts them (different ones, at most `most` of a prompt)
    M step: L = -(1 / N) sum over the N tokens of the kept replies of log pi

    Departures: ReST-EM samples for all its problems in a round, and both it and STaR train the base model anew on each
    round's replies; here a round is one step and the policy goes on from where it is, as in expert iteration. STaR's
    rationalisation (a hint with the answer, where all replies fail) is left out. n, most and temperature are choices of ours.
    n: replies sampled for each prompt. most: kept replies of one prompt, so that easy prompts do not dominate.
    epochs: updates on each batch.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        select=keep_verified(most),
        credit=member("sft", "policy"),
        learn=Learn(imitate(), epochs=epochs),
        cast=stage(),
    )


@register(
    family="imitation",
    catalogue=("raft",),
    title="RAFT: Reward rAnked FineTuning for Generative Foundation Model Alignment",
    arxiv="2304.06767",
    summary="Sample, rank by reward, imitate the best of each prompt.",
    when="You have a reward model and want nothing more than SFT.",
    trial={"n": 4},
)
def raft(
    task: Source,
    *,
    n: int = 8,
    best: int = 1,
    epochs: int = 1,
    temperature: float = 1.0,
    reward_model: str | None = None,
) -> Method:
    """Reward-ranked fine-tuning.

    y* = argmax over y_1..y_n ~ pi(.|x) of r(x, y);   L = -(1 / N) sum over the N tokens of the chosen replies of log pi

    Ranking is local, within each prompt. Left out: ranking over all prompts together, and the optional penalty
    beta log pi/ref in the reward. n and temperature are choices of ours. Ties go to the earlier sample, so that a prompt of equal replies still teaches.
    n: replies sampled for each prompt. best: replies of each prompt that are kept. epochs: updates on each batch.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        select=keep_best(best),
        credit=member("sft", "policy"),
        learn=Learn(imitate(), epochs=epochs),
        cast=stage(**rm_role(reward_model)),
    )


@register(
    family="imitation",
    catalogue=("superhf",),
    title="SuperHF: Supervised Iterative Learning from Human Feedback",
    arxiv="2310.16763",
    summary="Imitate the best of many samples, held by a full KL to the starting model.",
    when="As `raft`, when imitating one's own best replies drifts too far from the start.",
    trial={"n": 4},
)
def superhf(
    task: Source,
    *,
    n: int = 16,
    beta: float = 0.7,
    temperature: float = 1.0,
    top_p: float = 0.95,
    reward_model: str | None = None,
) -> Method:
    """SuperHF: supervised learning on the best of a superbatch, with the prior kept by a KL.

    y* = argmax over n samples of r;   L = -(1 / N) sum over the N tokens of y* of log pi
      + beta mean over replies of mean over tokens of KL(p_0 || pi), over the whole vocabulary, p_0 the starting model

    The KL is the forward one, as in the released code; it is never negative, so the code's max(0, KL) changes nothing. The code
    sums it over the 2 replies of an update with beta 0.35, which is the mean with beta 0.7.
    n: replies sampled for each prompt (the superbatch). beta: weight of the KL. top_p: nucleus of sampling.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature, top_p=top_p),
        score=scoring(task, reward_model),
        select=keep_best(1),
        credit=chain(member("sft", "policy"), member("prior", "policy")),
        learn=Learn(imitate(), distil(0.0, teacher="ref", norm=seq_mean, coef=beta, name="prior")),
        cast=stage(ref=frozen("policy"), **rm_role(reward_model)),
    )


@register(
    family="imitation",
    catalogue=("hir",),
    title="The Wisdom of Hindsight Makes Language Models Better Instruction Followers",
    arxiv="2302.05206",
    summary="Relabel each sample with the instruction that it met, and imitate it under that.",
    when="Wrong replies should teach too, through another instruction, without a reward in the loss.",
    trial={"n": 2, "epochs": 1},
)
def hir(
    task: Source, *, n: int = 1, smoothing: float = 0.2, contrastive: float = 1.0, entropy: float = 0.001, epochs: int = 10,
    right: str = "", wrong: str = "Solve the question with wrong answer.", temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Hindsight instruction relabelling.

    A reply y sampled under `right` is told again under the instruction i that it met (right or wrong); i' is the other one.
    L = mean over replies of mean over tokens of [ -(1-s) log pi(y_t|x,i) - s mean over v of log pi(v) - entropy H(pi) ]
      + contrastive mean over replies of [ -(1-s) log P - s log(1 - P) ],   P = p(y|x,i) / (p(y|x,i) + p(y|x,i')),  s = smoothing
    p(y|.) = the geometric mean of the token probabilities;  only a random contiguous piece of y is trained

    The constants are the released code's. Its label smoothing leaves a fifth of the probability to other tokens: greedy answers
    do not mind, but free sampling draws them, so on `tiny` held-out accuracy falls; with smoothing 0 it rises. Departures: a
    step is a round; the instruction to be right is the bare prompt unless
    words are given, so that the product is asked like any other model.
    n: replies sampled for each prompt. smoothing: share of the target that is spread. contrastive: weight of the contrast.
    entropy: coefficient of the entropy bonus. epochs: updates on each batch.
    right: words before the prompt in sampling, and of replies that are right. wrong: words before that of replies that are not.
    """
    return method(
        draw=prompts(task),
        rollout=under(right, sample(n, temperature=temperature)),
        score=verify(task),
        select=relabel(right, wrong),
        credit=chain(
            member("sft", "hindsight", tag="own"), member("bonus", "hindsight", tag="own"), member("contrast", "hindsight")
        ),
        learn=Learn(
            imitate_smoothed(smoothing), entropy_bonus(coef=entropy, norm=seq_mean, name="bonus"),
            contrast(smoothing, coef=contrastive), epochs=epochs,
        ),
        cast=stage(),
    )  # fmt: skip


@register(
    family="imitation",
    catalogue=("leti",),
    title="LeTI: Learning to Generate from Textual Interactions",
    arxiv="2305.10314",
    summary="Model one's own replies together with what the verifier said of them.",
    when="The verifier says in words what went wrong, as compilers do.",
    trial={"n": 4, "epochs": 1},
)
def leti(
    task: Source, *, n: int = 8, good: str = "", bad: str = "<|bad|>", epochs: int = 3, temperature: float = 1.0
) -> Method:
    """Learning from textual interactions: feedback-conditioned fine-tuning on the policy's own replies.

    text = condition (good or bad) + the verifier's words, where the reply failed + question + sampled reply
    L = -(1 / N) sum over the N tokens of the texts, but for their first, of log pi

    Nobody writes a solution: replies that fail are learned under `bad` and the reason. The order of the text, the loss on all
    of it and the 3 epochs are the released code's. Departures: that code samples 128 replies and mixes in pre-training text,
    which a task does not give; the good condition is the bare prompt unless words are given, so that the product is asked
    like any other model (the paper: "<|good|>").
    n: replies sampled for each prompt. good: words before the prompt in sampling, and of replies that pass.
    bad: words before that of replies that fail. epochs: updates on each batch.
    """
    return method(
        draw=prompts(task),
        rollout=under(good, sample(n, temperature=temperature)),
        score=verify(task),
        select=with_feedback(good, bad),
        credit=member("sft", "task", "policy"),
        learn=Learn(imitate(), epochs=epochs),
        cast=stage(),
    )
