"""Describe a method in the terminal: paper, formula, pipeline stages, terms, models, flags."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from burnish.config.flags import flags_of_method
from burnish.config.help import print_flags
from burnish.config.options import method_fields, method_types
from burnish.core.method import Method, Phase
from burnish.core.schedules import at
from burnish.core.types import Clock, Sampling
from burnish.learn.learn import Learn, plan_of
from burnish.methods.table import Entry
from burnish.tasks.table import source

_PLACEHOLDERS: dict[object, object] = {int: 1, float: 1.0}  # for options without a default; others get "tiny", a model
STEPS = 100  # the run length for which schedules are described


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
        title = f"\nPipeline, phase {phase.name}, {_times(phase)}" if len(example.phases) > 1 else "\nPipeline"
        console.print(title, style="bold")
        console.print(pipeline(phase))
        if plan_of(phase).terms:
            console.print(terms(plan_of(phase)))
            console.print(Text(_updates(plan_of(phase)), style="dim"))
        elif (search := plan_of(phase).search) is not None:
            console.print(Text(f"learn: {search.name} moves {_names(search.trainees)} by scores alone, once a step"))
        else:
            console.print(Text("learn: nothing is trained in this phase", style="dim"))
    console.print("\nModels", style="bold")
    console.print(models(example))
    if sampled := sampling(example):
        console.print(Text("\n" + sampled))
    flags = flags_of_method(entry)
    console.print("\nIts own flags" if flags else "\nIt has no flags of its own", style="bold")
    print_flags(console, flags)
    console.print(Text(f"\nburnish train {name} --help-all lists the flags of every run as well.", style="dim"))
    console.print(Text.assemble("Try: ", (entry.example or f"burnish train {name}", "cyan")))


def built(entry: Entry) -> Method:
    """Build the method on a built-in task; options without a default are those of its trial, or placeholders.

    A method that can be built neither on a question nor on a game is built on the task of its trial, as its trial is.
    """
    kinds, needed = method_types(entry), {}
    for name, parameter in method_fields(entry).items():
        if parameter.default is parameter.empty:
            needed[name] = entry.trial.get(name, _PLACEHOLDERS.get(kinds.get(name, str), "tiny"))
    for task in ("sort", "guess"):
        with contextlib.suppress(ValueError):
            return entry.build(source(task), **needed)
    trial = {name: value for name, value in entry.trial.items() if name not in ("task", "lora")}
    return entry.build(source(entry.trial.get("task", "sort")), **{**needed, **trial})


def reflowed(doc: str) -> str:
    """Join the lines of prose paragraphs, so that the terminal wraps them; formulas keep their lines."""
    blocks = [block.splitlines() for block in doc.split("\n\n")]
    prose = [all(len(line) > 100 for line in block[:-1]) for block in blocks]
    return "\n\n".join((" " if flows else "\n").join(block) for block, flows in zip(blocks, prose, strict=True))


def pipeline(phase: Phase) -> Table:
    """Every part of every stage, with what it reads and writes."""
    rows = _table("stage", "part", "reads", "writes")
    last = ""
    for placed in phase.parts():
        part = placed.part
        writes = [*sorted(part.writes), *(f"({name})" for name in sorted(part.updates - part.writes))]
        rows.add_row(placed.stage if placed.stage != last else "", part.name, _names(part.reads), _names(writes))
        last = placed.stage
    return rows


def terms(learn: Learn) -> Table:
    """The terms of a phase: unit, whose tokens, coefficient, norm, streams, trainee."""
    rows = _table("learn", "unit", "on", "coefficient", "averaged as", "streams", "trains")
    for term in learn.terms:
        on, norm = " and ".join(term.authors) or "what is claimed", term.norm.name
        rows.add_row(term.name, term.unit, on, coefficient(term.coef), norm, _names(term.streams), term.trainee)
    return rows


def models(method: Method) -> Table:
    """The models of a method: liveness, initial weights, capabilities."""
    rows = _table("model", "liveness", "starts from", "can")
    for name, role in method.models.items():
        liveness = {"ema": f"ema of {role.follows}, keeps {role.decay:g}", "snapshot": f"copy of {role.follows}"}
        start = "the run's model" if role.source == "base" else role.source
        head = f", {role.outputs} output{'s' if role.outputs > 1 else ''} per token" if role.outputs else ""
        can = _names(sorted(role.can))
        product = " (the product)" if name == method.product else ""
        rows.add_row(name + product, liveness.get(role.liveness, role.liveness), start + head, can)
    return rows


def sampling(method: Method) -> str:
    """How its replies are sampled, in a sentence; empty where it samples none."""
    if not method.samples:
        return ""
    if method.sampling is None:
        return "Replies are sampled in a way of its own: --temperature, --top-p and the like do not change it."
    plain, own = Sampling(), method.sampling
    parts = [f"temperature {own.temperature:g}"]
    parts += [
        f"{name} {value:g}"
        for name in ("top_k", "top_p", "min_p")
        if (value := getattr(own, name)) != getattr(plain, name)
    ]
    return (
        f"Replies are sampled at {', '.join(parts)} (--temperature, --top-p, --top-k, --min-p, --repetition-penalty)."
    )


def coefficient(value: object) -> str:
    """A number, or the first and last value of a schedule over STEPS steps."""
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
    passes = "one pass" if learn.updates == 1 else f"{learn.updates} passes"
    return f"{passes} over each batch" + (f", in {learn.minibatches} updates each" if learn.minibatches > 1 else "")


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "-"


def _table(*columns: str) -> Table:
    rows = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for i, column in enumerate(columns):
        rows.add_column(column, style="cyan" if i == 0 else None, no_wrap=i == 0, overflow="fold")
    return rows
