"""Write the pages of all studies and the summary into a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from burnish.studies.page import figure, page
from burnish.studies.summary import Entry, counts, forest, summary

PLOT = "forest.svg"


def write_pages(entries: Sequence[Entry], out: Path, methods: str = "../methods") -> None:
    """A page and a figure for each study, README.md and the forest plot."""
    out.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        picture = figure(entry.study, entry.raw) if entry.raw is not None else ""
        name = f"{entry.study.name}.svg" if picture else ""
        if picture:
            (out / name).write_text(picture)
        (out / f"{entry.study.name}.md").write_text(page(entry.study, entry.raw, entry.verdicts, name, methods))
    plot = forest(entries)
    if plot:
        (out / PLOT).write_text(plot)
    (out / "README.md").write_text(summary(entries, PLOT if plot else ""))


def state(entry: Entry) -> str:
    """The verdicts of a study in a few words: "2 hold, 1 undecided (quick)"."""
    assert entry.raw is not None
    found_in = [f"{count} {verdict}" for verdict, count in counts([entry]).items() if count]
    return ", ".join(found_in) + (" (quick)" if entry.raw.quick else "")
