"""Load a model for inference outside a run, for `eval` and `chat`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from burnish.models.template import ASSUMED

if TYPE_CHECKING:
    from rich.console import Console

    from burnish.core.roles import Role
    from burnish.core.step import Settings
    from burnish.models.build import Models
    from burnish.models.chat import Chat
    from burnish.models.template import Style


def is_reward_model(model: str) -> bool:
    """Whether a model scores replies instead of giving them."""
    from burnish.models.known_models import resolve
    from burnish.models.load import stored_outputs

    return bool(stored_outputs(resolve(model)))


def load_policy(
    model: str,
    settings: Settings,
    device: str,
    style: Style | None = None,
    *,
    reward_model: str | None = None,
    reference: str | None = None,
    more: Mapping[str, Role] | None = None,
) -> Models:
    """Load a model as the frozen policy. Raises ValueError for a reward model, which cannot generate.

    reward_model, reference: models to load beside it, as "rm" and "ref"; more: others by name
    """
    from burnish.core.roles import Role, frozen
    from burnish.models.build import build
    from burnish.models.known_models import resolve
    from burnish.models.load import stored_outputs
    from burnish.run.lengths import require_room

    path = resolve(model)
    if stored_outputs(path):
        raise ValueError(
            f"{model} is a reward model: it scores replies but cannot generate them; "
            f"use it as burnish train grpo --reward-model {model}"
        )
    others = {"rm": frozen(reward_model, outputs=1)} if reward_model else {}
    others |= {"ref": frozen(reference)} if reference else {}
    others |= more or {}
    models = build({"policy": Role("frozen", "base"), **others}, path, settings, device=device, style=style)
    require_room([models["policy"]], settings, samples=False)
    for warning in models["policy"].warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return models


def print_assumed_template(chat: Chat, console: Console) -> None:
    """Print which chat template is assumed for a model that has none."""
    if chat.assumed:
        console.print(f"chat template: {ASSUMED}", style="dim", soft_wrap=True)
