"""Trust Region Policy Optimization (arXiv 1502.05477)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

TRPO = Paper("trpo", "1502.05477", "Trust Region Policy Optimization")


@register(
    TRPO,
    family="policy",
    summary="A natural-gradient step with a hard limit on the KL, found by conjugate gradient and line search.",
    when="You need each step's change of the policy bounded for certain, and can pay for conjugate gradients.",
    trial={"n": 4, "iterations": 2},
)
def trpo(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    delta: Annotated[float, Option("The largest KL of a step.", above=0)] = 0.01,
    damping: Annotated[float, Option("Added to the Fisher matrix's diagonal.", at_least=0)] = 0.1,
    iterations: Annotated[int, Option("Iterations of conjugate gradient.", at_least=1)] = 10,
    backtrack: Annotated[float, Option("Factor that shortens a step that goes too far.", above=0, below=1)] = 0.8,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Trust region policy optimisation, with group advantages in place of a critic.

    maximise mean over tokens of rho A  subject to  mean KL(pi_old || pi) <= delta
    rho = pi/pi_old,  A = (r - mean) / std
    x = (F + damping I)^-1 g by conjugate gradient;  step sqrt(2 delta / x^T F x) x, shortened until the bound holds

    The KL is the k2 estimate at sampled tokens, whose curvature at pi_old is the Fisher matrix. The learning rate
    plays no part. Departures: the paper's returns come from a value function or from whole episodes; here they are
    group advantages.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        credit=chain(credit.group_relative(), credit.behaviour()),
        learn=learn.Learn(
            learn.pg_clip(float("inf")),
            learn.kl_k2(coef=1.0, anchor="old", name="trust"),
            move=learn.trust_region("trust", delta=delta, damping=damping, iterations=iterations, backtrack=backtrack),
        ),
        models=roles(**score.rm_role(reward_model)),
    )
