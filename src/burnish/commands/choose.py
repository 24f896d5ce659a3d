"""`burnish choose`: which method for my data? It asks, or takes the answers as flags, and prints the command."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from rich.text import Text

from burnish.compare.choice import DATA, SIGNALS, Asked, choose, data_of
from burnish.config.flags import read
from burnish.core.option import Option
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class ChooseOptions:
    """burnish choose: the method for your data, why, and the command to start with.

    In a terminal it asks what is not given as a flag. Otherwise --data (or --task) and --signal are needed."""

    data: Annotated[str | None, Option(choices=tuple(DATA))] = None
    """What the rows have: answers, prompts, demos, pairs, labels, ranked, steps or environment."""
    signal: Annotated[str | None, Option(choices=tuple(SIGNALS))] = None
    """What says that a reply is good: verifier, reward, reward-model, judge, teacher or none."""
    task: str | None = None
    """The data themselves: a file or a dataset, of which the columns are read."""
    model: str | None = None
    """The model to train: a name, a directory, or owner/name of the hub."""
    memory: str | None = None
    """The memory of the GPU, 24GiB; without one, nothing is said of memory."""
    json: bool = False
    """Print JSON only."""


def main(words: list[str]) -> int:
    asked = read(ChooseOptions, "choose", words)
    if asked is None:
        return 0
    options, console = asked[1], stdout_console()
    watched = sys.stdin.isatty() and console.is_terminal and not options.json
    answers = _answers(options, console, watched)
    choice = choose(answers)
    if options.json:
        print(json.dumps({"asked": asdict(answers), **asdict(choice)}, indent=1))
        return 0
    console.print(Text.assemble((choice.method, "bold cyan"), f": {choice.why}."))
    for command in choice.commands:
        console.print(f"\n    {command}", soft_wrap=True, highlight=False)
    if choice.others:
        console.print(f"\nAlso worth a look: {', '.join(choice.others)}. burnish compare says which is better.")
    console.print(f"[dim]burnish show {choice.method} prints its formula; docs/choose.md has the whole table.[/]")
    return 0


def _answers(options: ChooseOptions, console: Console, watched: bool) -> Asked:
    data = options.data or _read_data(options.task)
    if data is None:
        data = _ask(console, "What do your rows have?", DATA, "data") if watched else None
    if data is None:
        raise ValueError(f"say what the rows have: --task FILE, or --data {'|'.join(DATA)}")
    signal = options.signal
    if signal is None:
        usual = "none" if data in ("pairs", "labels", "ranked", "steps", "demos") else "verifier"
        signal = _ask(console, "What says that a reply is good?", SIGNALS, "signal", usual) if watched else usual
    model = options.model or (_ask_text(console, "Which model?", "tiny") if watched else "tiny")
    memory = options.memory
    if memory is None and watched:
        memory = _ask_text(console, "How much memory has the GPU (24GiB; empty: no limit, or a CPU)?", "")
    return Asked(data, signal, model, options.task or "", _gib(memory), _weights(model))


def _read_data(task: str | None) -> str | None:
    """What the rows of a dataset have, by their columns."""
    if task is None:
        return None
    from burnish.tasks.resolve import resolve_task

    return data_of(resolve_task(task).gives)


def _ask(console: Console, question: str, choices: Mapping[str, str], flag: str, usual: str = "") -> str:
    """One of the choices, by its number or name."""
    console.print(f"[bold]{question}[/] [dim](--{flag})[/]")
    names = list(choices)
    for i, name in enumerate(names, 1):
        mark = " [dim](usual)[/]" if name == usual else ""
        console.print(f"  {i}  [cyan]{name}[/]: {choices[name]}{mark}", highlight=False)
    while True:
        said = input("> ").strip()
        if not said and usual:
            return usual
        if said in choices:
            return said
        if said.isdecimal() and 1 <= int(said) <= len(names):
            return names[int(said) - 1]
        console.print(f"a number from 1 to {len(names)}, or a name, please")


def _ask_text(console: Console, question: str, usual: str) -> str:
    console.print(f"[bold]{question}[/]" + (f" [dim]({usual})[/]" if usual else ""))
    return input("> ").strip() or usual


def _gib(memory: str | None) -> float | None:
    """An amount of memory in GiB."""
    if not memory:
        return None
    from burnish.run.memory_plan import GIB, read_memory

    return read_memory(memory) / GIB


def _weights(model: str) -> int | None:
    """The number of weights of a model that is on this machine; no model is downloaded for it."""
    from burnish.models.hub import hub_name
    from burnish.models.known_models import resolve
    from burnish.models.precision import stored_weights

    if hub_name(model) is not None:
        return None
    return stored_weights(resolve(model)) or None
