"""A model to ask, outside any run: for `eval` and `chat`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from burnish.cast.stage import Cast
    from burnish.step import Settings


def alone(model: str, settings: Settings, device: str) -> Cast:
    """A cast of one frozen policy. A model that scores replies and cannot write any is refused."""
    from burnish.cast.load import stored_outputs
    from burnish.cast.models import resolve
    from burnish.cast.roles import Role
    from burnish.cast.stage import build

    path = resolve(model)
    if stored_outputs(path):
        raise ValueError(
            f"{model} is a reward model: it scores replies but writes none; "
            f"use it as burnish train grpo --reward-model {model}"
        )
    return build({"policy": Role("frozen", "base")}, path, settings, device=device)
