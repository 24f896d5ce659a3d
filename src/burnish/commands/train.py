"""`burnish train`: train with a method or a file of options, or resume a run."""

from __future__ import annotations

import dataclasses
import os
import typing
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from burnish.config.flags import Flag, booleans_of, dashed, flags_of, flags_of_method, split, valued
from burnish.config.help import FIRST, grouped, print_flags
from burnish.config.options import Config, Options, configure, method_fields, method_types, one_length, unknown
from burnish.config.resumable import RESUMABLE
from burnish.config.values import coerce
from burnish.config.words import answer
from burnish.distributed import launch
from burnish.methods.table import Entry, find
from burnish.run.folder import Folder
from burnish.util.plainfile import read_yaml
from burnish.util.terminal import stdout_console

_COMMAND_FLAGS = {"help", "help_all", "quiet"}  # flags of the command itself, not of the run
_COMMAND_HELP = (
    ("resume", "run", "-", "Resume a run from its newest checkpoint."),
    ("quiet", "on/off", "off", "Plain lines only."),
)

DEMO: dict[str, object] = {"task": "path", "steps": 60}  # greedy and sampled accuracy both rise, within a minute

USAGE = """\
[bold]burnish train[/] [METHOD | run.yaml | path/file.py:function] [--flag value ...]
[bold]burnish train --resume[/] RUN [--steps N]

  burnish train                           the demo: GRPO teaches the tiny model to find paths
  burnish train dpo --task add --steps 100
  burnish train run.yaml --lr 3e-5        flags override the file
  burnish train my_method.py:mine         a function(task, *, ...) -> Method
"""


def main(words: list[str]) -> int:
    name, stored, flags = _read(words)
    quiet, helped, everything = (coerce(flag, flags.pop(flag, False), bool) for flag in ("quiet", "help", "help_all"))
    if "resume" in flags:
        return _run_resumed(words, name, valued(flags, {"resume"}), quiet)
    entry = find(name or "grpo")
    if helped or everything:
        print_help(entry, name or "grpo", everything=everything)
        return 0
    config = _configured(entry, name or "grpo", stored, flags)
    if (world := launch.wanted(config.options.ranks)) > 1:
        return launch.launch(words, world, elastic=config.options.elastic)
    with _observer(quiet) as observer:
        from burnish.api.train import run_anywhere

        result = run_anywhere(entry, config, observer)
    return 130 if result.stopped else 0


def read_run(words: list[str]) -> tuple[str, Config]:
    """The method and the configuration of a run that is described as for `burnish train`."""
    name, stored, flags = _read(words)
    flags.pop("quiet", None)
    return name or "grpo", _configured(find(name or "grpo"), name or "grpo", stored, flags)


def _configured(entry: Entry, name: str, stored: dict[str, Any], flags: dict[str, Any]) -> Config:
    known = _known(entry)
    for flag in flags.keys() - known:
        raise ValueError(unknown(name, flag, known, flag=True))
    given = valued(flags, known)
    if one_length(given).keys() & {"steps", "epochs"}:  # a flag overrides either of the file's
        stored = {key: value for key, value in stored.items() if key not in ("steps", "epochs")}
    return configure(entry, name, {**one_length(stored), **given})


def _read(words: list[str]) -> tuple[str | None, dict[str, Any], dict[str, Any]]:
    """Parse the arguments into the method's name, the options of the YAML file, and the flags."""
    switches = dict.fromkeys(_COMMAND_FLAGS, ()) | booleans_of(typing.get_type_hints(Options, include_extras=True))
    plain, flags = split(words, switches)
    for word in (one for one in plain if "=" in one and ":" not in one):  # verl's way of writing options: key=value
        method = plain[0] if plain[0] != word else "grpo"
        if ours := answer(word.partition("=")[0], _known(find(method)), method=method, flag=True):
            raise ValueError(ours)
    name, stored = (plain[0] if plain else None), {}
    if name is None and "task" not in flags:
        stored = dict(DEMO)
    if name and name.endswith((".yaml", ".yml")):
        stored = _from_yaml(Path(name))
        name = str(stored.pop("method", "grpo"))
    if name and name.endswith(".py"):
        raise ValueError(f"say which function of {name} makes the method: {name}:FUNCTION")
    if "resume" not in flags:  # parse again, with the method's boolean flags
        plain, flags = split(words, switches | booleans_of(method_types(find(name or "grpo"))))
    if len(plain) > 1:
        hint = f"; did you mean --{plain[1].replace('=', ' ', 1)}?" if "=" in plain[1] else ""
        raise ValueError(f"there is one method to a run, but {plain[1]!r} follows {plain[0]!r}{hint}")
    return name, stored, flags


def _known(entry: Entry) -> set[str]:
    return {*method_fields(entry), *(f.name for f in dataclasses.fields(Options)), "reward_model"}


def _from_yaml(path: Path) -> dict[str, object]:
    if not os.path.isfile(path):
        raise ValueError(f"there is no file {str(path)!r} to read options from")
    options = read_yaml(path)
    if not isinstance(options, dict):
        raise ValueError(f"{path} should hold lines `option: value`, with `method: NAME` among them")
    return {str(key).replace("-", "_"): value for key, value in options.items()}


def _run_resumed(words: list[str], name: str | None, flags: dict[str, Any], quiet: bool) -> int:
    from burnish.api.train import resume

    folder = flags.pop("resume")
    if name:
        raise ValueError(f"--resume takes everything from the run folder {folder}; leave out {name!r}")
    for flag in flags:
        if flag not in RESUMABLE:
            allowed = ", ".join(f"--{dashed(one)}" for one in RESUMABLE)
            raise ValueError(f"--{dashed(flag)} cannot change when a run is resumed; only {allowed} can")
    asked = {**Folder.open(Path(folder))[1], **flags}
    if (world := launch.wanted(coerce("ranks", asked.get("ranks", 1), int))) > 1:
        return launch.launch(words, world, elastic=coerce("elastic", asked.get("elastic", False), bool))
    with _observer(quiet) as observer:
        result = resume(folder, observer=observer, **valued(flags, RESUMABLE))
    return 130 if result.stopped else 0


def _observer(quiet: bool) -> Any:
    from burnish.report.progress import ProgressLines, ProgressScreen

    if launch.placed().rank:
        return ProgressLines(Console(quiet=True))  # rank 0 shows the run
    out = Console()
    return ProgressLines(out) if quiet or not out.is_terminal else ProgressScreen(out)


def print_help(entry: Entry, name: str, *, everything: bool) -> None:
    """Print the method's own flags and the common ones, or every flag in groups."""
    out = stdout_console()
    out.print(USAGE)
    own, groups = flags_of_method(entry), grouped(flags_of(Options))
    out.print(f"[bold]{name}[/]: {escape(entry.summary)}")
    print_flags(out, own)
    every = {flag.name: flag for flags in groups.values() for flag in flags}
    shown = groups if everything else {"The ten that matter first": [every[name] for name in FIRST]}
    for title, flags in shown.items():
        out.print(f"\n[bold]{title}[/]")
        print_flags(out, flags)
    out.print("\n[bold]The command[/]")
    print_flags(out, [Flag(*row) for row in _COMMAND_HELP])
    if not everything:
        others = [title.lower() if title != "Ray" else title for title in groups]
        count = len(every) - len(FIRST)
        out.print(f"\n[bold]--help-all[/] also lists the other {count} flags: {', '.join(others)}.")
    out.print(f"\nAn example: [cyan]{escape(entry.example or 'burnish train ' + name)}[/]")
