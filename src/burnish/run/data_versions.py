"""The datasets of a run with the versions of their rows (rows.json in its folder).

Which rows a step draws depends on the seed and on the rows that there are. A run records which rows it was trained on
from which step on; resuming with others gives a warning, because it no longer repeats what an uninterrupted run does.
"""

from __future__ import annotations

from burnish.run.folder import Folder
from burnish.run.reward_versions import Versions, entries, record_in
from burnish.tasks.resolve import datasets_of
from burnish.tasks.source import Source

FILE = "rows.json"


def present(source: Source) -> Versions:
    """The version of the rows of every dataset of a run."""
    return {dataset.name: dataset.version() for dataset in datasets_of(source)}


def change(folder: Folder, start: int, now: Versions) -> str:
    """A warning if the run had other rows up to step `start`; otherwise an empty string."""
    earlier = entries(folder, start, FILE)
    if not start or not earlier or earlier[-1] == now:
        return ""
    names = [name for name in {**earlier[-1], **now} if earlier[-1].get(name) != now.get(name)]
    both = ", ".join(f"{name}: {earlier[-1].get(name) or 'none'} -> {now.get(name) or 'none'}" for name in names)
    return (
        f"the rows are not those that the run had up to step {start} ({both}): from here on it draws others than an "
        "uninterrupted run would"
    )


def record(folder: Folder, start: int, now: Versions) -> None:
    """Record in rows.json that these rows are drawn after `start` steps."""
    record_in(folder, start, now, FILE)
