"""Whether a run has learned anything at all: judged at its end, from the metrics of all its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from burnish.core.method import Method
from burnish.run.reward_failures import replies_of

History = Sequence[Mapping[str, Any]]
SAME = (
    "nothing was learned: in all {} steps the gradient was 0, because all replies to a prompt scored the same; take an "
    "easier task, a larger --n or a higher --temperature"
)


def trains(method: Method) -> bool:
    """Whether weights move by a gradient: nothing is trained by choosing replies, and a search has none."""
    return any(phase.learn.trainees for phase in method.phases) and not any(
        getattr(phase.learn, "search", None) for phase in method.phases
    )


def require_learned(history: History, dropped: bool, why: str) -> None:
    """Raise ValueError if no step of a run changed the model for a reason: there is nothing to save.

    dropped  replies without a reward were taken out, not scored 0
    why      why the first reply without a reward had none, in the last step
    """
    reason = _reason(history, dropped, why)
    if reason:
        raise ValueError(f"the run has learned nothing, so no model is saved: {reason}")


def scored_the_same(history: History) -> str:
    """The warning that no step had a gradient, where that is for want of differences between replies; else empty."""
    return SAME.format(len(history)) if history and not _moved(history) and _scored(history) else ""


def _reason(history: History, dropped: bool, why: str) -> str:
    if not history:
        return ""
    n = len(history)
    if all(_without_reward(metrics, dropped) for metrics in history):
        return f"no reply of its {n} steps got a reward ({why}); fix the reward or its time limit"
    if _moved(history):
        return ""
    if all(metrics.get("refused") for metrics in history):
        return f"every update of its {n} steps was refused, because a reward, a loss or a gradient was not finite"
    if any(metrics.get("refused") for metrics in history):
        return f"of its {n} steps some updates were refused as not finite, and the others had no gradient"
    if _scored(history):
        return ""
    if any(_is_norm(name) for metrics in history for name in metrics):
        return (
            f"the gradient was 0 in all {n} steps: no row has what the loss compares, or all of it is the same; check "
            "the columns of the data and the coefficients"
        )
    if any(metrics.get("traces") for metrics in history):
        return f"in all {n} steps no term of the loss had anything to train on; check the columns of the data"
    return ""


def _without_reward(metrics: Mapping[str, Any], dropped: bool) -> bool:
    failed = float(metrics.get("reward_failures") or 0)
    replies = replies_of(dict(metrics)) + (failed if dropped else 0.0)
    return failed > 0 and failed > replies - 0.5


def _moved(history: History) -> bool:
    """Whether any update had a gradient. One that is not finite was refused, and has no norm."""
    return any((value or 0) > 0 for metrics in history for name, value in metrics.items() if _is_norm(name))


def _is_norm(name: str) -> bool:
    return name == "grad_norm" or name.endswith("/grad_norm")


def _scored(history: History) -> bool:
    """Whether replies were scored in some step: then equal scores explain that there was no gradient."""
    return any(metrics.get("reward") is not None for metrics in history)
