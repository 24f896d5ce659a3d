"""`burnish report RUN`: one run as a self-contained HTML page, and as Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from burnish.config.flags import read


@dataclass(frozen=True)
class ReportOptions:
    """burnish report RUN: configuration, curves, answers before and after, warnings, and how to reproduce it.

    Writes report.html (one self-contained file) and report.md into the run folder.
    RUN is a path, a name below runs/, the beginning of one, or `last`."""

    out: str | None = None
    """The folder to write into; by default the run folder."""


def main(words: list[str]) -> int:
    asked = read(ReportOptions, "report", words, plain=1)
    if asked is None:
        return 0
    plain, options = asked
    if not plain:
        raise ValueError("say which run: burnish report RUN (burnish runs lists them; `last` is the newest)")
    from burnish.report.catalogue import pick

    for path in write(pick(plain[0]), Path(options.out) if options.out else None):
        print(path)
    return 0


def write(run: Path, out: Path | None = None) -> list[Path]:
    """Write both reports of a run, and return their paths."""
    from burnish.report.catalogue import readable
    from burnish.report.markdown import markdown
    from burnish.report.page import html
    from burnish.report.summary import run_report
    from burnish.store.reader import open_store

    with readable(run), open_store(run) as store:
        summary = run_report(store)
    out = out or run
    out.mkdir(parents=True, exist_ok=True)
    pages = {"report.html": html(summary), "report.md": markdown(summary)}
    for name, text in pages.items():
        (out / name).write_text(text, encoding="utf-8")
    return [out / name for name in pages]
