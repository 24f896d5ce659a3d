"""Methods whose episodes branch: after an uncertain turn, or once at a drawn turn."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, Part, chain, everything, method, roles
from burnish.methods import opt, papers, register
from burnish.rollout.episodes import rewarded_while_played


@register(
    papers.ARPO,
    family="agents",
    summary="GRPO over episodes that branch where the policy is unsure after a tool's answer.",
    when="Tool calls or environment steps are expensive, and uncertainty rises after their answers.",
    example="burnish train arpo --task guess",
    trial={"task": "guess", "budget": 4, "fresh": 2, "alpha": 0.9},
)
def arpo(
    task: draw.Source,
    *,
    budget: Annotated[int, Option("Episodes of each task, branches included.", at_least=2)] = 16,
    fresh: Annotated[int, Option("Episodes that are started before any branches.", at_least=1)] = 8,
    alpha: Annotated[float, Option("The chance to branch where the entropy has not changed.")] = 0.5,
    beta: Annotated[float, Option("How much the chance to branch rises with the entropy.", at_least=0)] = 0.2,
    tau: Annotated[float | None, Option("Branch where the chance is above it; unset: branch with that chance.")] = None,
    window: Annotated[int, Option("Tokens of a reply whose entropy is summed.", at_least=1)] = 20,
    advantage: Annotated[
        str, Option("Of turns that branches share: soft (each branch's own) or hard (their mean).")
    ] = "soft",
    eps: opt.ClipRange = 0.2,
    updates: opt.Updates = 1,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Agentic reinforced policy optimisation.

    H_t = sum over the first `window` tokens of the reply after an answer of the environment of the entropy, / ln |V|
    branch with chance alpha + beta (H_t - H_0), at most once per episode and turn, until there are `budget` episodes
    A_i = (R_i - mean R) / std R over all episodes of the task;  L = mean over tokens of -min(rho A, clip(rho) A)

    A turn that k branches share is trained k times, with the advantage of each ("soft", the default), or with the mean
    of their advantages ("hard"). The two have the same gradient where nothing is clipped. budget = fresh is GRPO over
    episodes. `alpha`, `beta`, 16 and 8 are the released code's, whose rule is random; `tau` gives the paper's rule,
    alpha + beta (H_t - H_0) > tau. The paper takes the window after the answer, as here; the released code takes it
    before. Departures: the whole distribution's entropy, where the code has the ten likeliest tokens; H_0 is of the
    episode's own first reply. The paper's reward (format, F1, a bonus for two tools) belongs to the task.
    """
    if advantage not in _SHARED:
        raise ValueError(f"advantage is {advantage!r}; choose one of {', '.join(_SHARED)}")
    paid = rewarded_while_played(task)
    rule = rollout.by_chance(alpha, beta) if tau is None else rollout.above(alpha, beta, tau)
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.branching(budget, fresh, rule, window=window, temperature=temperature, paid=paid),
        score=everything if paid else score.verify(task),
        credit=chain(
            credit.group_relative(),
            _SHARED[advantage],
            credit.behaviour(),
            credit.claim_copies("pg", "policy"),
        ),
        learn=learn.Learn(learn.pg_clip(eps, on=learn.CLAIMED), updates=updates),
        models=roles(),
    )


_SHARED: dict[str, Part] = {"soft": everything, "hard": credit.shared_mean()}


@register(
    papers.REFUEL,
    family="agents",
    summary="Regress the difference of two futures on the log-ratios of the turns at which they part.",
    when="Dialogues of several turns with a reward at the end, and neither a critic nor a clip is wanted.",
    example="burnish train refuel --task guess",
    trial={"task": "guess", "longest": 3},
)
def refuel(
    task: draw.Source,
    *,
    longest: Annotated[int, Option("The most turns of an episode; the number is drawn.", at_least=1)] = 5,
    shortest: Annotated[int, Option("The fewest turns of an episode.", at_least=1)] = 1,
    eta: Annotated[float, Option("The step size.", above=0)] = 1.0,
    updates: opt.Updates = 1,
    temperature: opt.Temperature = 0.8,
    reward_model: opt.RewardModel = None,
) -> Method:
    """REFUEL: REBEL over turns.

    H uniform in shortest .. longest, h uniform among the turns; from the state before turn h two replies y, y' ~ pi_t
    are each continued by pi_t to turn H, with rewards R, R' of the whole episodes
    L = mean over pairs of ( (1/eta) [log pi(y)/pi_t(y) - log pi(y')/pi_t(y')] - (R - R') )^2

    Only turn h is trained; log-probs are whole-turn sums at the sampling temperature. longest = 1 is REBEL without its
    KL. The released code minimises eta^2 times this with eta = 1000 and a learning rate of 3e-7, which differs by the
    scale of the loss. With one update for each batch, pi is pi_t where the gradient is taken, the log-ratios are 0, and
    the learning rate alone is the step size; eta acts from the second update on. Episodes that end before H draw h
    among the turns that they have. The environment is the simulated user; the paper's reward is a reward model's at the
    end (--reward-model), else the environment pays. A game that pays only when it is over should not be cut: there set
    shortest = longest = its turns.
    """
    by_model = (score.reward_model(name="judged"),) if reward_model else ()
    paid = "judged" if reward_model else "reward"
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.second_tries(longest, shortest, temperature=temperature),
        score=chain(*by_model) if by_model else everything,
        select=select.every_contrast(paid),
        credit=chain(credit.behaviour(), credit.reward_where_they_part(paid), credit.claim_where_they_part("pair")),
        learn=learn.Learn(learn.regress_rewards(1 / eta, anchor="old", on=learn.CLAIMED), updates=updates),
        models=roles(**score.rm_role(reward_model)),
        lr_share=0.1,
    )
