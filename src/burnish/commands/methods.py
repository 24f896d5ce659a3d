"""`burnish methods [WORD]`: the library of methods, or what is found in it and in the zoo."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from burnish.config.flags import read
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from burnish.methods.table import Entry

FAMILIES = {
    "policy": "reinforcement learning on scored samples",
    "preference": "pairs, lists and labels",
    "imitation": "demonstrations, and the best of own samples",
    "hybrid": "demonstrations and RL together, distillation",
    "reward": "reward models and judges",
    "agents": "episodes of several turns",
    "decoding": "alignment while sampling",
}
DATA = {  # kind of data -> what a part of such a method reads of a task
    "pairs": ("given:chosen", "given:rejected"),
    "episodes": ("given:env", "given:episode"),
    "steps": ("given:steps",),
    "demonstrations": ("given:demo",),
}


@dataclass(frozen=True)
class MethodsOptions:
    """burnish methods [WORD]: list the methods of the library by family, the best known first.

    WORD is a family (policy, preference, imitation, hybrid, reward, agents, decoding) or a word that stands in a name,
    a summary or a title; with it, the zoo of reproduced papers is searched, too.

    burnish methods preference
    burnish methods entropy --data prompts"""

    all: bool = False
    """List the zoo, too: one method for each further paper that was reproduced."""
    data: str = ""
    """Only methods for this kind of data: prompts, pairs, demonstrations, steps or episodes."""
    json: bool = False
    """Print a JSON list of objects with name, family, library, catalogue, title, arxiv and summary; of all methods."""


def main(words: list[str]) -> int:
    asked = read(MethodsOptions, "methods", words, plain=1)
    if asked is None:
        return 0
    from burnish.methods.table import METHODS, load_all

    (word, *_), options = asked[0] or [""], asked[1]
    if options.data not in ("", "prompts", *DATA):
        raise ValueError(f"--data is {options.data!r}; it must be prompts, {', '.join(DATA)}")
    load_all()
    chosen = found(METHODS, word, options.data)
    if not chosen:
        near = difflib.get_close_matches(word, [*FAMILIES, *METHODS], 3, 0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"no method is of the family {word!r} or has that word{hint} (burnish methods --all)")
    if options.json:
        fields = ("name", "family", "library", "catalogue", "title", "arxiv", "summary")
        rows = [{field: getattr(entry, field) for field in fields} for entry in chosen]
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return 0
    shown = [entry for entry in chosen if entry.library or options.all or (word and word not in FAMILIES)]
    _print(shown or chosen, len(chosen), len(METHODS), word, options)
    return 0


def found(methods: Mapping[str, Entry], word: str, data: str) -> list[Entry]:
    """The methods of a family, or with a word in their description, for a kind of data."""
    lower = word.lower()

    def said(entry: Entry) -> str:
        return " ".join((entry.name, entry.summary, entry.when, *(paper.title for paper in entry.papers))).lower()

    chosen = [e for e in methods.values() if (e.family == lower if lower in FAMILIES else lower in said(e))]
    return [entry for entry in chosen if not data or data_of(entry) == data]


def data_of(entry: Entry) -> str:
    """The kind of data that a method learns from, by what its parts read of a task."""
    from burnish.report.show import built

    reads = {name for phase in built(entry).phases for placed in phase.parts() for name in placed.part.reads}
    return next((kind for kind, names in DATA.items() if reads.intersection(names)), "prompts")


def _print(entries: list[Entry], chosen: int, known: int, word: str, options: MethodsOptions) -> None:
    console = stdout_console()
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    table.add_column(style="dim", no_wrap=True)
    families = [*FAMILIES, *sorted({entry.family for entry in entries} - set(FAMILIES))]
    for family in families:
        own = [entry for entry in entries if entry.family == family]
        if own:
            about = f": {FAMILIES[family]}" if family in FAMILIES else ""
            table.add_row(f"[bold not cyan]{family}[/]", f"[dim]{about[2:]}[/]")
            for entry in own:
                table.add_row(f"  {entry.name}", entry.summary, entry.arxiv)
            table.add_row()
    console.print(table)
    console.print("[cyan]burnish show NAME[/] explains a method, [cyan]burnish train NAME[/] runs it.")
    if chosen > len(entries):
        more = " ".join(("burnish methods", word, f"--data {options.data}" if options.data else "", "--all"))
        console.print(
            f"{len(entries)} methods of the library; {chosen - len(entries)} more of the zoo, one for each further "
            f"paper: [cyan]{' '.join(more.split())}[/]"
        )
    else:
        console.print(f"{len(entries)} of {known} methods.")
