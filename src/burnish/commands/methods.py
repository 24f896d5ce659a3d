"""`burnish methods`: the table of methods."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rich.table import Table

from burnish.config.flags import read
from burnish.util.terminal import stdout_console


@dataclass(frozen=True)
class MethodsOptions:
    """burnish methods: list all methods by family."""

    json: bool = False
    """Print a JSON list of objects with name, family, catalogue, title, arxiv and summary."""


def main(words: list[str]) -> int:
    asked = read(MethodsOptions, "methods", words)
    if asked is None:
        return 0
    from burnish.methods.table import METHODS, load_all

    load_all()
    if asked[1].json:
        fields = ("name", "family", "catalogue", "title", "arxiv", "summary")
        rows = [{field: getattr(entry, field) for field in fields} for entry in METHODS.values()]
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return 0
    console = stdout_console()
    families: dict[str, list] = {}
    for entry in METHODS.values():
        families.setdefault(entry.family, []).append(entry)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    table.add_column(style="dim", no_wrap=True)
    for family, entries in families.items():
        table.add_row(f"[bold not cyan]{family}[/]")
        for entry in entries:
            table.add_row(f"  {entry.name}", entry.summary, entry.arxiv)
        table.add_row()
    console.print(table)
    console.print(
        f"{len(METHODS)} methods. [cyan]burnish show NAME[/] explains one, [cyan]burnish train NAME[/] runs it."
    )
    return 0
