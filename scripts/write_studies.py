"""Write docs/studies from the raw results of studies: a page for each, the summary, the forest plot; and the states
that `burnish papers` shows.

    python scripts/write_studies.py                                write the pages anew
    python scripts/write_studies.py --merge build/studies          take over results of scripts/run_studies.py first

Raw results are kept in benchmarks/results/studies/NAME.json. A full study replaces a quick one. Of a full study whose
time ran out, the seeds that all arms have are kept, if they are enough; its page says how many of how many they are.
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

ENOUGH = 4  # seeds of a full study whose time ran out
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
    """Take over the results of a study: the full ones where all runs of enough seeds are done, else the quick ones."""
    curves = "fall" in str(study.claims)
    target = RESULTS / f"{study.name}.json"
    for name, full in ((study.name, True), (f"{study.name}-quick", False)):
        file = folder / name / "results.json"
        known = read_raw(target, study.full) if target.is_file() else None
        if not file.is_file():
            continue
        seeds = whole_seeds(study, file, quick=not full)
        if seeds < (min(ENOUGH, study.full.seeds) if full else study.quick.seeds):
            continue
        if known is None or known.quick or (full and seeds >= known.seeds):
            compact(file, target, curves=curves, seeds=seeds)
            return


def whole_seeds(study: Study, file: Path, *, quick: bool) -> int:
    """How many of the first seeds every arm of the design has on every task."""
    plan = Plan(study, study.design(quick), file.parent)
    rows = read_raw(file, study.full).runs.rows
    have = [{row.seed for row in rows.get(arm.name, {}).get(task, ())} for arm in plan.arms for task in plan.design.on]
    common = set.intersection(*have)
    return next(seed for seed in range(len(common) + 1) if seed not in common)


def entry(study: Study) -> Entry:
    file = RESULTS / f"{study.name}.json"
    if not file.is_file():
        return Entry(study, None, tuple(Verdict(claim, "not yet run") for claim in study.claims))
    raw = read_raw(file, study.full)
    return Entry(study, raw, tuple(judge(study, raw.runs)))


if __name__ == "__main__":
    main()
