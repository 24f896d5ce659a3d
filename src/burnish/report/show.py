"""A method as people read it: paper, formula, the walk through the rooms, terms, cast, flags."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from burnish.commands.flags import flags_of_method, table
from burnish.learn.learn import Learn
from burnish.method import Method, Phase
from burnish.methods.table import Entry
from burnish.nouns import Clock
from burnish.run.config import method_fields, method_types
from burnish.schedules import at
from burnish.tasks.table import source

_PLACEHOLDERS: dict[Any, Any] = {int: 1, float: 1.0}  # for what has no default; "tiny" for a model
STEPS = 100  # the length of run that schedules are described for


def show(entry: Entry, name: str, console: Console) -> None:
    """Print everything about one method."""
    example = built(entry)
    console.print(Text.assemble((name, "bold cyan"), ("   " + entry.family, "dim")))
    if entry.title:
        console.print(
            Text(entry.title + (f"   https://arxiv.org/abs/{entry.arxiv}" if entry.arxiv else ""), style="dim")
        )
    console.print(Text(entry.summary))
    if entry.when:
        console.print(Text.assemble(("When: ", "bold"), entry.when))
    console.print()
    console.print(Text(reflowed(inspect.getdoc(entry.build) or "(it has no docstring)")))
    for phase in example.phases:
        title = f"\nThe walk, phase {phase.name}, {_times(phase)}" if len(example.phases) > 1 else "\nThe walk"
        console.print(title, style="bold")
        console.print(walk(phase))
        if phase.learn.terms:
            console.print(terms(phase.learn))
            console.print(Text(_updates(phase.learn), style="dim"))
        else:
            console.print(Text("learn: nothing is trained in this walk", style="dim"))
    console.print("\nThe cast", style="bold")
    console.print(cast(example))
    flags = flags_of_method(entry)
    console.print("\nIts own flags" if flags else "\nIt has no flags of its own", style="bold")
    console.print(table(flags))
    console.print(Text(f"\nburnish train {name} --help lists the flags of every run as well.", style="dim"))
    console.print(Text.assemble("Try: ", (entry.example or f"burnish train {name}", "cyan")))


def built(entry: Entry) -> Method:
    """The method on a built-in task; what it needs but has no default for is filled in."""
    kinds, needed = method_types(entry), {}
    for name, parameter in method_fields(entry).items():
        if parameter.default is parameter.empty:
            needed[name] = _PLACEHOLDERS.get(kinds.get(name, str), "tiny")
    try:
        return entry.build(source("sort"), **needed)
    except ValueError:
        return entry.build(source("guess"), **needed)


def reflowed(doc: str) -> str:
    """Prose as one line a paragraph, for the terminal to wrap; formulas stay as they are written."""
    blocks = [block.splitlines() for block in doc.split("\n\n")]
    prose = [all(len(line) > 100 for line in block[:-1]) for block in blocks]
    return "\n\n".join((" " if flows else "\n").join(block) for block, flows in zip(blocks, prose, strict=True))


def walk(phase: Phase) -> Table:
    """Every part of every room, with what it reads and writes."""
    found = _table("room", "part", "reads", "writes")
    last = ""
    for room in phase.rooms():
        wrote = [*sorted(room.part.writes), *(f"({name})" for name in sorted(room.part.updates - room.part.writes))]
        found.add_row(room.room if room.room != last else "", room.part.name, _names(room.part.reads), _names(wrote))
        last = room.room
    return found


def terms(learn: Learn) -> Table:
    """The terms of a phase: unit, coefficient, norm, streams, trainee."""
    found = _table("learn", "unit", "coefficient", "averaged as", "streams", "trains")
    for term in learn.terms:
        found.add_row(term.name, term.unit, coefficient(term.coef), term.norm.name, _names(term.streams), term.trainee)
    return found


def cast(method: Method) -> Table:
    """The members of a method and how they live."""
    found = _table("member", "lives", "starts from", "can")
    for name, role in method.cast.items():
        lives = {"ema": f"ema of {role.follows}, keeps {role.decay:g}", "snapshot": f"copy of {role.follows}"}
        start = "the run's model" if role.source == "base" else role.source
        head = f", {role.outputs} output{'s' if role.outputs > 1 else ''} per token" if role.outputs else ""
        can = _names(sorted(role.can))
        product = " (the product)" if name == method.product else ""
        found.add_row(name + product, lives.get(role.liveness, role.liveness), start + head, can)
    return found


def coefficient(value: Any) -> str:
    """A number, or where a schedule begins and ends over a run of STEPS steps."""
    if not callable(value):
        return f"{value:g}"
    return f"{at(value, Clock(0, STEPS)):g} to {at(value, Clock(STEPS - 1, STEPS)):g}"


def _times(phase: Phase) -> str:
    if not callable(phase.times):
        return "once a step" if phase.times == 1 else f"{phase.times} times a step"
    counts = [round(phase.times(Clock(step, STEPS))) for step in range(STEPS)]
    begins = next((step for step, count in enumerate(counts) if count), 0)
    often = "once a step" if counts[begins] == 1 else f"{counts[begins]} times a step"
    return f"{often} from step {begins + 1} on" if len(set(counts[begins:])) == 1 else "by a schedule"


def _updates(learn: Learn) -> str:
    walks = "one walk" if learn.epochs == 1 else f"{learn.epochs} walks"
    return f"{walks} over each batch" + (f", in {learn.minibatches} updates each" if learn.minibatches > 1 else "")


def _names(found: Iterable[str]) -> str:
    return ", ".join(sorted(found)) or "-"


def _table(*columns: str) -> Table:
    found = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for i, column in enumerate(columns):
        found.add_column(column, style="cyan" if i == 0 else None, no_wrap=i == 0, overflow="fold")
    return found
