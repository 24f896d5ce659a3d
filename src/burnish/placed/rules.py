"""What can be placed on Ray and what cannot, in words, before anything is started."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

from burnish.method import Method, Phase
from burnish.nouns import Clock
from burnish.schedules import at

if TYPE_CHECKING:
    from burnish.run.config import Options

PLACES = ("here", "ray")
ORDERS = ("fixed", "free")
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
    """Raises ValueError for what a run on Ray cannot do, and for options of Ray in a run without it."""
    if options.on not in PLACES:
        raise ValueError(f"option 'on' is {options.on!r}; it is {' or '.join(PLACES)}")
    if options.order not in ORDERS:
        raise ValueError(f"option 'order' is {options.order!r}; it is {' or '.join(ORDERS)}")
    if options.on == "here":
        for name in RAY_ONLY:
            if getattr(options, name) != getattr(type(options), name):
                flag = f"--{name.replace('_', '-')}"
                raise ValueError(f"{flag} is for runs on Ray, and this one is not; add --on ray, or leave {flag} out")
        return
    for name, least in (("samplers", 1), ("graders", 1), ("unit", 1), ("spares", 0), ("replacements", 0)):
        if getattr(options, name) < least:
            raise ValueError(f"option {name!r} is {getattr(options, name)}; it must be at least {least}")
    if options.threads is not None and options.threads < 1:
        raise ValueError(f"option 'threads' is {options.threads}; it must be at least 1")
    for name in ("recover_within", "call_timeout"):
        if getattr(options, name) <= 0:
            raise ValueError(f"option {name!r} is {getattr(options, name):g} seconds; it must be more than 0")
    if options.reward_workers:
        raise ValueError(
            "--reward-workers judges beside sampling, as the graders of --on ray do already; use --graders instead"
        )
    if options.device not in ("auto", "cpu"):
        raise ValueError(
            "--on ray has been built and tested on CPUs only so far; leave out --device, or leave out --on ray"
        )
    _check_memories(method, options.steps)
    if options.order == "free":
        _check_free(method, options.steps)
    if importlib.util.find_spec("ray") is None:
        raise ValueError("--on ray needs the package ray, which is not installed: pip install 'burnish[ray]'")


def threads_for(options: Options) -> int:
    """The threads of each actor, where nobody said: the cores of this machine, shared by those who work at once."""
    return max(1, (os.cpu_count() or 1) // (options.samplers + options.graders + 1))


def first_phases(method: Method, steps: int) -> list[Phase]:
    """The phases that some step begins with: those that are sampled elsewhere."""
    found: dict[str, Phase] = {}
    for number in range(steps):
        phase = next((p for p in method.phases if round(at(p.times, Clock(number, steps))) > 0), None)
        if phase is not None:
            found[phase.name] = phase
    return list(found.values())


def _check_memories(method: Method, steps: int) -> None:
    for phase in first_phases(method, steps):
        for item in phase.rollout.state:
            raise ValueError(
                f"{method.name} cannot be placed on Ray: its rollout has a memory ({item.name!r}), and several samplers would "
                "each have another; leave out --on ray"
            )


def _check_free(method: Method, steps: int) -> None:
    phases = first_phases(method, steps)
    times = {round(at(p.times, Clock(number, steps))) for number in range(steps) for p in phases}
    if len(phases) != 1 or times != {1}:
        raise ValueError(
            f"{method.name} walks its phases more than once in a step, or not in every step: --order free needs one walk a "
            "step; use --order fixed"
        )
