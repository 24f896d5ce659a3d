"""The first rollout of a fresh process: what a user waits for after `import torch`.

Nothing but torch may be imported before the clock starts; everything else is part of what is measured.
"""

from __future__ import annotations

from typing import Any

import torch
from worker import Turns

TORCH = torch.__version__


def burnish(work: dict[str, Any], turns: Turns) -> None:
    """Import burnish, load the model, build GRPO, sample the first batch."""
    if not turns.begin():
        return
    from burnish.core.step import Step
    from burnish.core.types import Clock
    from sides import burnish_side
    from sides.problems import source_of

    settings = burnish_side.settings_of(work)
    phase = burnish_side.grpo(source_of(work), work["group"]).phases[0]
    step = Step(Clock(0, 1), burnish_side.cast_of(work, settings), settings)
    groups = phase.rollout.call(phase.draw.call(step), step)
    traces = [trace for group in groups for trace in group.traces]
    turns.end(samples=len(traces), sampled_tokens=sum(len(trace.turns[-1]) for trace in traces))


def trl(work: dict[str, Any], turns: Turns) -> None:
    """Import TRL, load the model, build the trainer, sample the first batch: over when the rewards are asked for."""
    if not turns.begin():
        return
    from sides import trl_side

    class Enough(Exception):
        """The first rollout is done."""

    def stop(counted: dict[str, Any]) -> None:
        turns.end(samples=counted["samples"], sampled_tokens=counted["sampled_tokens"])
        raise Enough

    try:
        trl_side.trainer_of(work, stop, {}).train()
    except Enough:
        return
