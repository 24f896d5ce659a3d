"""`burnish study`: published claims, tested by experiments that were written down before their first run."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from burnish.config.flags import read
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from burnish.studies.study import Study
    from burnish.studies.summary import Entry


@dataclass(frozen=True)
class StudyOptions:
    """burnish study list                              all studies, and what became of their claims
    burnish study show NAME                         one: claims, rules, arms, budget
    burnish study run NAME [--quick]                run it; the same command resumes
    burnish study report NAME | --all               verdicts from the results, and a page for each study

    NAME is a study of the list, or your own claim file: my_claim.yaml (docs/studies.md). The rule, the margin, the arms
    and the seeds stand in the claim file before the first run, and the verdict is computed: holds, does not hold here,
    undecided, or needs scale. --quick runs the small version: fewer tasks and seeds, minutes on two cores."""

    quick: bool = False
    """The small version of the study."""
    double: bool = False
    """Twice the seeds: once, where the study is undecided."""
    workers: int | None = None
    """Runs in parallel; by default one per GPU, or one per core."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    limit_seconds: float | None = None
    """Save and stop after this many seconds; the same command resumes."""
    out: str | None = None
    """The folder of the runs, by default runs/study-NAME; with report --all the folder of the pages."""
    results: str | None = None
    """report: a folder with raw results, NAME.json, in place of those of runs/."""
    all: bool = False
    """report: all studies that have results, and a summary with one forest plot."""
    check: bool = False
    """run: check the claim file and its arms, and run nothing."""
    prepare: bool = False
    """run: make the models and the data that the arms start from, and end there."""
    quiet: bool = False
    """Plain lines only."""


def main(words: list[str]) -> int:
    asked = read(StudyOptions, "study", words, plain=2)
    if asked is None:
        return 0
    plain, options = asked
    console = stdout_console()
    verb, names = (plain[0] if plain else "list"), plain[1:]
    if verb == "list":
        return _list(console)
    if verb not in ("show", "run", "report"):
        raise ValueError(f"burnish study {verb}: write list, show NAME, run NAME or report NAME")
    if not names and not (verb == "report" and options.all):
        raise ValueError(f"say which study: burnish study {verb} NAME (burnish study list names them)")
    if verb == "report" and options.all:
        return _report_all(options, console)
    from burnish.studies.claim_file import read_study

    study = read_study(names[0])
    if verb == "show":
        return _show(study, console)
    return (
        _run(study, options, shlex.join(["burnish", "study", *words]))
        if verb == "run"
        else _report(study, options, console)
    )


def folder(study: Study, options: StudyOptions) -> Path:
    """The folder of a study's runs."""
    return Path(options.out) if options.out else Path("runs") / f"study-{study.name}{'-quick' if options.quick else ''}"


def _list(console: Console) -> int:
    from burnish.studies.catalogue import entries

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name, style in (("study", "cyan"), ("arxiv", "dim"), ("state", None), ("paper", None)):
        table.add_column(name, style=style, no_wrap=name in ("study", "arxiv"))
    rows = entries()
    for row in rows:
        table.add_row(row.name, row.papers[0].arxiv, row.state, row.papers[0].title)
    console.print(table)
    console.print(f"{len(rows)} studies. burnish study show NAME prints one, burnish study run NAME --quick runs it.")
    return 0


def _show(study: Study, console: Console) -> int:
    from burnish.studies.page import page
    from burnish.studies.verdicts import Verdict

    text = page(study, None, [Verdict(claim, "not run") for claim in study.claims])
    console.print(text, markup=False, highlight=False, soft_wrap=True, end="")
    return 0


def _run(study: Study, options: StudyOptions, command: str) -> int:
    from burnish.commands.many import terminal
    from burnish.commands.recipe import makers
    from burnish.report.progress import ProgressLines, ProgressScreen
    from burnish.studies.runner import Asked, plan_of, prepared, run_study

    console = terminal(options.quiet)
    asked = Asked(options.quick, options.double, options.workers, options.device, options.limit_seconds)
    out = folder(study, options)
    plan = plan_of(study, out, asked)
    runs = len(plan.tuning()) + sum(map(len, plan.waves({})))
    kind = "quick version" if options.quick else "full version"
    console.print(
        Text.assemble(("burnish ", "bold"), f"study {study.name}, {kind}: {runs} runs in {out}"), soft_wrap=True
    )
    if options.check:
        return 0
    say: Callable[[str], None] = lambda text: console.print(text, style="bold", markup=False, soft_wrap=True)  # noqa: E731
    plain = options.quiet or not console.is_terminal

    def display() -> ProgressLines | ProgressScreen:
        return ProgressLines(console) if plain else ProgressScreen(console)

    if options.prepare:
        done = not study.prepare or prepared(plan, makers(), display, say) is not None
        return 0 if done else 130
    ran = run_study(plan, asked, console, makers(), display, say)
    if not ran.complete:
        console.print(Text(f"Stopped: {ran.why}. Resume with", "yellow"))
        console.print(Text(f"  {command}", "cyan"), soft_wrap=True)
        return 130
    return _report(study, options, console)


def _report(study: Study, options: StudyOptions, console: Console) -> int:
    from burnish.studies.page import figure, page, shown

    out = folder(study, options)
    file = Path(options.results) / f"{study.name}.json" if options.results else out / "results.json"
    entry = _entry(study, file)
    raw = entry.raw
    assert raw is not None
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for head in ("claim", "measured", "effect [95%]", "verdict"):
        table.add_column(head)
    for one in entry.verdicts:
        for i, part in enumerate(one.parts):
            name, verdict = ("", "") if i else (one.claim.name, one.verdict)
            table.add_row(name, part.what, shown(part), Text(verdict, "bold"))
        if one.why:
            table.add_row(
                "" if one.parts else one.claim.name, Text(one.why, "yellow"), "", "" if one.parts else one.verdict
            )
    console.print(table)
    picture = figure(study, raw)
    if not options.results:
        (out / "report.svg").write_text(picture)
        (out / "report.md").write_text(
            page(study, raw, entry.verdicts, "report.svg" if picture else "", "https://arxiv.org")
        )
        console.print(Text.assemble((f"{out / 'report.md'}", "cyan"), ("   the whole report", "dim")), soft_wrap=True)
    return 0


def _entry(study: Study, file: Path) -> Entry:
    from burnish.studies.results import read_raw
    from burnish.studies.summary import Entry
    from burnish.studies.verdicts import judge

    raw = read_raw(file, study.full)
    return Entry(study, raw, tuple(judge(study, raw.runs)))


def _report_all(options: StudyOptions, console: Console) -> int:
    """Pages of all studies, an index with a forest plot, from a folder of raw results or from runs/."""
    from burnish.studies.claim_file import names, read_study
    from burnish.studies.site import write_pages
    from burnish.studies.summary import Entry
    from burnish.studies.verdicts import Verdict

    out = Path(options.out or "runs/studies")
    entries = []
    for name in names():
        study = read_study(name)
        files = (
            [Path(options.results) / f"{name}.json"]
            if options.results
            else [Path("runs") / f"study-{name}{kind}" / "results.json" for kind in ("", "-quick")]
        )
        file = next((one for one in files if one.is_file()), None)
        unrun = tuple(Verdict(claim, "not yet run") for claim in study.claims)
        entries.append(_entry(study, file) if file else Entry(study, None, unrun))
    write_pages(entries, out)
    console.print(
        Text.assemble((f"{out / 'README.md'}", "cyan"), ("   the summary of all studies", "dim")), soft_wrap=True
    )
    return 0
