"""`burnish ablate METHOD`: ablation, disable its parts in turn."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from burnish.commands.many import ManyRuns, plan_of, report, run, shared_flags, terminal, unfinished
from burnish.config.flags import read

if TYPE_CHECKING:
    from burnish.compare.plan import Candidate


@dataclass(frozen=True)
class AblateOptions(ManyRuns):
    """burnish ablate METHOD --task TASK: ablation, which of its parts matter?

    burnish ablate dapo --task countdown --seeds 5
    burnish ablate "dapo(n=16)" --parent grpo --task add
    burnish ablate dapo --list                     only list the variants

    A method is compared with its parent (the nearest basic method; docs/methods/map.md). Each variant undoes one
    difference: it disables a part that the method adds, restores a part that it changes, or puts back a part that it
    leaves out. Every variant is compared with the full method. Parts that cannot be disabled are listed with reasons.
    Ctrl-C saves and stops; the same command resumes. docs/compare.md defines every number."""

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
    parent_name = options.parent or parent(base.method, find(base.method))
    console = terminal(options.quiet)
    variants, refused = _variants(base, parent_name, options)
    _print_variants(base, parent_name, variants, refused, console)
    if options.list:
        return 0
    if not variants:
        raise ValueError(f"no part of {base.method} can be disabled against {parent_name}; try another --parent")
    plan = plan_of((base, *_parent(parent_name, options), *variants), "ablate", options)
    command = shlex.join(["burnish", "ablate", *words])
    ran = run(plan, console, f"{base.label} and {len(variants)} variants on {options.task}", options)
    if any(row.done for row in ran.rows):
        results = board(ran.rows, threshold=options.threshold, against=base.label)
        title = f"{base.label} on {options.task}, part by part"
        report(results, plan.out, console, command, extra=_html(refused), title=title)
    return unfinished(ran, console, command)


def _variants(
    base: Candidate, parent_name: str, options: AblateOptions
) -> tuple[tuple[Candidate, ...], dict[str, str]]:
    """The variants that can be built, and the labels of the others with the reason."""
    from burnish.compare.ablation import applied, build_parent, changes
    from burnish.compare.plan import Candidate
    from burnish.config.options import configure
    from burnish.methods.table import find
    from burnish.tasks.resolve import resolve_task

    source = resolve_task(options.task, options.reward)
    entry = find(base.method)
    config = configure(entry, base.method, {**shared_flags(options), **base.flags})
    method = entry.build(source, **config.arguments)
    parent_method = build_parent(find(parent_name), source, config.arguments)
    variants, refused = [], {}
    for change in changes(method, parent_method):
        label = change.label(parent_name)
        try:
            applied(method, parent_method, change)
        except ValueError as error:
            refused[label] = str(error).split(": ", 1)[-1].split(";")[0]  # the fault without the advice after ";"
        else:
            variants.append(Candidate(label, base.method, base.flags, {"parent": parent_name, **asdict(change)}))
    return tuple(variants), refused


def _parent(parent_name: str, options: AblateOptions) -> tuple[Candidate, ...]:
    """The parent as a candidate; empty if it needs flags that were not given."""
    from burnish.compare.plan import Candidate
    from burnish.config.options import configure
    from burnish.methods.table import find

    try:
        configure(find(parent_name), parent_name, shared_flags(options))
    except ValueError:
        return ()
    return (Candidate(parent_name, parent_name),)


def _print_variants(
    base: Candidate, parent_name: str, variants: tuple[Candidate, ...], refused: dict[str, str], console: Console
) -> None:
    differences = len(variants) + len(refused)
    console.print(Text.assemble((base.label, "bold cyan"), f" is {parent_name} with {differences} differences"))
    for variant in variants:
        console.print(Text(f"  {variant.label}"))
    for label, why in refused.items():
        console.print(Text.assemble((f"  {label}: cannot be run alone", "dim"), (f" ({why})", "dim")), soft_wrap=True)


def _html(refused: dict[str, str]) -> str:
    from burnish.compare.page import table

    if not refused:
        return ""
    rows = [[(label, "name"), (why, "")] for label, why in refused.items()]
    return "<h2>What cannot be changed alone</h2>" + table(["change", "why"], rows)
