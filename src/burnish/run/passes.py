"""How often a run passes over its data: epochs and steps."""

from __future__ import annotations

import math
from dataclasses import replace

from burnish.config.options import Config
from burnish.tasks.mixture import percent
from burnish.tasks.resolve import mixture_of
from burnish.tasks.source import Source


def steps_of_epochs(config: Config, source: Source) -> Config:
    """The configuration with the number of steps that its epochs take, if it says epochs."""
    options = config.options
    if options.epochs is None:
        return config
    size = source.size("train")
    if size is None:
        raise ValueError(f"task {source.name!r} is endless, so it has no epochs; use --steps in place of --epochs")
    steps = max(1, math.ceil(options.epochs * size / options.prompts - 1e-9))
    return replace(config, options=replace(options, steps=steps))


def passes(config: Config, source: Source) -> str:
    """The rows that a run draws: "200 steps x 16 prompts = 3,200 of 7,473 rows, 0.43 epochs"."""
    options, size = config.options, source.size("train")
    tasks = options.steps * options.prompts
    drawn = f"{options.steps:,} steps x {options.prompts:,} prompts = {tasks:,}"
    if size is None:
        said = f"{drawn} tasks"
    elif not size:
        return drawn
    else:
        epochs = tasks / size
        more = f"{drawn} of {size:,} rows" if tasks <= size else f"{drawn} rows, {size:,} different ones"
        said = f"{more}, {epochs:.2f} epochs" if epochs < 10 else f"{more}, {epochs:.0f} epochs"
    mixture = mixture_of(source)
    if mixture is not None:
        own = ", ".join(
            f"{percent(share)} {name}" + (f" ({count:.2f} passes)" if count else "")
            for (name, count), share in zip(mixture.passes(tasks), mixture.shares("train"), strict=True)
        )
        said += f": {own}"
    return said
