"""Who gets new weights: trained models count a version up, engines are sent a copy, EMA and snapshot models follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from burnish.core.step import Notes
from burnish.core.types import Clock
from burnish.engine.subprocess.probe import NAME as PROBE
from burnish.models.layer_shards import held

if TYPE_CHECKING:
    from burnish.models.build import Models


@torch.no_grad()
def publish(models: Models, trained: tuple[str, ...], clock: Clock, notes: Notes) -> None:
    """After the models in `trained` moved: versions, exponential moving averages, snapshots, engines.

    The local engine samples with the trained weights themselves, so for it there is nothing to send. An engine that
    holds a copy gets the new weights, and proves by the log-probs of a probe that it runs them.
    """
    models.before_move()
    for name in trained:
        models[name].version += 1
        models[name].fresh = True
        gap = models[name].send()
        if gap is not None:
            notes.add(PROBE, gap.mean)
    for model in sorted(
        models, key=lambda one: -len(_chain(models, one.name))
    ):  # a copy of a copy before the copy itself
        if _chain(models, model.name)[-1] in trained and model.role.due(clock):
            followed = model.role.follows
            assert followed is not None
            _mix(model.module, models[followed].module, model.role.decay if model.role.liveness == "ema" else 0.0)
            model.weights_moved()
            model.version += 1


def _chain(models: Models, name: str) -> list[str]:
    """The models that a follower copies, directly and through other followers; the last one follows none."""
    role = models[name].role
    if role.liveness not in ("ema", "snapshot"):
        return [""]
    assert role.follows is not None
    if models[role.follows].role.liveness in ("ema", "snapshot"):
        return [role.follows, *_chain(models, role.follows)]
    return [role.follows]


def _mix(module: torch.nn.Module, source_module: torch.nn.Module, keep: float) -> None:
    """w <- keep w + (1 - keep) w_theirs, parameter by parameter."""
    source = dict(source_module.named_parameters())
    for name, p in module.named_parameters():
        if name not in source:
            raise ValueError(
                f"a follower has the parameter {name!r} and the model that it follows has not: both need the same "
                "weights and the same adapters"
            )
        if p is source[name]:  # frozen weights under LoRA, which both have in common
            continue
        held(p).lerp_(held(source[name]).to(p.dtype), 1 - keep)
