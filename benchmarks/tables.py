"""Fills the tables of docs/performance.md from the runs in benchmarks/results, between markers; never by hand.

    python benchmarks/tables.py            writes them
    python benchmarks/tables.py --check    says whether the page is up to date (exit code 1 if not)

A place for a table is `<!-- table:gpu -->` ... `<!-- end -->` (peers), `<!-- goals:gpu -->` (goals) or
`<!-- environment:gpu -->` (where it was measured) or `<!-- pictures:gpu -->` (what plots.py drew), with the name of the
JSON file after the colon.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Mapping
from typing import Any

from harness import OURS, RESULTS, ROOT, Goal, disagreements, shown, unit
from records import quartiles, reached, times_better, values

PAGE = ROOT / "docs" / "performance.md"
_PLACE = re.compile(r"(<!-- (table|goals|environment|pictures):([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
NOTHING = "*Not measured yet.*\n"


def filled(page: str) -> str:
    """The page with every marked place filled from the results that there are."""

    def fill(place: re.Match[str]) -> str:
        if place[2] == "pictures":
            return place[1] + pictures(place[3]) + place[4]
        path = RESULTS / f"{place[3]}.json"
        content = json.loads(path.read_text()) if path.is_file() else None
        write = {"table": table, "goals": goals, "environment": environment}[place[2]]
        return place[1] + (write(content) if content else NOTHING) + place[4]

    return _PLACE.sub(fill, page)


def table(content: Mapping[str, Any]) -> str:
    """A table of all parts that have peers, one row a side."""
    lines = ["| work | side | median | quartiles | n | peak GiB | burnish is |", "|---|---|--:|--:|--:|--:|--:|"]
    notes = []
    for name, part in content["parts"].items():
        if len(part["sides"]) < 2:
            continue
        of = "rate" if part["rate"] else "seconds"
        for side, entry in part["sides"].items():
            if not entry["runs"]:
                lines.append(f"| {part['title']} | {side} | failed | | | | |")
                notes.append(f"- {side} in `{name}` failed: {_one_line(entry.get('error', 'no reason'))}")
                continue
            low, middle, high = quartiles(values(part, side, of))
            better = times_better(part, OURS, side) if side != OURS else None
            peak = statistics.median(values(part, side, "peak_bytes")) / 2**30
            cells = (
                part["title"],
                f"**{side}**" if side == OURS else side,
                f"{shown(middle)} {unit(part['rate'])}",
                f"{shown(low)} .. {shown(high)}",
                str(len(entry["runs"])),
                f"{peak:.2f}",
                f"{better:.3g}x" if better else "",
            )
            lines.append("| " + " | ".join(cells) + " |")
        notes += [f"- in `{name}` the work was not quite the same: {problem}" for problem in disagreements(part)]
    return "\n".join(lines) + "\n" + ("\n" + "\n".join(notes) + "\n" if notes else "")


def goals(content: Mapping[str, Any]) -> str:
    """A table of what was to be reached, and what was."""
    lines = ["| work | goal | reached | |", "|---|---|--:|---|"]
    for name, part in content["parts"].items():
        for given in part["goals"]:
            goal = Goal(**given)
            found = reached(goal, name, content["parts"])
            got = "" if found is None else _reached(goal, found[0])
            verdict = "not measured" if found is None else "yes" if found[1] else "**no**"
            lines.append(f"| {part['title']} | {goal.text()} | {got} | {verdict} |")
    return "\n".join(lines) + "\n"


def _reached(goal: Goal, value: float) -> str:
    if goal.against:
        return f"{value:.3g}x"
    if goal.of == "floor":
        return f"{value:.0%}"
    return shown(value, "s" if goal.of == "seconds" else "")


def environment(content: Mapping[str, Any]) -> str:
    """Where it was measured, in one line."""
    found = content["environment"]
    where = f"{found['gpu']} ({found['gpu_memory_gib']} GiB), " if "gpu" in found else ""
    where += f"{found['cpu']}, {found['cores']} cores"
    return f"{where}; Python {found['python']}, torch {found['torch']}, transformers {found['transformers']}.\n"


def pictures(name: str) -> str:
    """The pictures that there are."""
    words = {"peers": "burnish beside its peers", "sweep": "sampling speed against batch, length and group size"}
    found = [f"![{said}](performance/{name}-{kind}.svg)\n" for kind, said in words.items() if _drawn(name, kind)]
    return "\n".join(found) or NOTHING


def _drawn(name: str, kind: str) -> bool:
    return (PAGE.parent / "performance" / f"{name}-{kind}.svg").is_file()


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--check", action="store_true", help="write nothing; fail if the page is not up to date")
    told = reader.parse_args()
    page = PAGE.read_text()
    new = filled(page)
    if told.check:
        sys.exit(0 if new == page else f"{PAGE.name} is not up to date; run python benchmarks/tables.py")
    PAGE.write_text(new)
    print(f"wrote the tables of {PAGE.name}")


if __name__ == "__main__":
    main()
