"""The last room: who gets the new weights. Trained members count a version up; followers follow."""

from __future__ import annotations

import torch

from burnish.cast.stage import Cast
from burnish.nouns import Clock


@torch.no_grad()
def publish(cast: Cast, trained: tuple[str, ...], clock: Clock) -> None:
    """After the members in `trained` moved: versions, exponential moving averages, snapshots.

    The local engine samples with the trained weights themselves, so for it there is nothing to send.
    """
    cast.before_move()
    for name in trained:
        cast[name].version += 1
        cast[name].fresh = True
    for member in cast:
        followed = member.role.follows
        if followed not in trained:
            continue
        if member.role.liveness == "ema":
            _mix(member.model, cast[followed].model, member.role.decay)
            member.version += 1
        elif member.role.liveness == "snapshot" and member.role.due(clock):
            _mix(member.model, cast[followed].model, 0.0)
            member.version += 1


def _mix(mine: torch.nn.Module, theirs: torch.nn.Module, keep: float) -> None:
    """w <- keep w + (1 - keep) w_theirs, parameter by parameter."""
    source = dict(theirs.named_parameters())
    for name, p in mine.named_parameters():
        if name not in source:
            raise ValueError(
                f"a follower has the parameter {name!r} and the member it follows has not: followers need full fine-tuning, not LoRA"
            )
        p.lerp_(source[name].to(p.dtype), 1 - keep)
