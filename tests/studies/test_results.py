"""What is said of the studies is what the raw results give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from burnish.commands.papers import index
from burnish.studies.catalogue import states
from burnish.studies.claim_file import names, read_study
from burnish.studies.page import figure, page
from burnish.studies.results import read_raw
from burnish.studies.site import state
from burnish.studies.summary import Entry
from burnish.studies.verdicts import judge

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "benchmarks" / "results" / "studies").glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_verdicts_and_pages_are_computed_from_the_raw_results(file: Path) -> None:
    study = read_study(file.stem)
    raw = read_raw(file, study.full)
    entry = Entry(study, raw, tuple(judge(study, raw.runs)))
    assert states()[study.name] == state(entry), "run scripts/write_studies.py"
    picture = f"{study.name}.svg" if figure(study, raw) else ""
    written = (ROOT / "docs" / "studies" / f"{study.name}.md").read_text()
    assert written == page(study, raw, entry.verdicts, picture), "run scripts/write_studies.py"
    assert json.loads(file.read_text())["about"]["claim_file"], "the hash of the claim file at its first run"


def test_papers_lists_every_study_with_its_state() -> None:
    rows = {row["name"]: row for row in index() if row["kind"] == "study"}
    assert len(rows) == 33 and all(row["state"] for row in rows.values())
    for name, text in states().items():
        assert rows[name]["state"] == text
    assert set(names()) == set(rows), "every study of the catalogue has a claim file"
