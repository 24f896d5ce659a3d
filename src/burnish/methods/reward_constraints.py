"""Methods with constraints on rewards: judges that must pass (CGPO), thresholds that must hold (constrained RLHF)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.roles import trained
from burnish.method import Method, Option, Part, Rollout, chain, frozen, method, roles
from burnish.methods import opt, papers, register
from burnish.methods.actor_critic import anchors, ppo_credit, ppo_models
from burnish.score.maths.multipliers import EQUALITY, INEQUALITY, SquashedMultipliers

Judges = Annotated[
    str, Option("Rewards that must be above 0.5, names with commas: correct,safe. A row's column `judges` has its own.")
]
KLMax = Annotated[
    float, Option("The largest log pi/ref of a whole reply, in nats.", above=0, unlimited=True)
]  # judged tasks get a lenient one in the paper, chat a strict one


def _names(judges: str) -> list[str]:
    return [name.strip() for name in judges.split(",") if name.strip()]


def _with_baseline(n: int, temperature: float) -> Rollout:
    """n replies of the policy, and one of the starting policy, tagged "baseline"."""
    return rollout.join(
        rollout.sample(n, temperature=temperature),
        rollout.sample(1, temperature=temperature, who="ref", tag="baseline"),
    )


def _judged(task: draw.Source, reward_model: str | None, judges: str) -> Part:
    """The reward, whether all judges pass, the reward relative to the baseline's, and log pi/ref."""
    return chain(
        score.scoring(task, reward_model),
        score.satisfied(_names(judges)),
        score.calibrated(),
        score.ratio_to_reference(),
    )


@register(
    papers.CGPO,
    family="policy",
    summary="Policy gradient on a reward that counts only where every judge passes and the policy stayed near.",
    when="A reward model is hacked: rules or judges can say which replies must not be paid, whatever their score.",
    trial={"n": 4},
)
def cgpo_crpg(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    judges: Judges = "correct",
    kl_max: KLMax = 20.0,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """CGPO with its optimiser CRPG: calibrated, regularised, constrained policy gradient.

    Rc = sigmoid(R(x, y) - R(x, y0)),  y0 one reply of the starting policy
    w = [all judges pass] Rc max(1 - log(pi/ref)(y) / kl_max, 0);   A = w - mean of w over the batch
    L = -mean over replies of A log pi(y), the whole reply, not divided by its tokens

    Judges all 1 and kl_max inf: policy gradient on the calibrated reward. A reply that is less likely than under the
    reference gets more than Rc (the factor is not capped above). The paper's judges are joined by AND (its print has
    an OR sign). For several tasks give a mixture: rows have their own judges in a column `judges`. Departures: one
    optimiser and one kl_max for all tasks; kl_max and n are choices of ours, the paper does not print them.
    """
    return method(
        draw=draw.prompts(task),
        rollout=_with_baseline(n, temperature),
        score=_judged(task, reward_model, judges),
        credit=credit.constrained_advantage(kl_max),
        learn=learn.Learn(learn.pg_reinforce(norm=learn.seq_sum_mean)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
    )


@register(
    papers.CGPO,
    family="preference",
    summary="Online DPO of the best reply that passes every judge against the worst that does not.",
    when="As cgpo_crpg, with the stability of pairs.",
    trial={"n": 4},
)
def cgpo_codpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    judges: Judges = "correct",
    beta: opt.Beta = 0.1,
    nll: Annotated[float, Option("Lambda: weight of the chosen reply's log-likelihood per token.", at_least=0)] = 1.0,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """CGPO with its optimiser CODPO: constrained online DPO.

    y_w = argmax R among the replies that pass all judges;  y_l = argmin R among those that do not (of all, if none)
    L = -log sigmoid(beta (log pi/ref(y_w) - log pi/ref(y_l))) - nll log pi(y_w) / |y_w|,  mean over prompts (Eq. 14)

    A prompt without a reply that passes is skipped. The argmax is over the passing replies alone, also where all their
    rewards are negative. beta and nll are choices of ours. nll = 0 and judges that all pass: best-against-worst
    online DPO.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=chain(score.scoring(task, reward_model), score.satisfied(_names(judges))),
        select=select.satisfied_vs_violating(),
        credit=credit.ref(),
        learn=learn.Learn(learn.dpo_with_nll(beta, nll)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
    )


@register(
    papers.CGPO,
    family="imitation",
    summary="Imitate the best reply that passes every judge and stayed near, weighted by its calibrated reward.",
    when="As cgpo_crpg, where imitation is safer than a gradient against bad replies.",
    trial={"n": 4},
)
def cgpo_crraft(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    judges: Judges = "correct",
    kl_max: KLMax = 20.0,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """CGPO with its optimiser CRRAFT: calibrated, regularised, reward-ranked fine-tuning.

    y* = argmax R among the replies that pass all judges with log pi/ref(y) <= kl_max (a hard cut)
    L = -Rc(y*) log pi(y*),  Rc = sigmoid(R - R(y0)), mean over prompts (Eq. 18)

    Where nothing is left, the baseline y0 (one reply of the starting policy) is imitated if it passes (Rc = 1/2), else
    the prompt is skipped. kl_max and n are choices of ours.
    """
    return method(
        draw=draw.prompts(task),
        rollout=_with_baseline(n, temperature),
        score=_judged(task, reward_model, judges),
        select=select.best_satisfying(kl_max),
        credit=credit.calibrated_weight(),
        learn=learn.Learn(learn.pg_reinforce(norm=learn.seq_sum_mean, on=("policy", "ref"))),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
    )


SQUASHES = {"at_least": INEQUALITY, "equal": EQUALITY}


def read_thresholds(text: str) -> dict[str, float]:
    """ "math=0.9,brief=0.5" as a mapping; raises ValueError for what is none."""
    found: dict[str, float] = {}
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = piece.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            raise ValueError(
                f"thresholds: {piece!r} is no NAME=NUMBER; write the names of rewards: math=0.9,brief=0.5"
            ) from None
    if not found:
        raise ValueError("thresholds is empty; name at least one reward: math=0.9,brief=0.5")
    return found


@register(
    papers.CONSTRAINED_RLHF,
    family="policy",
    summary="PPO that stays near the start and brings each reward to its threshold, not beyond.",
    when="Several reward models are over-optimised beyond a point that you know, or found by a sweep.",
    example="burnish train constrained_rlhf --reward 'math,my.py:brief' --thresholds math=0.9,brief=0.5",
    trial={"n": 2, "updates": 1, "thresholds": "correct=0.5"},
)
def constrained_rlhf(
    task: draw.Source,
    *,
    thresholds: Annotated[str, Option("The threshold of each reward by name: math=0.9,brief=0.5.")] = "correct=0.9",
    constraint: Annotated[
        str, Option("Whether rewards must reach their thresholds or equal them.", choices=("at_least", "equal"))
    ] = "at_least",
    multiplier_lr: Annotated[float, Option("Step size of the multipliers.", at_least=0)] = 0.1,
    momentum: Annotated[float, Option("Momentum of the multipliers.", at_least=0, below=1)] = 0.1,
    n: opt.Replies = 1,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Constrained RLHF (mu-PPO for at_least, xi-PPO for equal): minimise the KL subject to E[r_i] >= theta_i, or =.

    A = (N - sum_i mu_i) A_KL + sum_i mu_i A_i, every A by GAE from its own value head, standardised before mixing
    mu_i = sigmoid(raw_i) (at_least; starts at 1/2) or tanh(raw_i) (equal; starts at 0: pure KL, may become negative)
    raw_i by SGD with momentum on mu_i (mean r_i - theta_i): a reward above its threshold loses weight
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef mean over tokens of sum over heads of max((V - R)^2, (V_clip - R)^2) / 2

    Rewards are those of --reward by their names, and `correct`. multiplier_lr 0: weighted-sum RLHF with fixed weights.
    theta_i are proxy points beyond which the true score falls; find them by runs with one reward each and an
    evaluation that you trust (the paper also searches them within a run by Nelder-Mead, which is left out).
    """
    theta = read_thresholds(thresholds)
    multipliers = SquashedMultipliers(theta, SQUASHES[constraint], multiplier_lr, momentum)
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        credit=chain(anchors(), credit.mixed_advantages(multipliers, gamma=gamma, lam=lam)),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_heads_clip(value_eps, coef=value_coef), updates=updates),
        models=roles(ref=frozen("policy"), critic=trained(outputs=len(theta) + 1, lr=critic_lr)),
    )


@register(
    papers.DYNAMIC_CONTROL_IDEATION,
    family="policy",
    summary="PPO on several rewards under control words, so that one model can be steered between them.",
    when="Qualities pull apart (novelty, feasibility, effectiveness) and their balance is to be chosen at inference.",
    example="burnish train dynamic_control --reward 'my.py:novelty,my.py:feasibility' --rewards novelty,feasibility",
    trial={"n": 2, "updates": 1, "rewards": "correct"},
)
def dynamic_control(
    task: draw.Source,
    *,
    rewards: Annotated[str, Option("Names of the rewards that are controlled, with commas: novelty,feasibility.")],
    levels: Annotated[str, Option("Levels of a control word, with commas; 0 is not mentioned.")] = "-1,0,1",
    n: opt.Replies = 4,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    kl: opt.KLPenalty = 0.05,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """PPO with one controller per reward. RECONSTRUCTED: the paper's abstract was read, not its equations.

    e_d drawn from the levels for each prompt and each reward d; the prompt begins with "novelty +1, feasibility -1"
    R = sum_d e_d r_d / sum_d |e_d|, the mean of the rewards where all e_d are 0; then `ppo` with R as the score

    The paper trains three reward models on review scores, steers by low-rank modules inside the model scaled by e_d,
    and predicts e_d for the next sentence with a small recurrent decoder. Here control is by words before the prompt,
    once for a reply; the modules and the decoder are left out. Levels of both signs are trained, so both can be asked
    for. levels 0 is PPO on the mean of the rewards, its prompts unchanged. At inference put the words before a prompt.
    """
    names = _names(rewards)
    if not names:
        raise ValueError("rewards is empty; name the rewards that are controlled: novelty,feasibility")
    try:
        known = [float(level) for level in levels.split(",")]
    except ValueError:
        raise ValueError(f"levels is {levels!r}; write numbers with commas: -1,0,1") from None
    return method(
        draw=draw.prompts(task),
        rollout=rollout.steered(rollout.sample(n, temperature=temperature), names, known),
        score=chain(score.verify(task), score.steered_reward(names)),
        credit=ppo_credit(kl, lam, score="steered"),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps, coef=value_coef), updates=updates),
        models=ppo_models(critic_lr),
    )
