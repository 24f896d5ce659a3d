"""Write docs/studies from the raw results of studies: a page for each, the summary, the forest plot; and the states
that `burnish papers` shows.

    python scripts/write_studies.py                                write the pages anew
    python scripts/write_studies.py --merge build/studies          take over results of scripts/run_studies.py first

Raw results are kept in benchmarks/results/studies/NAME.json. A full study replaces a quick one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from burnish.studies.catalogue import STATES
from burnish.studies.claim_file import names, read_study
from burnish.studies.plan import Plan
from burnish.studies.results import compact, read_raw
from burnish.studies.site import state, write_pages
from burnish.studies.study import Study
from burnish.studies.summary import Entry
from burnish.studies.verdicts import Verdict, judge

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "studies"
PAGES = ROOT / "docs" / "studies"


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--merge", type=Path, nargs="*", default=[], help="folders with a folder for each study")
    asked = flags.parse_args()
    studies = [read_study(name) for name in names()]
    for folder in asked.merge:
        for study in studies:
            merge(study, folder)
    entries = [entry(study) for study in studies]
    write_pages(entries, PAGES)
    states = {one.study.name: state(one) for one in entries if one.raw is not None}
    STATES.write_text(json.dumps(states, indent=1) + "\n")
    print(f"{len(states)} studies with results of {len(entries)} claim files, in {PAGES}")


def merge(study: Study, folder: Path) -> None:
    """Take over the results of a study: the full ones where all runs are done, else the quick ones."""
    curves = "fall" in str(study.claims)
    target = RESULTS / f"{study.name}.json"
    for name, full in ((study.name, True), (f"{study.name}-quick", False)):
        file = folder / name / "results.json"
        known = read_raw(target, study.full) if target.is_file() else None
        if not file.is_file() or not complete(study, file, quick=not full):
            continue
        if known is None or full or known.quick:
            compact(file, target, curves=curves)
            return


def complete(study: Study, file: Path, *, quick: bool) -> bool:
    """Whether every arm of the design has all its runs."""
    plan = Plan(study, study.design(quick), file.parent)
    rows = read_raw(file, study.full).runs.rows
    wanted = [(arm.name, task) for arm in plan.arms for task in plan.design.on]
    return all(len(rows.get(arm, {}).get(task, ())) >= plan.design.seeds for arm, task in wanted)


def entry(study: Study) -> Entry:
    file = RESULTS / f"{study.name}.json"
    if not file.is_file():
        return Entry(study, None, tuple(Verdict(claim, "not yet run") for claim in study.claims))
    raw = read_raw(file, study.full)
    return Entry(study, raw, tuple(judge(study, raw.runs)))


if __name__ == "__main__":
    main()
