"""Write docs/methods: one page for every registered method, from its registration, its signature and its composition.

    python scripts/write_method_docs.py

Curves come from benchmarks/curves.json (scripts/measure_curves.py writes it), those of preference methods from
benchmarks/results/preference_methods.json (scripts/preference_methods.py); a method without one gets none. A method is
drawn against its parent, of the basic methods the one whose composition is nearest; a preference method against `dpo`
or `online_dpo`.
"""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import preference_results
from draw_curves import Curve, drawn, mean_curve
from method_advice import row_of, snippet, watched
from rich.table import Table

from burnish import credit, draw, learn, rollout, score, select
from burnish.commands.methods import FAMILIES
from burnish.compare.lineage import composition, parent
from burnish.compose.swap import factories, parts_of_one_method
from burnish.config.flags import flags_of_method
from burnish.methods.table import METHODS, Entry, load_all
from burnish.report import definitions
from burnish.report.show import built, models, pipeline, sampling, terms
from burnish.studies.claim_file import names as study_names
from burnish.studies.claim_file import read_study

ROOT = Path(__file__).parent.parent
OUT = ROOT / "docs" / "methods"
MEASURED = ROOT / "benchmarks" / "curves.json"
INTRODUCTION = """`burnish show NAME` prints the same in a terminal. [How they relate](map.md).

The last column is held-out accuracy on `tiny` before and after 16 steps with every option at its default, free
sampling at temperature 1 (`scripts/measure_curves.py`; 60 steps for `archer`); of preference methods it is that of 32
steps at settings of their own ([how](../preference-methods.md)). It shows that a method learns, not how good it is:
defaults are the papers', which had larger models and longer runs in mind. What trains a value model first (`a_lol`,
`b_coder`, `dvpo`, `ppo_max`, `vapo`, `direct_advantage_po`) has hardly begun after 16 steps; PPO-like methods with one
reply a prompt (`a2c`, `dr_po`, `ppo`) are noisy at 16 replies a step (`a2c --n 8 --lookahead 100
--entropy 0` reaches 97%); `nlpo` earns its reward under its mask and is measured here without it; `hir` keeps a fifth
of its probability for other tokens (label smoothing), which free sampling draws; `behavior_injection` prepares a
model for RL."""


LIBRARY = "What people use. Begin here: `src/burnish/methods` has their code."
ZOO = (
    "Reproductions of further papers: one file each in `src/burnish/zoo`, with the same laws and numbers derived by "
    "hand, but with less use behind them."
)


def main() -> None:
    load_all()
    OUT.mkdir(parents=True, exist_ok=True)
    measured = all_measured()
    pieces = {name: composition(entry) for name, entry in METHODS.items()}
    for name, entry in METHODS.items():
        base = compared_with(name)
        (OUT / f"{name}.md").write_text(page(name, entry, base, measured))
        curve = OUT / f"{name}.svg"
        if name in measured:
            curve.write_text(plot(name, base, measured))
        else:
            curve.unlink(missing_ok=True)
    (OUT / "README.md").write_text(index(measured))
    (OUT / "map.md").write_text(relations(pieces))
    (OUT / "parts.md").write_text(parts_page())
    metrics = OUT.parent / "metrics.md"
    metrics.write_text(metrics.read_text().partition("\n## What was sampled")[0] + definitions.markdown())


def all_measured() -> dict[str, Any]:
    """The curves of all methods that have one."""
    found = json.loads(MEASURED.read_text())["methods"]
    raw = preference_results.stored()
    return found | {name: preference_results.curve(raw, name) for name in preference_results.names_of(raw)}


def compared_with(name: str) -> str:
    """The method beside which the curve of this one is drawn."""
    raw = preference_results.stored()
    if preference_results.rows_of(raw, name):
        return preference_results.base_of(raw, name)
    return parent(name, METHODS[name])


def page(name: str, entry: Entry, base: str, measured: dict[str, Any]) -> str:
    """One method: what it is, when to use it, a command, its formula, its composition, its flags, what was measured."""
    example = built(entry)
    near = parent(name, entry)
    paper = f"[{entry.title}](https://arxiv.org/abs/{entry.arxiv})" if entry.arxiv else entry.title
    parts = [
        f"# {name}",
        entry.summary,
        f"**When to use it.** {entry.when}",
        f"Family: {entry.family}. Paper: {paper}. Nearest basic method: [{near}]({near}.md) ([the map](map.md)).",
        *tested(name),
        f"    {entry.example}",
        *advice(entry, example),
        "## The formula",
        "```text\n" + (inspect.getdoc(entry.build) or "") + "\n```",
    ]
    for phase in example.phases:
        parts.append(f"## The composition{', phase ' + phase.name if len(example.phases) > 1 else ''}")
        parts.append(markdown(pipeline(phase)))
        if phase.learn.terms:
            parts.append(markdown(terms(phase.learn)))
    parts += ["## Models", markdown(models(example))]
    if sampled := sampling(example):
        parts.append(sampled)
    if flags := flags_of_method(entry):
        rows = "\n".join(
            f"| `--{flag.name.lstrip('-').replace('_', '-')}` | {flag.kind} | {flag.default} | {flag.help} |"
            for flag in flags
        )
        parts += ["## Its own flags", f"| flag | takes | default | meaning |\n|---|---|---|---|\n{rows}"]
    if found := measured.get(name):
        parts += ["## Measured", told(name, base, found, measured), f"![the curve of {name}]({name}.svg)"]
    return "\n\n".join(parts) + "\n"


def tested(name: str) -> list[str]:
    """Links to the studies with an arm of this method."""
    studies = [study for study in map(read_study, study_names()) if name in study.methods]
    links = ", ".join(f"[{study.name}](../studies/{study.name}.md)" for study in studies)
    return [textwrap.fill(f"In studies of published claims: {links}.", 118, break_on_hyphens=False)] if links else []


def advice(entry: Entry, example: Any) -> list[str]:
    """A row of the data, a snippet and what to watch, for the methods that the documentation recommends."""
    if not entry.library:
        return []
    lines = "\n".join(f"- {line}" for line in watched(example)) or "- `loss`, and the held-out measure"
    return [
        "## Data and code",
        f"A row of a dataset ([other layouts](../data.md)):\n\n```json\n{row_of(entry, example)}\n```",
        f"```python\n{snippet(entry)}\n```",
        f"## What to watch\n\n{lines}\n\nDefined in [metrics](../metrics.md); by symptom: "
        "[troubleshooting](../troubleshooting.md).",
    ]


def told(name: str, base: str, found: dict[str, Any], measured: dict[str, Any]) -> str:
    """What was measured, in words."""
    if preference_results.rows_of(preference_results.stored(), name):
        return preference_results.told(preference_results.stored(), name)
    before, after = ends(found)
    seeds = "seed 0" if len(found["runs"]) == 1 else f"the mean of {len(found['runs'])} seeds"
    words = (
        f"On `tiny`, task `{found['task']}`, {found['steps']} steps at the defaults, {seeds}: held-out "
        f"{found['measure']} "
        f"{before:.1%} -> {after:.1%}"
    )
    other = measured.get(base)
    if base != name and other and same_code(found, other):
        words += f" (`{base}`: {ends(other)[1]:.1%})"
    return words + ". Solid: held-out; dots: the mean reward of each step's samples, where the method has one."


def same_code(found: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two methods were measured alike: the same task and steps, by the same release of torch."""
    keys = [
        (one["task"], one["steps"], one["measure"], {run.get("torch") for run in one["runs"]}) for one in (found, other)
    ]
    return keys[0] == keys[1]


def ends(found: dict[str, Any]) -> tuple[float, float]:
    """The first and the last held-out value, each the mean over seeds."""
    curve = mean_curve([run["heldout"] for run in found["runs"]])
    return curve[0][1], curve[-1][1]


def markdown(table: Table) -> str:
    """A rich table as a Markdown table."""
    head = [str(column.header) for column in table.columns]
    rows = zip(*(column.cells for column in table.columns), strict=True)
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(map(str, row))} |" for row in rows)]
    return "\n".join(lines)


def index(measured: dict[str, Any]) -> str:
    """The library by family, the best known first, then the zoo, with what was measured."""
    lines = ["# Methods", INTRODUCTION]
    library = [(name, entry) for name, entry in METHODS.items() if entry.library]
    zoo = sorted((name, entry) for name, entry in METHODS.items() if not entry.library)
    for title, about, rows in (("library", LIBRARY, library), ("zoo", ZOO, zoo)):
        lines += [f"## The {title}", about]
        for family in FAMILIES:
            table = [row(name, entry, measured.get(name)) for name, entry in rows if entry.family == family]
            if table:
                lines += [f"### {family.capitalize()}: {FAMILIES[family]}"]
                lines += ["\n".join(["| method | what | paper | measured |", "|---|---|---|---|", *table])]
    return "\n\n".join(lines) + "\n"


def row(name: str, entry: Entry, found: dict[str, Any] | None) -> str:
    paper = f"[{entry.arxiv}](https://arxiv.org/abs/{entry.arxiv})" if entry.arxiv else ""
    gain = f"{found['task']}: {ends(found)[0]:.0%} -> {ends(found)[1]:.0%}" if found else ""
    return f"| [{name}]({name}.md) | {entry.summary} | {paper} | {gain} |"


def relations(pieces: dict[str, frozenset[str]]) -> str:
    """Each method as the nearest of the basic ones, with what is put in and what is left out."""
    lines = [
        "# How the methods relate",
        "Every method as a basic one with parts exchanged, found by comparing compositions part by part. "
        "Parts go by the names that `burnish show` prints; terms by name, unit and average. To exchange one yourself: "
        "[one part swapped](../own-method.md#one-part-swapped).",
        "| method | is nearest to | with | without |\n|---|---|---|---|",
    ]
    rows = []
    for name, mine in sorted(pieces.items()):
        base = parent(name, METHODS[name])
        added = ", ".join(f"`{piece}`" for piece in sorted(mine - pieces[base])) or "-"
        left = ", ".join(f"`{piece}`" for piece in sorted(pieces[base] - mine)) or "-"
        rows.append(f"| [{name}]({name}.md) | {base} | {added} | {left} |")
    return "\n\n".join(lines) + "\n" + "\n".join(rows) + "\n"


def parts_page() -> str:
    """The public names of every stage, each with its arguments and the first sentence of its docstring."""
    pages = [
        "# Parts",
        "The public names of the stages: `from burnish import credit, draw, learn, rollout, score, select`. "
        "How to compose them: [your own method](../own-method.md).",
    ]
    for stage in (draw, rollout, score, select, credit, learn):
        short = stage.__name__.rpartition(".")[2]
        rows = ["| name | what |", "|---|---|"]
        for name in stage.__all__:
            thing = getattr(stage, name)
            takes = arguments(thing) if inspect.isfunction(thing) else ""
            cells = (f"`{short}.{name}{takes}`", about(thing))
            rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
        pages += [f"## {short}", (stage.__doc__ or "").split("\n")[0], "\n".join(rows)]
    rows = ["| name | module | what |", "|---|---|---|"]
    for name, part in sorted(parts_of_one_method().items()):
        if name == part.__name__ and name not in factories():
            cells = (f"`{name}{arguments(part)}`", f"`{part.__module__}`", about(part))
            rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    pages += [
        "## Parts of one method or paper",
        "Import them from their modules; `--swap` knows their names.",
        "\n".join(rows),
    ]
    return "\n\n".join(pages) + "\n"


def arguments(function: Callable[..., object]) -> str:
    """A function's arguments and their defaults, without types; norms and functions by their names."""
    names = {id(value): name for stage in (learn, credit, rollout) for name, value in vars(stage).items()}
    bare = []
    for p in inspect.signature(function).parameters.values():
        known = names.get(id(p.default)) if callable(p.default) or isinstance(p.default, learn.Norm) else None
        if known is None and inspect.isfunction(p.default):
            known = p.default.__name__
        default = p.default if known is None else Name(known)
        bare.append(p.replace(annotation=p.empty, default=default))
    return str(inspect.Signature(bare))


class Name:
    """Prints as a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


def about(thing: object) -> str:
    """The first paragraph of a docstring, in one line; otherwise the type or the value itself."""
    if inspect.isfunction(thing) or inspect.isclass(thing):
        return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    if "Callable" in str(thing):
        return f"The type `{re.sub(r'[a-z_.]+[.]', '', str(thing))}`."
    shown = sorted(thing) if isinstance(thing, dict) else getattr(thing, "name", thing)  # functions have addresses
    return f"{type(thing).__name__}: {', '.join(shown) if isinstance(thing, dict) else shown}."


def plot(name: str, base: str, measured: dict[str, Any]) -> str:
    """The method's curve against its parent's, on the same task where there is one."""
    mine, other = measured[name], measured.get(base)
    curves = [Curve(name, mine, "#0b7285")]
    if base != name and other and same_code(mine, other):
        curves.insert(0, Curve(base, other, "#adb5bd"))
    return drawn(curves)


if __name__ == "__main__":
    main()
