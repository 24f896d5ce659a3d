"""The task's own verdict as a reward among others."""

from __future__ import annotations

from burnish.core.method import Group, Step, Trace, per_trace
from burnish.rewards import MEASURED, Scorer, register_reward
from burnish.tasks.source import Source


@register_reward(
    summary="1 where the task's own verifier finds a reply correct, else 0.",
    when="You want the success reward beside others: --reward replaces the task's own reward.",
    example="burnish train ppo --reward 'success,prm_delta(runs/DIR/model)*0.5'",
)
def success(task: Source) -> Scorer:
    """r(y) = 1 if the verifier of the task says that y is correct, else 0."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.scores[f"{MEASURED}success"] = trace.scores["correct"]

    reads, writes = frozenset({"score:reward", "tokens:policy"}), frozenset({f"score:{MEASURED}success"})
    return Scorer(part=per_trace(write, name="success", reads=reads, writes=writes))
