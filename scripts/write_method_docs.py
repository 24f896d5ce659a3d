"""Write docs/methods: one page for every registered method, from its registration, its signature and its composition.

    python scripts/write_method_docs.py

Learning curves come from benchmarks/learning.json (scripts/measure_learning.py writes it); a method without one gets none.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

from rich.table import Table

from burnish.commands.flags import flags_of_method
from burnish.compare.lineage import composition, parent
from burnish.methods.table import METHODS, Entry, load_all
from burnish.report.show import built, cast, terms, walk

ROOT = Path(__file__).parent.parent
OUT = ROOT / "docs" / "methods"
MEASURED = ROOT / "benchmarks" / "learning.json"
WIDTH, HEIGHT, PAD = 420, 160, 30
INTRODUCTION = """`burnish show NAME` prints the same in a terminal. [How they relate](map.md).

The last column is held-out accuracy on `tiny` before and after 16 steps with every option at its default, one seed, free sampling at
temperature 1 (`scripts/measure_learning.py`; 60 steps for `archer`). It shows that a method learns, not how good it is: defaults are the papers', which had
larger models and longer runs in mind. What trains a value model first (`a_lol`, `dvpo`, `ppo_max`, `vapo`, `direct_advantage_po`) has hardly begun after 16 steps;
PPO-like methods with one reply a prompt (`a2c`, `dr_po`, `ppo`) are noisy at 16 replies a step (`a2c --n 8 --lookahead 100 --entropy 0` reaches 97%);
`nlpo` earns its reward under its mask and is measured here without it; `behavior_injection`, `hir`, `iqlearn` and `leti` did not gain in so few steps."""


def main() -> None:
    load_all()
    OUT.mkdir(parents=True, exist_ok=True)
    measured = json.loads(MEASURED.read_text())["methods"] if MEASURED.is_file() else {}
    for name, entry in METHODS.items():
        (OUT / f"{name}.md").write_text(page(name, entry, measured))
        if name in measured:
            (OUT / f"{name}.svg").write_text(plot(name, measured))
    (OUT / "README.md").write_text(index(measured))
    (OUT / "map.md").write_text(relations())


def page(name: str, entry: Entry, measured: dict[str, Any]) -> str:
    """One method: what it is, its formula, the walk, the terms, the cast, its flags, a command, what was measured."""
    example = built(entry)
    paper = f"[{entry.title}](https://arxiv.org/abs/{entry.arxiv})" if entry.arxiv else entry.title
    parts = [
        f"# {name}", f"{entry.summary}", f"Family: {entry.family}. Paper: {paper}.",
        "```text\n" + (inspect.getdoc(entry.build) or "") + "\n```", f"    {entry.example}",
    ]  # fmt: skip
    for phase in example.phases:
        parts.append(f"## The walk{', phase ' + phase.name if len(example.phases) > 1 else ''}")
        parts.append(markdown(walk(phase)))
        if phase.learn.terms:
            parts.append(markdown(terms(phase.learn)))
    parts += ["## The cast", markdown(cast(example))]
    if flags := flags_of_method(entry):
        rows = "\n".join(
            f"| `--{flag.name.lstrip('-').replace('_', '-')}` | {flag.kind} | {flag.default} | {flag.help} |"
            for flag in flags
        )
        parts += ["## Its own flags", f"| flag | takes | default | meaning |\n|---|---|---|---|\n{rows}"]
    if found := measured.get(name):
        parts += [
            "## Measured",
            f"On `tiny`, task `{found['task']}`, {found['steps']} steps, seed {found['seed']}: held-out accuracy "
            f"{found['before']:.1%} -> {found['after']:.1%}.",
            f"![held-out accuracy of {name}]({name}.svg)",
        ]
    return "\n\n".join(parts) + "\n"


def markdown(table: Table) -> str:
    """A rich table as a Markdown table."""
    head = [str(column.header) for column in table.columns]
    rows = zip(*(column.cells for column in table.columns), strict=True)
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(map(str, row))} |" for row in rows)]
    return "\n".join(lines)


def index(measured: dict[str, Any]) -> str:
    """All methods by family, with what was measured."""
    lines = ["# Methods", INTRODUCTION]
    for family in sorted({entry.family for entry in METHODS.values()}):
        lines.append(f"## {family}")
        table = ["| method | what | paper | measured |", "|---|---|---|---|"]
        for name, entry in sorted(METHODS.items()):
            if entry.family == family:
                paper = f"[{entry.arxiv}](https://arxiv.org/abs/{entry.arxiv})" if entry.arxiv else ""
                found = measured.get(name)
                gain = f"{found['task']}: {found['before']:.0%} -> {found['after']:.0%}" if found else ""
                table.append(f"| [{name}]({name}.md) | {entry.summary} | {paper} | {gain} |")
        lines.append("\n".join(table))
    return "\n\n".join(lines) + "\n"


def relations() -> str:
    """Each method as the nearest of the basic ones, with what is put in and what is left out."""
    pieces = {name: composition(entry) for name, entry in METHODS.items()}
    lines = [
        "# How the methods relate",
        "Every method as a basic one with parts exchanged, found by comparing compositions part by part. "
        "Parts go by the names that `burnish show` prints; terms by name, unit and average.",
        "| method | is nearest to | with | without |\n|---|---|---|---|",
    ]
    rows = []
    for name, mine in sorted(pieces.items()):
        base = parent(name, METHODS[name])
        added = ", ".join(f"`{piece}`" for piece in sorted(mine - pieces[base])) or "-"
        left = ", ".join(f"`{piece}`" for piece in sorted(pieces[base] - mine)) or "-"
        rows.append(f"| [{name}]({name}.md) | {base} | {added} | {left} |")
    return "\n\n".join(lines) + "\n" + "\n".join(rows) + "\n"


def plot(name: str, measured: dict[str, Any]) -> str:
    """A small SVG: held-out accuracy over steps, the method's own against GRPO's on the same task where there is one."""
    mine = measured[name]
    curves = [(name, mine["curve"], "#0b7285")]
    parent = measured.get("grpo")
    if parent and name != "grpo" and parent["task"] == mine["task"]:
        curves.insert(0, ("grpo", parent["curve"], "#adb5bd"))
    last = max(step for _, curve, _ in curves for step, _ in curve)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="11">'
    ]
    for value in (0.0, 0.5, 1.0):
        y = HEIGHT - PAD - value * (HEIGHT - 2 * PAD)
        body.append(
            f'<line x1="{PAD}" x2="{WIDTH - 70}" y1="{y}" y2="{y}" stroke="#dee2e6"/><text x="2" y="{y + 4}">{value:.0%}</text>'
        )
    for label, curve, colour in curves:
        at = [
            (PAD + step / last * (WIDTH - PAD - 70), HEIGHT - PAD - value * (HEIGHT - 2 * PAD)) for step, value in curve
        ]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        body.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        body.append(
            f'<text x="{at[-1][0] + 4:.1f}" y="{at[-1][1] + (4 if label == name else 16):.1f}" fill="{colour}">{label}</text>'
        )
    body.append(
        f'<text x="{PAD}" y="{HEIGHT - 8}">step 0</text><text x="{WIDTH - 100}" y="{HEIGHT - 8}">{last}</text></svg>'
    )
    return "\n".join(body) + "\n"


if __name__ == "__main__":
    main()
