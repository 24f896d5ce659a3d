"""`burnish train`: a method, a file of options, or a run to go on with."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from burnish.commands.flags import booleans_of, dashed, flags_of, flags_of_method, split, table, valued
from burnish.methods.table import Entry, find
from burnish.run.config import RESUMABLE, Options, configure, method_fields, method_types

_OURS = {"help", "quiet"}  # flags of the command itself, not of the run

USAGE = """\
[bold]burnish train[/] [METHOD | run.yaml | path/file.py:function] [--flag value ...]
[bold]burnish train --resume[/] RUN [--steps N]

  burnish train                              GRPO on the tiny model, with everything by default
  burnish train dpo --task add --steps 100
  burnish train run.yaml --lr 3e-5           flags come on top of the file (method: NAME, n: 8, ...)
  burnish train my_method.py:mine            a function(task, *, ...) -> Method of your own
"""


def main(words: list[str]) -> int:
    name, stored, flags = _read(words)
    quiet, helped = _truth(flags.pop("quiet", False)), flags.pop("help", False)
    if "resume" in flags:
        return _run_resumed(name, valued(flags, {"resume"}), quiet)
    entry = find(name or "grpo")
    if helped:
        print_help(entry, name or "grpo")
        return 0
    given = valued(flags, {*method_fields(entry), *(f.name for f in dataclasses.fields(Options))})
    config = configure(entry, name or "grpo", {**stored, **given})
    with _observer(quiet) as observer:
        from burnish.run.train import run_anywhere

        result = run_anywhere(entry, config, observer)
    return 130 if result.stopped else 0


def _read(words: list[str]) -> tuple[str | None, dict[str, Any], dict[str, Any]]:
    """The method's name, what its file says, and the flags."""
    switches = _OURS | booleans_of(typing.get_type_hints(Options))
    plain, flags = split(words, switches)
    name, stored = (plain[0] if plain else None), {}
    if name and name.endswith((".yaml", ".yml")):
        stored = _from_yaml(Path(name))
        name = str(stored.pop("method", "grpo"))
    if name and name.endswith(".py"):
        raise ValueError(f"say which function of {name} makes the method: {name}:FUNCTION")
    if "resume" not in flags:  # the method may have switches of its own
        plain, flags = split(words, switches | booleans_of(method_types(find(name or "grpo"))))
    if len(plain) > 1:
        hint = f"; did you mean --{plain[1].replace('=', ' ', 1)}?" if "=" in plain[1] else ""
        raise ValueError(f"there is one method to a run, but {plain[1]!r} follows {plain[0]!r}{hint}")
    return name, stored, flags


def _from_yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"there is no file {str(path)!r} to read options from")
    try:
        found = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} should hold lines `option: value`, with `method: NAME` among them")
    return {str(key).replace("-", "_"): value for key, value in found.items()}


def _run_resumed(name: str | None, flags: dict[str, Any], quiet: bool) -> int:
    from burnish.run.train import resume

    folder = flags.pop("resume")
    if name:
        raise ValueError(f"--resume takes everything from the run folder {folder}; leave out {name!r}")
    for flag in flags:
        if flag not in RESUMABLE:
            allowed = ", ".join(f"--{dashed(one)}" for one in RESUMABLE)
            raise ValueError(f"--{dashed(flag)} cannot change when a run is resumed; only {allowed} can")
    with _observer(quiet) as observer:
        result = resume(folder, observer=observer, **valued(flags, RESUMABLE))
    return 130 if result.stopped else 0


def _observer(quiet: bool) -> Any:
    from burnish.report.progress import Lines, Screen

    console = Console()
    return Lines(console) if quiet or not console.is_terminal else Screen(console)


def _truth(value: Any) -> bool:
    return value is True or str(value).lower() in ("true", "yes")


def print_help(entry: Entry, name: str) -> None:
    """Every flag with its type, its default and a line of help."""
    console = Console(highlight=False)
    console.print(USAGE)
    console.print(f"[bold]{name}[/]'s own flags: {entry.summary}")
    console.print(table(flags_of_method(entry)))
    console.print("\n[bold]Flags of every run[/]")
    console.print(table(flags_of(Options)))
    console.print("\n[bold]Flags of the command[/]")
    console.print(
        "  [cyan]--resume RUN[/]  go on with a run from its newest checkpoint\n  [cyan]--quiet[/]       plain lines only"
    )
    console.print(f"\nAn example: [cyan]{entry.example or 'burnish train ' + name}[/]")
