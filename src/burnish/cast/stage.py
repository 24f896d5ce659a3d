"""Roles become members: weights are loaded, optimisers are made, followers follow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from burnish.cast.apart.engine import Apart
from burnish.cast.forward import packable
from burnish.cast.load import context_length, load_chat, load_model, stored_outputs
from burnish.cast.lora import Lora, add_lora
from burnish.cast.member import Member
from burnish.cast.models import resolve
from burnish.cast.native.laid import steady
from burnish.cast.native.llama import Llama
from burnish.cast.optimiser import Optimiser
from burnish.cast.ranks import Ranks
from burnish.cast.roles import Role
from burnish.step import Settings


@dataclass
class Cast:
    """The members by name.

    before_move: called before any weight changes, by whoever changes it; a checkpoint may still be reading them
    ahead: the engine in another process that samples for the trained members ahead of learning (cast/behind.py)
    """

    members: dict[str, Member]
    ranks: Ranks = field(default_factory=Ranks)
    before_move: Callable[[], None] = lambda: None
    ahead: Apart | None = None

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def trained(self) -> list[Member]:
        return [member for member in self if member.trainer is not None]

    def end(self) -> None:
        """End the processes of its engines."""
        for member in self:
            member.end()


def build(
    roles: Mapping[str, Role],
    base: Path,
    settings: Settings,
    *,
    lora: Lora | None = None,
    device: str = "auto",
    weights: Path | None = None,
) -> Cast:
    """Load every member. `base` is the model of the run; LoRA adapts the trained language models.

    weights: a checkpoint, whose directories (one a member) take the place of the weights that a run starts with.
    """
    where = torch.device(
        "cuda" if device == "auto" and torch.cuda.is_available() else "cpu" if device == "auto" else device
    )
    apart = None
    if settings.engine == "process" and where.type != "cpu":
        raise ValueError(
            "--engine process samples on a CPU, but the run is on a GPU; use --engine local, or --device cpu"
        )
    if settings.engine != "local":
        apart = Apart.of(settings.engine, settings.vllm_python, settings.on_mismatch, settings.kv_gib)
    members: dict[str, Member] = {}
    for name, role in roles.items():
        start = base if role.source == "base" else resolve(role.source)
        stored = weights / name if weights is not None and role.liveness != "frozen" else None
        adapted = lora if role.liveness == "trained" and not role.outputs else None
        path = stored if stored is not None and adapted is None else start
        if role.liveness == "frozen" and role.outputs and not stored_outputs(path):
            raise ValueError(
                f"the model for {name!r} in {path} gives no scores: it has no scoring head; "
                "pass a directory that `burnish train reward_model` saved"
            )
        model = load_model(path, role.outputs, where, native=adapted is None)  # peft knows transformers' models
        if role.mixed_with is not None:
            _average(model, load_model(resolve(role.mixed_with), role.outputs, where, adapted is None), role.share)
        trainer = None
        if role.liveness == "trained":
            model = add_lora(model, adapted, stored) if adapted else model
            if settings.checkpoint_activations:
                model.gradient_checkpointing_enable()  # type: ignore[operator]
                model.recomputes = True  # type: ignore[assignment]  # to ask transformers walks through all modules
                model.train()
            trainer = Optimiser(model, settings, role.lr)
        else:
            model.requires_grad_(False)
        packed = settings.packed and packable(model)
        room = int(settings.kv_gib * 2**30) if settings.kv_gib is not None else None
        sampled = apart if role.speaks() and not settings.lag else None
        members[name] = Member(
            name, role, model, load_chat(path), context_length(model), trainer, packed, kv_budget=room, exact=settings.exact,
            apart=sampled,
        )  # fmt: skip
        if settings.exact and role.speaks():
            _require_exact(members[name], settings)
    return Cast(members, ahead=apart if settings.lag else None)


def _require_exact(member: Member, settings: Settings) -> None:
    """Refuse a run that asks for the same bits where they cannot be had."""
    model, on_gpu = member.model, member.device.type == "cuda"
    ours = getattr(member.working.copy, "fused", None) is not None if on_gpu else isinstance(model, Llama)
    if not ours:
        raise ValueError(
            "--exact needs a plain Llama, Qwen2 or Qwen3 on a CPU, or on a GPU a model with layers like Llama's (Llama, Mistral, "
            "Qwen2), all of whose weights are trained: only there do sampler and trainer share every product; leave it out, and "
            "mismatch/logp says how far they are apart"
        )
    if settings.engine != "local" or not settings.packed:
        raise ValueError("--exact needs --engine local and --packed; leave it out, or change that")
    if not (on_gpu or model.model.kernels is not None or steady()):  # type: ignore[union-attr]
        raise ValueError(
            "--exact needs burnish's own kernels here, because torch's products depend on how many rows there are: a C compiler "
            "(`burnish check` says whether there is one), and heads whose width is a multiple of 32; leave it out, and "
            "mismatch/logp says how far sampler and trainer are apart"
        )


@torch.no_grad()
def _average(model: nn.Module, other: nn.Module, share: float) -> None:
    """w <- (1 - share) w + share w_other, in place."""
    theirs = dict(other.named_parameters())
    for name, p in model.named_parameters():
        if name not in theirs or theirs[name].shape != p.shape:
            raise ValueError(
                f"two models cannot be averaged: {name!r} is not in both, or not of one shape; take two of one kind"
            )
        p.lerp_(theirs[name], share)
