"""EVOLvE: Evaluating and Optimizing LLMs For Exploration (arXiv 2410.06238)."""

from __future__ import annotations

from burnish import draw, learn, rollout, select
from burnish.method import Method, method, roles
from burnish.methods import register
from burnish.papers import Paper

BANDITBENCH = Paper("banditbench", "2410.06238", "EVOLvE: Evaluating and Optimizing LLMs For Exploration")

_RECORDED = {"task": "guess"}


@register(
    BANDITBENCH,
    family="agents",
    summary="Imitate the episodes of the task's best algorithm: oracle behaviour fine-tuning.",
    when="A known algorithm acts optimally (UCB in a bandit, binary search), and a model should learn to act like it.",
    example="burnish train oracle_bc --task bandit",
    trial=_RECORDED,
)
def oracle_bc(task: draw.Source) -> Method:
    """Algorithm distillation by fine-tuning (oracle behaviour fine-tuning of EVOLvE).

    L = -(1 / N) sum over the N tokens of the algorithm's actions of log pi, the environment's tokens left out

    The task says what its best algorithm does: UCB or LinUCB in `bandit`, binary search in `guess`. On the same
    episodes it is filtered_bc with share = 1, and sft on their messages.
    """
    return method(
        draw=draw.episodes(task, "oracle"),
        rollout=rollout.trajectories("oracle"),
        select=select.watched(select.Returns("returns")),
        learn=learn.Learn(learn.imitate(on="demo")),
        models=roles(),
    )
