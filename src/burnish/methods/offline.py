"""Pairwise, sequence-level and off-policy policy gradients."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.schedules import after
from burnish.learn.maths.sequence import pairwise_joint, pairwise_separate
from burnish.method import Method, Option, Phase, chain, frozen, method, roles, trained
from burnish.methods import opt, papers, register

_ReferenceReplies = Annotated[
    int, Option("Replies of the reference for each prompt, while the critic learns.", at_least=1)
]
_ValueSteps = Annotated[int, Option("Steps in which only the critic learns.", at_least=0)]
_Penalty = Annotated[float, Option("Penalty on log(pi_old/ref), inside the reward.", at_least=0)]


@register(
    papers.REBEL,
    family="policy",
    summary="Regress the reward difference of two replies on their log-ratios.",
    when="You have scores of pairs and want neither a critic nor a clip: a regression that is stable off-policy.",
)
def rebel(
    task: draw.Source,
    *,
    n: opt.GroupSize = 2,
    eta: Annotated[float, Option("The step size.", above=0)] = 1.0,
    kl: _Penalty = 0.05,
    updates: opt.Updates = 4,
    temperature: opt.Temperature = 0.7,
    reward_model: opt.RewardModel = None,
) -> Method:
    """REBEL: policy optimisation as a regression of reward differences.

    L = mean over pairs of ( (1/eta) [log pi(y)/pi_t(y) - log pi(y')/pi_t(y')] - [r(y) - r(y')] )^2,  y, y' ~ pi_t
    r = score - kl log pi_t(y)/ref(y)

    pi_t is the policy that sampled; log-probs are of whole replies, at the sampling temperature. The constants are
    those of the released summarisation runs; their reward of -1 for a reply that does not end is left out. The
    paper's 2 replies make one pair; more make all their pairs.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.scoring(task, reward_model),
        select=select.every_contrast(),
        credit=chain(credit.behaviour(), credit.ref(), credit.token_rewards(kl=kl)),
        learn=learn.Learn(learn.regress_rewards(1 / eta, anchor="old"), updates=updates),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.COPG,
    family="policy",
    summary="Contrast two scored replies from anywhere; each is the other's baseline.",
    when="You have replies with scores from anywhere, and no log-probs of who wrote them.",
)
def copg(task: draw.Source, *, beta: opt.Beta = 0.1, reward_model: opt.RewardModel = None) -> Method:
    """CoPG on pairs of replies that came with the data: an off-policy policy gradient without importance weights.

    R_beta(y) = r(y) - beta log pi(y)/ref(y)
    L = mean over prompts of ( R_beta(y) - R_beta(y') )^2

    The loss is 0 where pi ~ ref exp(r / beta), whatever policy wrote the replies. No scale 1/(2 beta) stands before the
    square. The two replies are the task's chosen and rejected ones, scored like any other; only their scores'
    difference counts. No value of beta could be confirmed; 0.1 is DPO's.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.scoring(task, reward_model, author="demo"),
        select=select.every_contrast(),
        credit=chain(credit.ref(), credit.token_rewards(kl=None, author="demo")),
        learn=learn.Learn(learn.regress_rewards(beta, anchor="ref", on="demo")),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.COPG,
    family="policy",
    summary="CoPG on fresh samples, all pairs of a group contrasted.",
    when="As `copg`, with fresh samples.",
)
def copg_online(
    task: draw.Source,
    *,
    n: opt.GroupSize = 2,
    beta: opt.Beta = 0.1,
    updates: opt.Updates = 1,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """CoPG on the policy's own samples.

    R_beta(y) = r(y) - beta log pi(y)/ref(y)
    L = mean over prompts of 1/(n-1) sum over pairs i > j of ( R_beta(y_i) - R_beta(y_j) )^2

    The rest is as in `copg`; the sum over n samples is that of Cohere's later report.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.scoring(task, reward_model),
        select=select.every_contrast(),
        credit=chain(credit.ref(), credit.token_rewards(kl=None)),
        learn=learn.Learn(learn.regress_rewards(beta, anchor="ref", coef=n / 2), updates=updates),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    papers.P3O,
    family="policy",
    summary="A policy gradient on pairs, invariant to a shift of the reward; pairs clipped as one.",
    when="Only differences of rewards mean anything, as with a reward model that was trained on comparisons.",
)
def p3o(
    task: draw.Source,
    *,
    n: opt.GroupSize = 2,
    eps: Annotated[float, Option("The clip range of the odds.", at_least=0, unlimited=True)] = 0.2,
    kl: _Penalty = 0.05,
    updates: opt.Updates = 4,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """P3O with the pair clipped jointly (the paper's V2).

    grad = E of A rho_1 rho_2 grad log( pi(y1) / pi(y2) ),  A = (r_1 - r_2) / 2,  rho = pi/pi_old of a whole reply
    L = mean over pairs of -sg[rho_1 rho_2] min(A d, A clip(d, -c, c)),  d = log rho_1/rho_2,  c = log(1 + eps)
    r = score - kl log pi_old(y)/ref(y)

    The gradient inside the clip and the KL inside the reward are the paper's (its equation 6, theorem 1 and
    algorithm); the exact form of its clip could not be read, this one is a reconstruction that is the same when the
    replies are swapped, and eps, kl and updates are those of PPO here. The paper's 2 replies make one pair; more
    make all their pairs.
    """
    return _p3o(task, pairwise_joint, n, eps, kl, updates, temperature, reward_model)


@register(
    papers.P3O,
    family="policy",
    summary="P3O with each reply of a pair clipped by itself.",
    when="As `p3o`, when the two replies of a pair drift apart at different speeds.",
)
def p3o_separate(
    task: draw.Source,
    *,
    n: opt.GroupSize = 2,
    eps: opt.ClipRange = 0.2,
    kl: _Penalty = 0.05,
    updates: opt.Updates = 4,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """P3O with the two replies clipped separately (the paper's V1).

    L = mean over pairs of -sg[rho_2] min(rho_1 A, clip(rho_1) A) - sg[rho_1] min(-rho_2 A, -clip(rho_2) A)
    A = (r_1 - r_2) / 2,  clip(rho) to [1 - eps, 1 + eps]

    The rest, what is reconstructed too, is as in `p3o`.
    """
    return _p3o(task, pairwise_separate, n, eps, kl, updates, temperature, reward_model)


def _p3o(
    task: draw.Source,
    surrogate: learn.PairSurrogate,
    n: int,
    eps: float,
    kl: float,
    updates: int,
    temperature: float,
    rm: str | None,
) -> Method:
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.scoring(task, rm),
        select=select.every_contrast(),
        credit=chain(credit.behaviour(), credit.ref(), credit.token_rewards(kl=kl)),
        learn=learn.Learn(learn.pg_pair(surrogate, eps), updates=updates),
        models=roles(ref=frozen("policy"), **score.rm_role(rm)),
        lr_share=0.1,
    )


@register(
    papers.A_LOL,
    family="policy",
    summary="Offline: learn from given replies that beat what the reference would score.",
    when="You have scored replies of any origin and no way to sample during training.",
    trial={"n": 2, "value_steps": 0},
)
def a_lol(
    task: draw.Source,
    *,
    n: _ReferenceReplies = 4,
    eps: opt.ClipRange = 0.9,
    value_steps: _ValueSteps = 20,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Advantage leftover lunch: an offline policy gradient in which a whole reply is one action.

    A = max(r(x, y) - V_ref(x), 0);   w = sg clip( pi(y|x)/ref(y|x), 1 - eps, 1 + eps )
    L = mean over replies of -A w sum_t log pi(y_t);   replies drawn with chance ~ A
    V_ref(x) is regressed to the scores of the reference's own replies to x, in the first steps

    The replies are the task's chosen and rejected ones. Departures: the critic is a copy of the model with a linear
    head that is trained whole, on training prompts (the released code: an attention layer over the frozen
    reference, on the validation set); replies are drawn anew within each batch, not over the whole data set. The KL
    variant is `a_lol_ref_free` with A - beta. eps = 0.9 is the paper's. The critic learns for the last time in the
    policy's first step.
    """
    return _a_lol(
        task, learn.pg_sequence_ratio(eps, on=learn.CLAIMED), n, value_steps, critic_lr, temperature, reward_model
    )


@register(
    papers.A_LOL,
    family="policy",
    summary="A-LoL with a ratio for each token.",
    when="As `a_lol`, for long replies, whose whole ratio is too noisy.",
    trial={"n": 2, "value_steps": 0},
)
def a_lol_seq(
    task: draw.Source,
    *,
    n: _ReferenceReplies = 4,
    eps: opt.ClipRange = 0.9,
    value_steps: _ValueSteps = 20,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """A-LoL seq.: the importance weight is the token's, w_t = sg clip( pi(y_t)/ref(y_t), 1 - eps, 1 + eps ).

    L = mean over replies of -A sum_t w_t log pi(y_t)

    The rest is as in `a_lol`.
    """
    return _a_lol(
        task, learn.pg_token_ratio(eps, on=learn.CLAIMED), n, value_steps, critic_lr, temperature, reward_model
    )


@register(
    papers.A_LOL,
    family="policy",
    summary="A-LoL without the ratio: advantage-weighted imitation.",
    when="As `a_lol`, without the memory for a reference.",
    trial={"n": 2, "value_steps": 0},
)
def a_lol_ref_free(
    task: draw.Source,
    *,
    n: _ReferenceReplies = 4,
    value_steps: _ValueSteps = 20,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """A-LoL ref. free: the importance weight is 1.

    L = mean over replies of -A sum_t log pi(y_t)

    The rest is as in `a_lol`.
    """
    return _a_lol(task, learn.pg_reinforce(on=learn.CLAIMED), n, value_steps, critic_lr, temperature, reward_model)


def _a_lol(
    task: draw.Source, term: learn.Term, n: int, value_steps: int, critic_lr: float, temperature: float, rm: str | None
) -> Method:
    value = Phase(
        name="value",
        times=lambda clock: int(clock.step <= value_steps),
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="ref", temperature=temperature),
        score=score.scoring(task, rm, author="ref"),
        credit=chain(credit.shared("reward", "returns"), credit.claim("value", "ref", positions="first")),
        learn=learn.Learn(learn.value_mse("value", None, "returns", on=learn.CLAIMED)),
    )
    policy = Phase(
        name="policy",
        times=after(value_steps),
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=chain(score.scoring(task, rm, author="demo"), score.above_value("critic", author="demo")),
        select=select.prioritised("advantage"),
        credit=chain(
            credit.shared("advantage", "adv"),
            *([credit.ref()] if "ref" in term.streams else []),
            credit.claim("pg", "demo", tag="drawn"),
        ),
        learn=learn.Learn(term),
    )
    models = roles(ref=frozen("policy"), critic=trained(outputs=1, lr=critic_lr), **score.rm_role(rm))
    return Method(models=models, phases=(value, policy))
