"""Checks of a run with several ranks or on Ray, before anything is started."""

from __future__ import annotations

import importlib.util
import math
import os
from typing import TYPE_CHECKING

from burnish.compose.played_on import waiting_in
from burnish.core.method import Method, Phase
from burnish.core.schedules import at
from burnish.core.types import Clock
from burnish.models.ranks import here

if TYPE_CHECKING:
    from burnish.config.options import Options

UNIT = 4  # tasks in a unit of work on Ray, by default
RAY_ONLY = (
    "samplers",
    "graders",
    "spares",
    "unit",
    "order",
    "ray_address",
    "replacements",
    "recover_within",
    "call_timeout",
    "threads",
)


def check_placing(options: Options, method: Method) -> None:
    """Raise ValueError for what several ranks or a run on Ray cannot do, and for Ray options in a run without Ray."""
    several = options.ranks != 1 or here().world > 1
    if here().world > 1 or options.ranks:
        check_context(options, max(here().world, options.ranks))
        check_shard_ranks(options, max(here().world, options.ranks))
    if several:
        _check_ranks(options)
        _check_full(options)
    elif options.shard == "optimiser":
        raise ValueError(
            "--shard optimiser divides AdamW's moments among ranks, and there is one; add --ranks 2, or leave it out"
        )
    if options.shard == "states" and options.lora is not None:
        raise ValueError(
            "--shard states divides what belongs to trained weights, and with --lora these are the small adapters; use "
            "--shard optimiser, or leave it out"
        )
    if options.on == "here":
        for name in RAY_ONLY:
            if getattr(options, name) != getattr(type(options), name):
                flag = f"--{name.replace('_', '-')}"
                raise ValueError(f"{flag} is for runs on Ray, and this one is not; add --on ray, or leave {flag} out")
        return
    if options.reward_workers:
        raise ValueError(
            "--reward-workers scores while sampling, as the graders of --on ray do already; use --graders instead"
        )
    if options.device not in ("auto", "cpu"):
        raise ValueError(
            "--on ray has been built and tested on CPUs only so far; leave out --device, or leave out --on ray"
        )
    _check_state(method, options.steps)
    if options.order == "free":
        _check_free(method, options.steps)
    if importlib.util.find_spec("ray") is None:
        raise ValueError("--on ray needs the package ray, which is not installed: pip install 'burnish[ray]'")


def check_shard_ranks(options: Options, world: int) -> None:
    """Raise ValueError where --shard-ranks does not divide the ranks, or nothing is divided."""
    parts = options.shard_ranks
    if parts and options.shard != "full":
        raise ValueError(
            f"--shard-ranks is for --shard full, but --shard is {options.shard}; add --shard full, or leave it out"
        )
    if parts and world > 1 and world % parts:
        raise ValueError(
            f"--shard-ranks is {parts}, which does not divide the {world} ranks of this run: groups of {parts} ranks "
            "hold the layers; use --ranks with a multiple of it, or --shard-ranks 0"
        )


def check_context(options: Options, world: int) -> None:
    """Raise ValueError where --context-ranks does not divide the ranks, or meets what it does not work with."""
    width = options.context_ranks
    if width == 1:
        return
    if world % width:
        raise ValueError(
            f"--context-ranks is {width}, which does not divide the {world} ranks of this run: groups of {width} ranks "
            "divide the tokens of a pass; use --ranks with a multiple of it"
        )
    reasons = {
        "--no-packed": not options.packed and "the tokens of a pack are divided",
        "--exact": options.exact and "layers run in transformers' own modules",
        "--lora-dropout": options.lora_dropout and "each rank would drop other inputs",
        "--checkpoint-activations offload": options.checkpoint_activations == "offload"
        and "use --checkpoint-activations recompute",
    }
    for flag, why in reasons.items():
        if why:
            raise ValueError(f"{flag} does not work with --context-ranks: {why}")


def _check_full(options: Options) -> None:
    """Raise ValueError for what cannot be divided with the weights (--shard full)."""
    if options.shard != "full":
        return
    reasons = {
        f"--master-weights {options.master_weights}": options.master_weights != "float32"
        and "fp32 weights are divided, too, and take 4 bytes a weight by the number of ranks",
        f"--optimiser {options.optimiser}": options.optimiser == "adamw8bit"
        and "its blocks do not end where a rank's rows do; adamw16bit works",
        "--checkpoint-activations offload": options.checkpoint_activations == "offload"
        and "gathered weights would be moved to the host as well; use --checkpoint-activations recompute",
        "--merge": options.merge
        and "no rank holds the whole weights; leave it out, and burnish export RUN --to merged",
        f"--quantization {options.quantization}": options.quantization is not None
        and "weights in four bits are not divided; leave out --shard",
        "--exact": options.exact and "layers run in transformers' own modules",
        f"--lag {options.lag}": options.lag
        and "it samples from a whole copy of earlier weights, and no rank has one; --shard states works",
    }
    for flag, why in reasons.items():
        if why:
            raise ValueError(f"{flag} does not work with --shard full: {why}")


def _check_ranks(options: Options) -> None:
    if options.on == "ray":
        raise ValueError(
            "--on ray does not work with several --ranks: it has samplers of its own (--samplers); leave out one of "
            "the two"
        )


def threads_for(options: Options) -> int:
    """The default threads per actor: the cores of this machine divided by the number of working actors."""
    return max(1, (os.cpu_count() or 1) // (options.samplers + options.graders + 1))


def unit_for(options: Options, method: Method) -> int:
    """The default number of tasks in a unit: of episodes, which wait for environments, all that a sampler gets."""
    plays = any(phase.rollout.playing is not None for phase in first_phases(method, options.steps))
    return max(UNIT, math.ceil(options.prompts / options.samplers)) if plays else UNIT


def first_phases(method: Method, steps: int) -> list[Phase]:
    """The phases that are the first of some step: the samplers run these."""
    first: dict[str, Phase] = {}
    for number in range(steps):
        phase = next((p for p in method.phases if round(at(p.times, Clock(number, steps))) > 0), None)
        if phase is not None:
            first[phase.name] = phase
    return list(first.values())


def _check_state(method: Method, steps: int) -> None:
    for phase in first_phases(method, steps):
        if waiting_in(phase):
            raise ValueError(
                "episodes that wait for the next step (--chunk, --train-when, --step-deadline) stay with the process "
                "that plays them, and on Ray another sampler must be able to play a unit again; --order free goes on "
                "without slow units: use it in their place"
            )
        for item in phase.rollout.state:
            raise ValueError(
                f"{method.name} cannot run on Ray: its rollout has state ({item.name!r}), and each sampler would have "
                "its own copy; leave out --on ray"
            )


def _check_free(method: Method, steps: int) -> None:
    phases = first_phases(method, steps)
    times = {round(at(p.times, Clock(number, steps))) for number in range(steps) for p in phases}
    if len(phases) != 1 or times != {1}:
        raise ValueError(
            f"{method.name} runs its phases more than once in a step, or not in every step: --order free needs one "
            "pass a step; use --order fixed"
        )
