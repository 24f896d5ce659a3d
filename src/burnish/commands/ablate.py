"""`burnish ablate METHOD`: switch its parts off in turn."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from burnish.commands.flags import read
from burnish.commands.many import ManyRuns, plan_of, report, run, shared_flags, terminal, unfinished

if TYPE_CHECKING:
    from burnish.compare.plan import Candidate


@dataclass(frozen=True)
class AblateOptions(ManyRuns):
    """burnish ablate METHOD --task TASK: which of its parts matter?

    burnish ablate dapo --task countdown --seeds 5
    burnish ablate "dapo(n=16)" --parent grpo --task add
    burnish ablate dapo --list                     only say what would be changed

    A method is its parent (the nearest basic method; docs/methods/map.md) with parts exchanged. Each difference is undone alone: what
    the method adds is switched off, what it changes goes back to the parent's, what it leaves out is put in again. Every variant is
    compared with the whole method. Parts that cannot be switched off are named with the reason.
    Ctrl-C stops politely, and the same command goes on. docs/compare.md defines every number."""

    parent: str | None = None
    """The method to compare with part by part; by default the nearest basic one."""
    list: bool = False
    """Only list the variants."""


def main(words: list[str]) -> int:
    asked = read(AblateOptions, "ablate", words, plain=1)
    if asked is None:
        return 0
    methods, options = asked
    if not methods:
        raise ValueError("say which method: burnish ablate dapo --task add")
    from burnish.compare.board import board
    from burnish.compare.lineage import parent
    from burnish.compare.plan import candidate
    from burnish.methods.table import find

    base = candidate(methods[0])
    above = options.parent or parent(base.method, find(base.method))
    console = terminal(options.quiet)
    variants, refused = _variants(base, above, options)
    _introduce(base, above, variants, refused, console)
    if options.list:
        return 0
    if not variants:
        raise ValueError(f"nothing of {base.method} can be switched off against {above}; try another --parent")
    plan = plan_of((base, *_parent(above, options), *variants), "ablate", options)
    command = shlex.join(["burnish", "ablate", *words])
    ran = run(plan, console, f"{base.label} and {len(variants)} variants on {options.task}", options)
    if any(row.done for row in ran.rows):
        found = board(ran.rows, threshold=options.threshold, against=base.label)
        title = f"{base.label} on {options.task}, part by part"
        report(found, plan.out, console, command, extra=_html(refused), title=title)
    return unfinished(ran, console, command)


def _variants(base: Candidate, above: str, options: AblateOptions) -> tuple[tuple[Candidate, ...], dict[str, str]]:
    """The variants that can be built, and the others with the reason."""
    from burnish.compare.ablation import applied, build_parent, changes
    from burnish.compare.plan import Candidate
    from burnish.methods.table import find
    from burnish.run.config import configure
    from burnish.tasks.resolve import resolve_task

    source = resolve_task(options.task, options.reward)
    entry = find(base.method)
    config = configure(entry, base.method, {**shared_flags(options), **base.flags})
    mine = entry.build(source, **config.arguments)
    theirs = build_parent(find(above), source, config.arguments)
    found, refused = [], {}
    for change in changes(mine, theirs):
        label = change.said(above)
        try:
            applied(mine, theirs, change)
        except ValueError as error:
            refused[label] = str(error).split(": ", 1)[-1].split(";")[0]  # what is wrong; the advice is for composers
        else:
            found.append(Candidate(label, base.method, base.flags, {"parent": above, **asdict(change)}))
    return tuple(found), refused


def _parent(above: str, options: AblateOptions) -> tuple[Candidate, ...]:
    """The parent itself, where it can run without more than it is given."""
    from burnish.compare.plan import Candidate
    from burnish.methods.table import find
    from burnish.run.config import configure

    try:
        configure(find(above), above, shared_flags(options))
    except ValueError:
        return ()
    return (Candidate(above, above),)


def _introduce(
    base: Candidate, above: str, variants: tuple[Candidate, ...], refused: dict[str, str], console: Console
) -> None:
    console.print(
        Text.assemble((base.label, "bold cyan"), f" is {above} with {len(variants) + len(refused)} differences")
    )
    for one in variants:
        console.print(Text(f"  {one.label}"))
    for label, why in refused.items():
        console.print(Text.assemble((f"  {label}: cannot be run alone", "dim"), (f" ({why})", "dim")), soft_wrap=True)


def _html(refused: dict[str, str]) -> str:
    from burnish.compare.page import table

    if not refused:
        return ""
    rows = [[(label, "name"), (why, "")] for label, why in refused.items()]
    return "<h2>What cannot be changed alone</h2>" + table(["change", "why"], rows)
