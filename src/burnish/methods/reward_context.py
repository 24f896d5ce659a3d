"""Reward models that read more than a prompt and a reply, or learn more than a score."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.credit.goals import goals
from burnish.credit.reward import axiom_kinds, normal_noise
from burnish.learn.terms import reward as terms
from burnish.learn.terms import reward_heads as heads_terms
from burnish.method import Method, Option, chain, frozen, method, roles, trained
from burnish.methods import opt, papers, register
from burnish.methods.reward import END
from burnish.rollout.axioms import by_axioms
from burnish.rollout.checked import checked
from burnish.rollout.corrected import corrected
from burnish.select.axioms import axiom_pairs
from burnish.select.beside import beside_reference
from burnish.select.users import user_pairs


@register(
    papers.POLAR,
    family="reward",
    summary="A reward model that reads a reference reply beside the candidate and says how alike their policies are.",
    when="Prompts have reference answers; the reward should be the distance to them, without labels at first.",
)
def polar(
    task: draw.Source,
    *,
    other: Annotated[str | None, Option("Another policy, for pre-training; by default the model of the run.")] = None,
    temperature: opt.Temperature = 1.0,
    other_temperature: Annotated[float, Option("The other policy's temperature.", above=0)] = 1.5,
) -> Method:
    """POLAR: a policy discriminator. The model reads prompt + reference, a separator, prompt + candidate.

    pre-training:  L = -log s( r(x, a1, a2) - r(x, a1, b1) ),  a1, a2 two samples of one policy, b1 of another
    fine-tuning:   L = -log s( r(x, A, B) - r(x, A, C) ),  A > B > C ranked replies; the best is the reference

    Data with at least three ranked replies, or with a reference beside chosen and rejected ones, is fine-tuned on; any
    other task is pre-trained on: the run's model against `other` (by default itself at another temperature). Mean over
    triples. As a reward: `polar(DIR)` with the task's answer as the reference. A constant reference is reward_model.
    """
    samples = "responses" not in task.gives and not {"reference", "chosen", "rejected"} <= task.gives
    if "responses" in task.gives:
        drawn, replies, triple = draw.prompts(task), rollout.listed(reader="rm"), beside_reference("listed")
    elif not samples:
        drawn, replies = draw.pairs(task), rollout.given("reference", "chosen", "rejected", reader="rm")
        triple = beside_reference("reference", "chosen", "rejected")
    else:
        same = rollout.sample(2, who="same", temperature=temperature, tag="same")
        different = rollout.sample(1, who="different", temperature=other_temperature, tag="different")
        drawn, replies, triple = (
            draw.prompts(task),
            rollout.join(same, different),
            beside_reference("same", "different"),
        )
    policies = {"same": frozen("base"), "different": frozen(other or "base")} if samples else {}
    return method(
        draw=drawn,
        rollout=replies,
        select=triple,
        credit=credit.claim("end", "candidate", positions="end"),
        learn=learn.Learn(terms.score_pairs(on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=1), **policies),
        product="rm",
    )


@register(
    papers.THEMIS,
    family="reward",
    summary="A language model that learns to write what a tool says of a reply, and then scores it.",
    when="Whether a reply is right can be looked up or calculated before it is judged.",
)
def themis(
    task: draw.Source,
    *,
    coef: Annotated[float, Option("Weight of the comparison beside the tool trace's likelihood.", above=0)] = 0.5,
) -> Method:
    """Themis: tool-augmented reward modelling.

    L = mean over the trace's tokens of -log pi(t) + coef [ -log s( r(x, y_w) - r(x, y_l) ) ]

    A reply is followed by its trace: tool calls, observations, a rationale. It is the column chosen_trace or
    rejected_trace of the data, else a calculator's check of the equations in the reply. r is the logit of the end token
    after the trace, so that one model with one head writes and scores. Departures: the paper has a separate scalar
    head, seven tools, and a model that decides itself what to look up.
    """
    return method(
        draw=draw.pairs(task),
        rollout=checked("chosen", "rejected"),
        select=select.given_pairs(),
        credit=credit.token_ids(),
        learn=learn.Learn(
            learn.imitate(on="tool", trainee="judge", name="trace"),
            terms.logit_pairs(coef=coef, on="score"),
        ),
        models=roles("judge", judge=trained()),
        product="judge",
    )


@register(
    papers.GOAL_CONDITIONED_CONTRASTIVE_RM,
    family="reward",
    summary="A reward model whose states within good replies point to their ends, by a contrastive term.",
    when="Unfinished replies are to be judged as well: the cosine to a goal is a dense value.",
)
def goal_conditioned_rm(
    task: draw.Source,
    *,
    coef: Annotated[float, Option("Weight of the contrastive term; 0 is reward_model.", at_least=0)] = 0.5,
    draws: Annotated[int, Option("Places drawn in each reply.", at_least=1)] = 16,
) -> Method:
    """Goal-conditioned representations for reward models.

    L = -log s( r_w - r_l ) + coef { -log mean s(cos(source, goal)) - log(1 - mean s(cos(source, other))) }

    Sources and later goals are states at random places of the chosen reply, others of the rejected one; the means are
    over the batch. cos is at most 1, so the term in braces is at least 0.6265. coef = 0 is reward_model. Departure: all
    drawn sources are compared with all drawn goals that follow them; the code compares all with all.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=select.given_pairs(),
        credit=chain(END, credit.claim("goal", "demo"), goals(draws)),
        learn=learn.Learn(terms.score_pairs(on=learn.CLAIMED), heads_terms.goal_contrast(coef)),
        models=roles("rm", rm=trained(outputs=1)),
        product="rm",
    )


@register(
    papers.VPL,
    family="reward",
    summary="A reward model with a latent variable per user, inferred from the user's other comparisons.",
    when="Users want different things, and some comparisons of each user are known.",
    trial={"user": "answer"},
    example="burnish train vpl --task pairs.jsonl",
)
def vpl(
    task: draw.Source,
    *,
    latent: Annotated[int, Option("Dimensions of the latent variable; 512 in the paper.", at_least=1)] = 16,
    beta: Annotated[float, Option("Weight of the KL to the prior.", at_least=0)] = 3e-6,
    user: Annotated[str, Option("The column that says who compared the replies.")] = "user",
) -> Method:
    """Variational preference learning.

    q(z | the user's other pairs) = N(mu, var), mean over pairs of an encoding of both replies, within [-1, 1]
    r(x, y, z) = r_0(x, y) + z . U(x, y),  z = mu + std eps, rescaled to norm sqrt(latent)
    L = -log s( r(x, y_w, z) - r(x, y_l, z) ) + beta KL(q || N(0, 1));  mean over pairs

    The context of a pair is the user's other pairs in the batch; where there are none, z is drawn from the prior. Use
    `vpl(DIR, context=FILE)`: z is the mean, without the rescaling. The product has 1 + 5 latent labels. Departures: the
    encoder and the decoder are linear on a backbone that is trained (the paper: MLPs and attention on a frozen one),
    and beta is constant. Where U is 0 it is reward_model.
    """
    draw.require_column(task, (user,), f"user={user}", "who compared the replies", "reward_model")
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=user_pairs(user),
        credit=chain(END, normal_noise(latent)),
        learn=learn.Learn(heads_terms.latent_pairs(latent, beta, on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=1 + 5 * latent)),
        product="rm",
    )


@register(
    papers.AXIOMATIC_PREFERENCE_MODEL,
    family="reward",
    summary="A reward model of pairs that axioms make: useful, relevant, true and grounded answers over others.",
    when="Questions have answers with votes or evidence, and few direct comparisons.",
)
def axiomatic_rm(
    task: draw.Source,
    *,
    usefulness: Annotated[float, Option("Weight of chosen over rejected.", at_least=0)] = 1.0,
    relevance: Annotated[float, Option("Weight of the own answer over one to another question.", at_least=0)] = 1.0,
    truthfulness: Annotated[float, Option("Weight of true over plausible but false.", at_least=0)] = 1.0,
    grounding: Annotated[float, Option("Weight of evidence over none, and of its own over other's.", at_least=0)] = 1.0,
    combination: Annotated[float, Option("Weight of joined answers over one of them.", at_least=0)] = 1.0,
) -> Method:
    """The axiomatic preference model.

    L = mean over the pairs of all axioms of weight(axiom) [ -log s( r(better) - r(worse) ) ]

    Columns: chosen and rejected; optional false, combined and evidence. Accuracy is noted for each axiom. Departure: of
    the paper the abstract was available; loss and weights are reconstructed, and another question is any of the batch,
    not a similar one. With usefulness alone it is reward_model.
    """
    weights = {
        "usefulness": usefulness,
        "relevance": relevance,
        "truthfulness": truthfulness,
        "groundedness": grounding,
        "relevant_grounding": grounding,
        "combination": combination,
    }
    return method(
        draw=draw.pairs(task),
        rollout=by_axioms(),
        select=axiom_pairs(),
        credit=chain(END, axiom_kinds()),
        learn=learn.Learn(terms.score_axioms(weights, on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=1)),
        product="rm",
    )


@register(
    papers.SEQ2SEQ_RM,
    family="reward",
    summary="A model that corrects replies; where it would change nothing, a reply is good, token by token.",
    when="A score for every token is wanted, from pairs alone.",
)
def seq2seq_rm(task: draw.Source) -> Method:
    """A sequence-to-sequence reward model: a language model trained to correct replies.

    L = -log pi(y_w | x, y_l) - log pi(y_w | x, y_w), mean over tokens: corrections and the identity, half each

    As a reward, `corrector(DIR)`: tokens up to the first that the model would change count 1, later ones -1 where it
    would say another token and 0 where it agrees. Departure: of the paper the abstract and a figure were available; the
    sizes of these rewards are reconstructed.
    """
    return method(
        draw=draw.pairs(task),
        rollout=corrected(),
        learn=learn.Learn(learn.imitate(on="demo")),
        models=roles(),
        product="policy",
    )
