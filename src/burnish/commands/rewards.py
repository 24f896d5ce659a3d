"""`burnish rewards [NAME]`: the rewards, verifiers and reward shapes by name, or one of them."""

from __future__ import annotations

import difflib
import inspect
import json
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from burnish.config.flags import read
from burnish.util.terminal import stdout_console

KINDS = {
    "verifier": "verifiers: they read the text of a reply, in the sandbox (--reward NAME)",
    "reward": "rewards that ask models or look at groups (--reward NAME)",
    "shape": "shapes: they change the reward (--shape NAME)",
    "preference": "preferences: they compare the replies to a prompt (--preference NAME)",
}


@dataclass(frozen=True)
class RewardsOptions:
    """burnish rewards [NAME]: list what can be named in --reward and --shape, or explain one.

    Several are added with weights: --reward "math,f1*0.2". Options stand in brackets: --shape "overlong(0.2)"."""

    json: bool = False
    """Print a JSON list of objects with name, kind, summary, needs, arxiv and command."""


def main(words: list[str]) -> int:
    asked = read(RewardsOptions, "rewards", words, plain=1)
    if asked is None:
        return 0
    entries = _entries()
    console = stdout_console()
    if asked[0]:
        name = asked[0][0]
        if name not in entries:
            near = difflib.get_close_matches(name, entries, 3, 0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "burnish rewards lists them"
            raise ValueError(f"there is no reward {name!r}; {hint}")
        _show(name, *entries[name], console)
    elif asked[1].json:
        print(json.dumps([_row(kind, entry) for kind, entry in entries.values()], indent=1, ensure_ascii=False))
    else:
        _list(entries, console)
    return 0


def _entries() -> dict[str, tuple[str, object]]:
    """name -> (kind, entry)"""
    from burnish.rewards.table import load_scorers
    from burnish.verifiers.table import load_verifiers

    found: dict[str, tuple[str, object]] = {name: ("verifier", entry) for name, entry in load_verifiers().items()}
    return found | {name: (entry.kind, entry) for name, entry in load_scorers().items()}


def _row(kind: str, entry: Any) -> dict[str, Any]:
    paper = entry.papers[0] if entry.papers else None
    return {
        "name": entry.name,
        "kind": kind,
        "summary": entry.summary,
        "needs": list(getattr(entry, "needs", ())),
        "arxiv": paper.arxiv if paper else "",
        "command": entry.example,
    }


def _list(entries: dict[str, tuple[str, Any]], console: Console) -> None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    table.add_column(style="dim", no_wrap=True)
    for kind, words in KINDS.items():
        table.add_row(f"[bold not cyan]{kind}[/]", f"[dim]{words.partition(': ')[2] or words}[/]")
        for name, (own, entry) in entries.items():
            if own == kind:
                table.add_row(f"  {name}", entry.summary, entry.papers[0].arxiv if entry.papers else "")
        table.add_row()
    console.print(table)
    console.print(f"{len(entries)} names. [cyan]burnish rewards NAME[/] explains one.")


def _show(name: str, kind: str, entry: Any, console: Console) -> None:
    console.print(Text.assemble((name, "bold cyan"), ("   " + kind, "dim")))
    for paper in entry.papers:
        where = f"   https://arxiv.org/abs/{paper.arxiv}" if paper.arxiv else ""
        console.print(Text(paper.title + where, style="dim"))
    console.print(Text(entry.summary))
    if entry.when:
        console.print(Text.assemble(("When: ", "bold"), entry.when))
    if getattr(entry, "needs", ()):
        console.print(Text.assemble(("Columns it needs: ", "bold"), ", ".join(entry.needs)))
    console.print()
    console.print(Text(inspect.getdoc(entry.build) or ""))
    options = _options(entry.build)
    if options.row_count:
        console.print("\nOptions", style="bold")
        console.print(options)
    console.print(Text.assemble("\nTry: ", (entry.example, "cyan")))


def _options(build: Any) -> Table:
    from burnish.core.option import ANY, options_of

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    known = options_of(build)
    for name, parameter in inspect.signature(build).parameters.items():
        if name == "task":
            continue
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        option = known.get(name, ANY)
        words = [option.help, option.range(), " or ".join(option.choices)]
        table.add_row(f"  {name}{default}", " ".join(filter(None, words)))
    return table
