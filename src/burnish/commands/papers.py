"""`burnish papers`: the index of everything that is implemented from a paper."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from burnish import papers
from burnish.config.flags import read
from burnish.util.terminal import stdout_console


@dataclass(frozen=True)
class PapersOptions:
    """burnish papers: every paper with what it is here (a method, a reward, ...), its name, and the command."""

    json: bool = False
    """Print a JSON list of objects with id, title, arxiv, kind, name and command."""


def main(words: list[str]) -> int:
    asked = read(PapersOptions, "papers", words)
    if asked is None:
        return 0
    rows = index()
    if asked[1].json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return 0
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for i, column in enumerate(("arxiv", "kind", "name", "title")):
        table.add_column(column, style="cyan" if i == 2 else None, no_wrap=i < 3)
    for row in rows:
        state = f" ({row['state']})" if "state" in row else ""
        table.add_row(row["arxiv"] or "-", row["kind"], row["name"], f"{row['title']}{state}")
    stdout_console().print(table)
    stdout_console().print(f"{len({row['id'] for row in rows})} papers.")
    return 0


@dataclass(frozen=True)
class Flag:
    """An option of every run that is the system of a paper (docs/async.md)."""

    name: str
    papers: tuple[papers.Paper, ...]
    example: str


FLAGS = (
    Flag("--lag", (papers.ASYNCFLOW,), "burnish train grpo --on ray --samplers 2 --graders 1 --lag 1 --order free"),
    Flag("--chunk", (papers.CHUNK_ROLLOUT,), "burnish train grpo --chunk 16"),
)


def index() -> list[dict[str, str]]:
    """One row for each paper of each method, verifier, reward, shape, curriculum, recipe, option and study."""
    from burnish.methods.curricula import CURRICULA
    from burnish.methods.table import METHODS, load_all
    from burnish.recipes.box import boxed
    from burnish.rewards.table import load_scorers
    from burnish.studies.catalogue import entries as studied
    from burnish.verifiers.table import load_verifiers

    load_all()
    entries: list[tuple[str, Any]] = [("method", entry) for entry in METHODS.values()]
    entries += [("reward", entry) for entry in load_verifiers().values()]
    entries += [("reward", entry) for entry in load_scorers().values()]
    entries += [("draw", entry) for entry in CURRICULA.values()]
    entries += [("recipe", entry) for entry in boxed().values()]
    entries += [("flag", entry) for entry in FLAGS]
    entries += [("study", entry) for entry in studied()]
    return [
        {
            "id": paper.id,
            "title": paper.title,
            "arxiv": paper.arxiv,
            "kind": kind,
            "name": entry.name,
            "command": entry.example,
            **({"state": entry.state} if kind == "study" else {}),
        }
        for kind, entry in entries
        for paper in dict.fromkeys(entry.papers)
    ]
