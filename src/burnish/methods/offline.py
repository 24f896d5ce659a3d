"""Pairwise, sequence-level and off-policy policy gradients."""

from __future__ import annotations

from burnish.cast.roles import frozen, stage, trained
from burnish.credit.gae import token_rewards
from burnish.credit.members import member
from burnish.credit.sequence import shared
from burnish.credit.streams import behaviour, ref
from burnish.draw.tasks import pairs, prompts
from burnish.learn.learn import Learn
from burnish.learn.maths.sequence import pairwise_joint, pairwise_separate
from burnish.learn.term import Term
from burnish.learn.terms import pg_reinforce, value_mse
from burnish.learn.terms.sequence import PairSurrogate, pg_pair, pg_sequence_ratio, pg_token_ratio, regress_rewards
from burnish.method import Method, Phase, method
from burnish.methods.table import register
from burnish.parts import chain
from burnish.rollout.given import given
from burnish.rollout.sample import sample
from burnish.schedules import after
from burnish.score.baseline import above_value
from burnish.score.model import rm_role, scoring
from burnish.select.pairs import every_pair
from burnish.select.priority import prioritised
from burnish.tasks.source import Source

_COPG = "Contrastive Policy Gradient: Aligning LLMs on sequence-level scores in a supervised-friendly fashion"
_P3O = "Pairwise Proximal Policy Optimization: Harnessing Relative Feedback for LLM Alignment"
_A_LOL = "Improving Language Models with Advantage-based Offline Policy Gradients"


@register(
    family="policy",
    catalogue=("rebel",),
    title="REBEL: Reinforcement Learning via Regressing Relative Rewards",
    arxiv="2404.16767",
    summary="Regress the reward difference of two replies on their log-ratios.",
    when="You have scores of pairs and want neither a critic nor a clip: a regression that is stable off-policy.",
    trial={"n": 4, "updates": 1},
)
def rebel(
    task: Source,
    *,
    n: int = 2,
    eta: float = 1.0,
    kl: float = 0.05,
    updates: int = 4,
    temperature: float = 0.7,
    reward_model: str | None = None,
) -> Method:
    """REBEL: policy optimisation as a regression of reward differences.

    L = mean over pairs of ( (1/eta) [log pi(y)/pi_t(y) - log pi(y')/pi_t(y')] - [r(y) - r(y')] )^2,  y, y' ~ pi_t
    r = score - kl log pi_t(y)/ref(y)

    pi_t is the policy that sampled; log-probs are of whole replies, at the sampling temperature. The constants are those of
    the released summarisation runs; their reward of -1 for a reply that does not end is left out.
    n: replies sampled for each prompt; the paper's 2 make one pair, more make all their pairs. eta: the step size.
    kl: penalty on the log-ratio of the sampling policy to the starting one, inside the reward. updates: passes over each batch.
    temperature: of sampling and of the log-probs that are compared.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        select=every_pair(),
        credit=chain(behaviour(), ref(temperature=temperature), token_rewards(kl=kl), member("pair", "policy")),
        learn=Learn(regress_rewards(1 / eta, anchor="old"), epochs=updates, temperature=temperature),
        cast=stage(ref=frozen("policy"), **rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    family="policy",
    catalogue=("copg",),
    title=_COPG,
    arxiv="2406.19185",
    summary="Contrast two scored replies from anywhere; each is the other's baseline.",
    when="You have replies with scores from anywhere, and no log-probs of who wrote them.",
)
def copg(task: Source, *, beta: float = 0.1, reward_model: str | None = None) -> Method:
    """CoPG on pairs of replies that came with the data: an off-policy policy gradient without importance weights.

    R_beta(y) = r(y) - beta log pi(y)/ref(y);   L = mean over prompts of ( R_beta(y) - R_beta(y') )^2

    The loss is 0 where pi ~ ref exp(r / beta), whoever wrote the replies. No scale 1/(2 beta) stands before the square. The
    two replies are the task's chosen and rejected ones, scored like any other; only their scores' difference counts.
    beta: how strongly the policy is held to the reference; no value could be confirmed, 0.1 is DPO's.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=pairs(task),
        rollout=given("chosen", "rejected"),
        score=scoring(task, reward_model, author="demo"),
        select=every_pair(),
        credit=chain(ref(), token_rewards(kl=None, author="demo"), member("pair", "demo")),
        learn=Learn(regress_rewards(beta, anchor="ref")),
        cast=stage(ref=frozen("policy"), **rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    family="policy",
    catalogue=("copg",),
    title=_COPG,
    arxiv="2406.19185",
    summary="CoPG on fresh samples, all pairs of a group contrasted.",
    when="As `copg`, with fresh samples.",
    trial={"n": 4},
)
def copg_online(
    task: Source,
    *,
    n: int = 2,
    beta: float = 0.1,
    updates: int = 1,
    temperature: float = 1.0,
    reward_model: str | None = None,
) -> Method:
    """CoPG on the policy's own samples.

    R_beta(y) = r(y) - beta log pi(y)/ref(y);   L = mean over prompts of 1/(n-1) sum over pairs i > j of ( R_beta(y_i) - R_beta(y_j) )^2

    The rest is as in `copg`; the sum over n samples is that of Cohere's later report.
    n: replies sampled for each prompt. beta: how strongly the policy is held to the reference. updates: passes over each batch.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        select=every_pair(),
        credit=chain(ref(temperature=temperature), token_rewards(kl=None), member("pair", "policy")),
        learn=Learn(regress_rewards(beta, anchor="ref", coef=n / 2), epochs=updates, temperature=temperature),
        cast=stage(ref=frozen("policy"), **rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    family="policy",
    catalogue=("p3o",),
    title=_P3O,
    arxiv="2310.00212",
    summary="A policy gradient on pairs, invariant to a shift of the reward; pairs clipped as one.",
    when="Only differences of rewards mean anything, as with a reward model that was trained on comparisons.",
    trial={"n": 4, "updates": 1},
)
def p3o(
    task: Source,
    *,
    n: int = 2,
    eps: float = 0.2,
    kl: float = 0.05,
    updates: int = 4,
    temperature: float = 1.0,
    reward_model: str | None = None,
) -> Method:
    """P3O with the pair clipped jointly (the paper's V2).

    grad = E of A rho_1 rho_2 grad log( pi(y1) / pi(y2) ),  A = (r_1 - r_2) / 2,  rho = pi/pi_old of a whole reply
    L = mean over pairs of -sg[rho_1 rho_2] min(A d, A clip(d, -c, c)),  d = log rho_1/rho_2,  c = log(1 + eps)
    r = score - kl log pi_old(y)/ref(y)

    The gradient inside the clip and the KL inside the reward are the paper's (its equation 6, theorem 1 and algorithm); the exact
    form of its clip could not be read, this one is a reconstruction that is the same when the replies are swapped, and eps,
    kl and updates are those of PPO here.
    n: replies sampled for each prompt; the paper's 2 make one pair, more make all their pairs. eps: the clip range of the odds.
    kl: penalty on the log-ratio of the sampling policy to the starting one, inside the reward. updates: passes over each batch.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return _p3o(task, pairwise_joint, n, eps, kl, updates, temperature, reward_model)


@register(
    family="policy",
    catalogue=("p3o",),
    title=_P3O,
    arxiv="2310.00212",
    summary="P3O with each reply of a pair clipped by itself.",
    when="As `p3o`, when the two replies of a pair drift apart at different speeds.",
    trial={"n": 4, "updates": 1},
)
def p3o_separate(
    task: Source,
    *,
    n: int = 2,
    eps: float = 0.2,
    kl: float = 0.05,
    updates: int = 4,
    temperature: float = 1.0,
    reward_model: str | None = None,
) -> Method:
    """P3O with the two replies clipped separately (the paper's V1).

    L = mean over pairs of -sg[rho_2] min(rho_1 A, clip(rho_1) A) - sg[rho_1] min(-rho_2 A, -clip(rho_2) A)
    A = (r_1 - r_2) / 2,  clip(rho) to [1 - eps, 1 + eps]

    The rest, what is reconstructed too, is as in `p3o`.
    n: replies sampled for each prompt. eps: the clip range of each reply's ratio. kl: penalty inside the reward.
    updates: passes over each batch. reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return _p3o(task, pairwise_separate, n, eps, kl, updates, temperature, reward_model)


def _p3o(
    task: Source, surrogate: PairSurrogate, n: int, eps: float, kl: float, updates: int, temperature: float, rm: str | None
) -> Method:  # fmt: skip
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, rm),
        select=every_pair(),
        credit=chain(behaviour(), ref(temperature=temperature), token_rewards(kl=kl), member("pair", "policy")),
        learn=Learn(pg_pair(surrogate, eps), epochs=updates, temperature=temperature),
        cast=stage(ref=frozen("policy"), **rm_role(rm)),
        lr_share=0.1,
    )


@register(
    family="policy",
    catalogue=("a-lol",),
    title=_A_LOL,
    arxiv="2305.14718",
    summary="Offline: learn from given replies that beat what the reference would score.",
    when="You have scored replies of any origin and no way to sample during training.",
    trial={"n": 2, "value_steps": 0},
)
def a_lol(
    task: Source, *, n: int = 4, eps: float = 0.9, value_steps: int = 20, critic_lr: float = 1.0, temperature: float = 1.0,
    reward_model: str | None = None,
) -> Method:  # fmt: skip
    """Advantage leftover lunch: an offline policy gradient in which a whole reply is one action.

    A = max(r(x, y) - V_ref(x), 0);   w = sg clip( pi(y|x)/ref(y|x), 1 - eps, 1 + eps )
    L = mean over replies of -A w sum_t log pi(y_t);   replies drawn with chance ~ A
    V_ref(x) is regressed to the scores of the reference's own replies to x, in the first steps

    The replies are the task's chosen and rejected ones. Departures: the critic is a copy of the model with a linear head that
    is trained whole, on training prompts (the released code: an attention layer over the frozen reference, on the validation
    set); replies are drawn anew within each batch, not over the whole data set. The KL variant is `a_lol_ref_free` with A - beta.
    n: replies of the reference for each prompt, while the critic learns. eps: the clip range of the ratio; 0.9 is the paper's.
    value_steps: steps in which only the critic learns; it learns for the last time in the policy's first.
    critic_lr: multiplies the learning rate for the critic.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return _a_lol(task, pg_sequence_ratio(eps), n, value_steps, critic_lr, temperature, reward_model)


@register(
    family="policy",
    catalogue=("a-lol",),
    title=_A_LOL,
    arxiv="2305.14718",
    summary="A-LoL with a ratio for each token.",
    when="As `a_lol`, for long replies, whose whole ratio is too noisy.",
    trial={"n": 2, "value_steps": 0},
)
def a_lol_seq(
    task: Source, *, n: int = 4, eps: float = 0.9, value_steps: int = 20, critic_lr: float = 1.0, temperature: float = 1.0,
    reward_model: str | None = None,
) -> Method:  # fmt: skip
    """A-LoL seq.: the importance weight is the token's, w_t = sg clip( pi(y_t)/ref(y_t), 1 - eps, 1 + eps ).

    L = mean over replies of -A sum_t w_t log pi(y_t)

    The rest is as in `a_lol`.
    n: replies of the reference for each prompt, while the critic learns. eps: the clip range of the ratios.
    value_steps: steps in which only the critic learns. critic_lr: multiplies the learning rate for the critic.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return _a_lol(task, pg_token_ratio(eps), n, value_steps, critic_lr, temperature, reward_model)


@register(
    family="policy",
    catalogue=("a-lol",),
    title=_A_LOL,
    arxiv="2305.14718",
    summary="A-LoL without the ratio: advantage-weighted imitation.",
    when="As `a_lol`, without the memory for a reference.",
    trial={"n": 2, "value_steps": 0},
)
def a_lol_ref_free(
    task: Source, *, n: int = 4, value_steps: int = 20, critic_lr: float = 1.0, temperature: float = 1.0, reward_model: str | None = None
) -> Method:  # fmt: skip
    """A-LoL ref. free: the importance weight is 1.

    L = mean over replies of -A sum_t log pi(y_t)

    The rest is as in `a_lol`.
    n: replies of the reference for each prompt, while the critic learns. value_steps: steps in which only the critic learns.
    critic_lr: multiplies the learning rate for the critic.
    reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return _a_lol(task, pg_reinforce(), n, value_steps, critic_lr, temperature, reward_model)


def _a_lol(
    task: Source, term: Term, n: int, value_steps: int, critic_lr: float, temperature: float, rm: str | None
) -> Method:
    value = Phase(
        name="value",
        times=lambda clock: int(clock.step <= value_steps),
        draw=prompts(task),
        rollout=sample(n, who="ref", temperature=temperature),
        score=scoring(task, rm, author="ref"),
        credit=chain(shared("reward", "returns"), member("value", "ref", at="first")),
        learn=Learn(value_mse("value", None, "returns")),
    )
    policy = Phase(
        name="policy",
        times=after(value_steps),
        draw=pairs(task),
        rollout=given("chosen", "rejected"),
        score=chain(scoring(task, rm, author="demo"), above_value("critic", author="demo")),
        select=prioritised("advantage"),
        credit=chain(
            shared("advantage", "adv"), *([ref()] if "ref" in term.streams else []), member("pg", "demo", tag="drawn")
        ),
        learn=Learn(term),
    )
    roles = stage(ref=frozen("policy"), critic=trained(outputs=1, lr=critic_lr), **rm_role(rm))
    return Method(cast=roles, phases=(value, policy))
