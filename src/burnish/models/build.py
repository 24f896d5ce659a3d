"""Load the models of a run: weights, optimisers, engines, by the roles that a method declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from burnish.core.roles import Role
from burnish.core.step import Notes, Settings
from burnish.core.types import Clock
from burnish.engine.subprocess.engine import EngineSpec
from burnish.forward.accelerate import kernels
from burnish.forward.denoise import HowDrawn, denoising_of
from burnish.forward.masked import Filling
from burnish.forward.module import vocabulary_size
from burnish.models.context_ranks import context_group, require_context
from burnish.models.known_models import resolve
from burnish.models.layer_shards import LayerShards, mesh_of
from burnish.models.load import context_length, load_chat
from burnish.models.loader import Loader
from burnish.models.lora import Lora
from burnish.models.model import Model
from burnish.models.only import train_only
from burnish.models.oom_backoff import TokenRoom
from burnish.models.optimiser import Optimiser
from burnish.models.precision import AUTO, precision_of
from burnish.models.publish import publish
from burnish.models.ranks import Ranks, here
from burnish.models.scored_end import settle_end
from burnish.models.template import Style
from burnish.models.turns import Turns

PROCESS_SAMPLER = Path(__file__).with_name("process_sampler.py")  # burnish's own engine, in another process


@dataclass
class Models:
    """The models by name.

    before_move: called before any weight changes; a checkpoint may still be reading the weights
    ahead: the engine in another process that samples for the trained models ahead of learning (models/snapshot.py)
    token_room: how many tokens fit into memory at once
    """

    by_name: dict[str, Model]
    ranks: Ranks = field(default_factory=Ranks)
    before_move: Callable[[], None] = lambda: None
    ahead: EngineSpec | None = None
    token_room: TokenRoom = field(default_factory=TokenRoom)

    def __getitem__(self, name: str) -> Model:
        return self.by_name[name]

    def __iter__(self) -> Iterator[Model]:
        return iter(self.by_name.values())

    def trained(self) -> list[Model]:
        return [model for model in self if model.trainer is not None]

    def publish(self, trained: tuple[str, ...], clock: Clock, notes: Notes) -> None:
        """Give the new weights of the trained models to engines and to the models that follow them."""
        publish(self, trained, clock, notes)

    def end(self) -> None:
        """End the processes of its engines."""
        for model in self:
            model.end()


def device_named(device: str) -> torch.device:
    """The device of a run: cpu, cuda, or with auto a GPU where there is one. ValueError for any other."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cpu":
        return torch.device(device)
    name, _, number = device.partition(":")
    if name == "gpu":
        raise ValueError("--device is 'gpu'; say cuda (or auto, which takes a GPU where there is one)")
    if name == "mps":
        raise ValueError(
            "--device is 'mps', Apple's GPU, which burnish does not compute on: it computes on CPUs and CUDA GPUs; "
            "use --device cpu"
        )
    if name != "cuda" or (number and not number.isdigit()):
        raise ValueError(f"--device is {device!r}; it is cpu, cuda, cuda:NUMBER or auto")
    if not torch.cuda.is_available():
        raise ValueError(
            f"--device is {device!r}, but torch sees no GPU; use --device cpu, or install a CUDA build of torch"
        )
    if number and int(number) >= torch.cuda.device_count():
        raise ValueError(f"--device is {device!r}, but there are {torch.cuda.device_count()} GPUs, counted from 0")
    return torch.device(device)


def _check_device(where: torch.device, settings: Settings) -> None:
    """Raise ValueError for what the device cannot do."""
    if where.type == "cuda" and kernels() is None:
        raise ValueError(
            "a GPU needs the package burnish.kernels, which is not installed; reinstall burnish, or pass --device cpu"
        )
    if where.type == "cpu" and settings.checkpoint_activations == "offload":
        raise ValueError(
            "--checkpoint-activations offload moves activations from a GPU to the host, but the run is on the CPU; use "
            "--checkpoint-activations recompute"
        )
    if settings.context_ranks > 1 and where.type == "cuda" and settings.shard != "full":
        raise ValueError("--context-ranks needs --shard full on a GPU; add it")


def build(
    roles: Mapping[str, Role],
    base: Path,
    settings: Settings,
    *,
    lora: Lora | None = None,
    device: str = "auto",
    weights: Path | None = None,
    style: Style | None = None,
    dtype: str = AUTO,
) -> Models:
    """Load every model. `base` is the model of the run; LoRA adapts the trained language models.

    weights: a checkpoint, whose directories (one a model) take the place of the weights that a run starts with.
    style: the chat template of all models; by default each has its own.
    dtype: the number format in which trained models are saved at the end; by default that of the model they start from.
    """
    where = device_named(device)
    _check_device(where, settings)
    engine_spec = _engine_spec(settings, where)
    by_name: dict[str, Model] = {}
    trained_in = torch.float32 if settings.master_weights == "float32" else torch.bfloat16
    token_room, ranks = TokenRoom(settings.token_budget), here()
    mesh = mesh_of(ranks, where, settings.shard_ranks) if settings.shard == "full" and ranks.connected else None
    loader, turns = Loader(where, lora, trained_in, mesh, settings.context_ranks == 1), Turns(ranks.lowest)
    if mesh is not None:
        ranks.at_end(turns.leave)
    group = context_group(ranks, settings.context_ranks)
    for name, role in roles.items():
        start = base if role.source == "base" else resolve(role.source)
        stored = weights / name if weights is not None and role.liveness != "frozen" else None
        path = stored if stored is not None and not loader.adapts(role) else start
        module = loader.module(name, role, path, stored)
        trainer = None
        if role.liveness == "trained":
            _prepare(module, settings, role)
            trainer = Optimiser(module, settings, role.lr, ranks)
            if trainer.states is not None and where.type == "cuda" and trained_in == torch.float32:
                trainer.states.keep_masters()
        else:
            module.requires_grad_(False)
        room = int(settings.kv_gib * 2**30) if settings.kv_gib is not None else None
        saves = settings.checkpoint_activations if trainer is not None else "off"
        sampled = engine_spec if role.speaks() and not settings.lag else None
        chat = load_chat(path, style)
        chat.fit(vocabulary_size(module))
        if role.outputs:
            settle_end(module, chat, role, path, style)
        if group is not None:
            require_context(module, settings.context_ranks)
        by_name[name] = Model(
            name,
            role,
            module,
            chat,
            context_length(module),
            trainer,
            settings.packed,
            kv_budget=room,
            exact=settings.exact,
            engine_spec=sampled,
            activations=saves,
            precision=precision_of(start, dtype),
            token_room=token_room,
            ranks=ranks,
            context_group=group,
            filling=Filling(settings.view, settings.unmask_per_step, settings.unmask_places, settings.unmask_block),
            drawing=HowDrawn(
                settings.denoise_steps, settings.sampler, settings.denoise_noise, settings.guidance, settings.reduce
            ),
            shards=LayerShards(module, ranks, turns) if mesh is not None else None,
        )
        if settings.exact and role.speaks():
            _require_exact(by_name[name], settings)
    return Models(by_name, ranks, ahead=engine_spec if settings.lag else None, token_room=token_room)


def _engine_spec(settings: Settings, where: torch.device) -> EngineSpec | None:
    """The engine that samples in a process of its own, if any."""
    if settings.engine == "local":
        return None
    if settings.engine == "process" and where.type != "cpu":
        raise ValueError(
            "--engine process samples on a CPU, but the run is on a GPU; use --engine local, or --device cpu"
        )
    return EngineSpec.of(settings.engine, settings.vllm_python, settings.on_mismatch, settings.kv_gib, PROCESS_SAMPLER)


def _prepare(module: nn.Module, settings: Settings, role: Role) -> None:
    """What a module that is trained needs: parts that stay as they are, and inputs of layers alone until the backward
    pass.
    """
    if settings.only is not None:
        train_only(module, settings.only)
    elif role.only and denoising_of(module) is not None:
        train_only(module, role.only)
    if settings.checkpoint_activations != "recompute":
        return
    enable: Callable[[], None] = getattr(module, "gradient_checkpointing_enable")  # noqa: B009 - of any model
    enable()
    module.train()


def _require_exact(model: Model, settings: Settings) -> None:
    """Refuse a run that asks for the same bits where they cannot be had."""
    runner = model.working.runner
    reason = runner.why_not_exact()
    if reason is not None and not runner.accelerated:
        raise ValueError(reason)
    if settings.engine != "local" or not settings.packed:
        raise ValueError("--exact needs --engine local and --packed; leave it out, or change that")
    if reason is not None:
        raise ValueError(reason)
