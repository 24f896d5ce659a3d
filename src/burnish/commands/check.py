"""`burnish check`: what is installed, what is missing and how to get it, and whether one step runs."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.text import Text

from burnish.commands.flags import read

NEEDED = ("torch", "transformers", "safetensors", "numpy", "rich", "pyyaml")
EXTRAS = {  # package -> (the extra of burnish that brings it, what it is for)
    "peft": ("lora", "--lora"),
    "datasets": ("data", "datasets of the hub"),
    "pyarrow": ("data", "parquet files"),
    "math-verify": ("math", "checking mathematical answers"),
    "reasoning-gym": ("gym", "--task gym:NAME"),
    "gguf": ("smollm2", "burnish models get smollm2"),
    "tensorboard": ("tensorboard", "--log tensorboard"),
    "wandb": ("wandb", "--log wandb"),
    "trackio": ("trackio", "--log trackio"),
    "mlflow": ("mlflow", "--log mlflow"),
    "ray": ("ray", "--on ray"),
}


@dataclass(frozen=True)
class CheckOptions:
    """burnish check: python, packages, machine, models, and one step of GRPO in a temporary folder."""

    model: str = "tiny"
    """The model that the trial step trains."""


@dataclass(frozen=True)
class Finding:
    """One line of the report. state: fine, absent (an extra), broken."""

    name: str
    text: str
    state: str = "fine"


def main(words: list[str]) -> int:
    asked = read(CheckOptions, "check", words)
    if asked is None:
        return 0
    console, broken = Console(highlight=False), 0
    for finding in _findings(asked[1].model):
        broken += finding.state == "broken"
        print_finding(console, finding)
    console.print("[green]All is well.[/]" if not broken else f"[red]{broken} of these need attention.[/]")
    return 1 if broken else 0


def print_finding(console: Console, finding: Finding) -> None:
    """One line behind a tick, a dash or a cross."""
    mark, colour = {"fine": ("✓", "green"), "absent": ("-", "yellow"), "broken": ("✗", "red")}[finding.state]
    console.print(Text.assemble((f"{mark} ", colour), f"{finding.name:<14} {finding.text}"), soft_wrap=True)


def _findings(model: str) -> Iterator[Finding]:
    yield Finding("python", platform.python_version())
    for name in NEEDED:
        found = _version(name)
        yield Finding(name, found or f"missing: pip install {name}", "fine" if found else "broken")
    for name, (extra, use) in EXTRAS.items():
        found = _version(name)
        yield Finding(
            name, found or f"not installed, for {use}: pip install 'burnish[{extra}]'", "fine" if found else "absent"
        )
    yield Finding("processor", f"{os.cpu_count()} cores, {_memory()}")
    if not all(_version(name) for name in NEEDED):
        return
    yield _gpu()
    yield _kernels()
    yield from _trial(model)


def _kernels() -> Finding:
    """Whether the kernels for a CPU are there, or can be built."""
    from burnish.cast.native.compiled import why_not

    reason = why_not()
    if reason is None:
        return Finding("CPU kernels", "built by this machine's C compiler")
    return Finding(
        "CPU kernels", f"none, so torch does their work, which takes about half as long again: {reason}", "absent"
    )


def _trial(model: str) -> Iterator[Finding]:
    from burnish.cast.models import resolve
    from burnish.run.train import train

    try:
        place = resolve(model)
    except ValueError as error:
        yield Finding(f"model {model}", str(error), "broken")
        return
    yield Finding(f"model {model}", str(place))
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="burnish-check-") as folder:
        try:
            train(
                "grpo",
                model=model,
                steps=1,
                prompts=4,
                n=4,
                eval_tasks=0,
                max_new_tokens=32,
                out=str(Path(folder) / "run"),
            )
        except Exception as error:  # noqa: BLE001 - whatever is wrong, it is what this command is asked to report
            yield Finding("one step", f"failed: {type(error).__name__}: {error}", "broken")
            return
    yield Finding("one step", f"GRPO on {model}: loaded, trained and saved in {time.perf_counter() - begin:.1f} s")


def _gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("gpu", "none that torch can use; everything runs on the processor")
    properties = torch.cuda.get_device_properties(0)
    return Finding("gpu", f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB")


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB of memory"
    except (ValueError, OSError, AttributeError):
        return "memory unknown"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
