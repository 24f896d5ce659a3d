"""`burnish check`: report installed and missing packages, the machine, and whether one training step runs."""

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

from burnish.config.flags import read
from burnish.util.host_memory import host_memory
from burnish.util.terminal import stdout_console

NEEDED = ("torch", "transformers", "safetensors", "numpy", "rich", "pyyaml")
EXTRAS = {  # package -> (the extra of burnish that installs it, what needs it)
    "peft": ("lora", "--lora"),
    "datasets": ("data", "datasets of the hub"),
    "pyarrow": ("data", "parquet files"),
    "math-verify": ("math", "checking mathematical answers"),
    "reasoning-gym": ("gym", "--task gym:NAME"),
    "gguf": ("gguf", "burnish export --to gguf, burnish models get smollm2"),
    "llama-cpp-python": ("llama-cpp", "burnish export --to gguf --quantize q4_k_m"),
    "lm-eval": ("lm-eval", "burnish eval --bench lm-eval:TASK"),
    "gymnasium": ("gymnasium", "environments of gymnasium"),
    "textarena": ("textarena", "games of textarena"),
    "verifiers": ("verifiers", "environments of verifiers"),
    "websockets": ("openenv", "environments of OpenEnv"),
    "mcp": ("mcp", "tools of MCP servers"),
    "mkdocs-material": ("docs", "make docs"),
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
    """One line of the report. state: fine, absent (optional), broken."""

    name: str
    text: str
    state: str = "fine"


def main(words: list[str]) -> int:
    asked = read(CheckOptions, "check", words)
    if asked is None:
        return 0
    console, broken = stdout_console(), 0
    for finding in _findings(asked[1].model):
        broken += finding.state == "broken"
        print_finding(console, finding)
    console.print("[green]All is well.[/]" if not broken else f"[red]{broken} of these need attention.[/]")
    return 1 if broken else 0


def print_finding(console: Console, finding: Finding) -> None:
    """Print one line with a tick, a dash or a cross."""
    mark, colour = {"fine": ("✓", "green"), "absent": ("-", "yellow"), "broken": ("✗", "red")}[finding.state]
    console.print(Text.assemble((f"{mark} ", colour), f"{finding.name:<14} {finding.text}"), soft_wrap=True)


def _findings(model: str) -> Iterator[Finding]:
    yield Finding("python", platform.python_version())
    for name in NEEDED:
        installed = _version(name)
        yield Finding(name, installed or f"missing: pip install {name}", "fine" if installed else "broken")
    for name, (extra, use) in EXTRAS.items():
        installed = _version(name)
        text = installed or f"not installed, for {use}: pip install 'burnish[{extra}]'"
        yield Finding(name, text, "fine" if installed else "absent")
    yield Finding("processor", f"{os.cpu_count()} cores, {_memory()}")
    if not all(_version(name) for name in NEEDED):
        return
    yield _gpu()
    yield _kernels()
    yield from _trial(model)


def _kernels() -> Finding:
    """Whether the CPU kernels are built, or can be."""
    from burnish.forward.accelerate import cpu_library

    library = cpu_library()
    if isinstance(library, str):
        text = f"none, so burnish falls back to torch, which takes about 1.5 times as long: {library}"
        return Finding("CPU kernels", text, "absent")
    text = f"built by {library.version}, library {library.sha256[:12]}"
    if library.note:
        return Finding("CPU kernels", f"{text}; built again in every process, because {library.note}", "absent")
    return Finding("CPU kernels", f"{text}, in {library.folder}")


def _trial(model: str) -> Iterator[Finding]:
    from burnish.api.train import train
    from burnish.models.known_models import resolve

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
        except Exception as error:  # noqa: BLE001 - this command reports any error
            yield Finding("one step", f"failed: {type(error).__name__}: {error}", "broken")
            return
    yield Finding("one step", f"GRPO on {model}: loaded, trained and saved in {time.perf_counter() - begin:.1f} s")


def _gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        return Finding("gpu", "none that torch can use; everything runs on the CPU")
    properties = torch.cuda.get_device_properties(0)
    return Finding("gpu", f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB")


def _memory() -> str:
    try:
        return f"{host_memory() / 2**30:.0f} GiB of memory"
    except (ValueError, OSError, AttributeError):
        return "memory unknown"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
