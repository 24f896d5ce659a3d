"""The papers of kind `study`, and what became of their claims."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from burnish.papers import Paper, studies
from burnish.studies.claim_file import names, read_study

STATES = Path(__file__).with_name("verdicts.json")  # written by scripts/write_studies.py from the raw results


@dataclass(frozen=True)
class StudyEntry:
    """A row of the table of papers. state: its verdicts, or that there are none yet."""

    name: str
    papers: tuple[Paper, ...]
    state: str

    @property
    def example(self) -> str:
        return f"burnish study run {self.name} --quick"


def states() -> dict[str, str]:
    """Study -> its verdicts in a few words, as they were last computed."""
    stored = json.loads(STATES.read_text()) if STATES.is_file() else {}
    return {str(name): str(text) for name, text in stored.items()}


def entries() -> list[StudyEntry]:
    """All rows, in the order of their names."""
    verdicts = states()
    return [StudyEntry(paper.id, (paper,), verdicts.get(paper.id, "not yet run")) for paper in studies.ALL]


def papers_of_box() -> dict[str, Paper]:
    """The paper of each claim file in the box."""
    sources = {name: read_study(name).source for name in names()}
    return {name: Paper(one.id, one.arxiv, one.title) for name, one in sources.items()}
