"""Write the tables of docs/performance.md and docs/dev/benchmarks.md from the runs in benchmarks/results.

    python benchmarks/tables.py            write them
    python benchmarks/tables.py --check    check that the pages are up to date (exit code 1 if not)

A table stands between a marker such as `<!-- table:gpu -->` and `<!-- end -->`. The name after the colon is that of the
JSON file. The kinds of marker:

    summary       one row per baseline: burnish, baseline, speed-up, memory
    table         one row per side, with quartiles and the number of runs
    goals         the goals, and whether they are reached
    missed        only the goals that are not reached
    environment   the machine and the library versions
    pictures      the plots that plots.py has drawn
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

DOCS = ROOT / "docs"
PAGES = (DOCS / "performance.md", DOCS / "dev" / "benchmarks.md")
_PLACE = re.compile(
    r"(<!-- (summary|table|goals|missed|environment|pictures):([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL
)
NOTHING = "*Not measured yet.*\n"


def filled(page: str) -> str:
    """Return the page with every marked table written from the results that exist."""

    def fill(place: re.Match[str]) -> str:
        if place[2] == "pictures":
            return place[1] + pictures(place[3]) + place[4]
        path = RESULTS / f"{place[3]}.json"
        content = json.loads(path.read_text()) if path.is_file() else None
        write = _WRITERS[place[2]]
        return place[1] + (write(content) if content else NOTHING) + place[4]

    return _PLACE.sub(fill, page)


def summary(content: Mapping[str, Any]) -> str:
    """A table with one row per part and baseline: medians, speed-up, peak memory of both. Parts without
    one come last.
    """
    lines = ["| work | burnish | baseline | speed-up | peak GiB |", "|---|--:|--:|--:|--:|"]
    alone = []
    for part in content["parts"].values():
        measured = [side for side, entry in part["sides"].items() if entry["runs"]]
        if OURS not in measured or "points" in part["facts"]:
            continue
        if measured == [OURS]:
            alone.append(f"| {part['title']} | {_median(part, OURS)} | | | {_peak(part, OURS)} |")
        for side in measured:
            better = times_better(part, OURS, side) if side != OURS else None
            if better:
                cells = (part["title"], _median(part, OURS), f"{side} {_median(part, side)}", f"{better:.3g}x")
                lines.append(f"| {' | '.join(cells)} | {_peak(part, OURS)} / {_peak(part, side)} |")
    return "\n".join(lines + alone) + "\n"


def _median(part: Mapping[str, Any], side: str) -> str:
    middle = statistics.median(values(part, side, "rate" if part["rate"] else "seconds"))
    return f"{shown(middle)} {unit(part['rate'])}"


def _peak(part: Mapping[str, Any], side: str) -> str:
    return f"{statistics.median(values(part, side, 'peak_bytes')) / 2**30:.2f}"


def table(content: Mapping[str, Any]) -> str:
    """A table of all parts that have a baseline, one row per side."""
    lines = ["| work | side | median | quartiles | n | peak GiB | speed-up |", "|---|---|--:|--:|--:|--:|--:|"]
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
            cells = (
                part["title"],
                f"**{side}**" if side == OURS else side,
                f"{shown(middle)} {unit(part['rate'])}",
                f"{shown(low)} .. {shown(high)}",
                str(len(entry["runs"])),
                _peak(part, side),
                f"{better:.3g}x" if better else "",
            )
            lines.append("| " + " | ".join(cells) + " |")
        notes += [f"- in `{name}` the work differs between the sides: {problem}" for problem in disagreements(part)]
    return "\n".join(lines) + "\n" + ("\n" + "\n".join(notes) + "\n" if notes else "")


def goals(content: Mapping[str, Any]) -> str:
    """A table of the goals and of what was reached."""
    lines = ["| work | goal | reached | |", "|---|---|--:|---|"]
    for name, part in content["parts"].items():
        for given in part["goals"]:
            goal = Goal(**given)
            found = reached(goal, name, content["parts"])
            got = "" if found is None else _reached(goal, found[0])
            verdict = "not measured" if found is None else "yes" if found[1] else "**no**"
            lines.append(f"| {part['title']} | {goal.text()} | {got} | {verdict} |")
    return "\n".join(lines) + "\n"


def missed(content: Mapping[str, Any]) -> str:
    """The rows of the goals that are not reached."""
    head, rule, *rows = goals(content).splitlines()
    left = [row.removesuffix(" **no** |") for row in rows if row.endswith("**no** |")]
    if not left:
        return "All goals are reached.\n"
    return "\n".join([head.removesuffix(" |"), rule.removesuffix("---|"), *left]) + "\n"


def _reached(goal: Goal, value: float) -> str:
    if goal.against:
        return f"{value:.3g}x"
    if goal.of == "floor":
        return f"{value:.0%}"
    return shown(value, "s" if goal.of == "seconds" else "")


def environment(content: Mapping[str, Any]) -> str:
    """The machine and the versions, in one line."""
    found = content["environment"]
    where = f"{found['gpu']} ({found['gpu_memory_gib']} GiB), " if "gpu" in found else ""
    where += f"{found['cpu']}, {found['cores']} cores"
    return f"{where}; Python {found['python']}, torch {found['torch']}, transformers {found['transformers']}.\n"


def pictures(name: str) -> str:
    """Links to the plots that exist."""
    words = {"peers": "burnish and the baselines", "sweep": "sampling speed by batch, length and group size"}
    found = [f"![{said}](performance/{name}-{kind}.svg)\n" for kind, said in words.items() if _drawn(name, kind)]
    return "\n".join(found) or NOTHING


def _drawn(name: str, kind: str) -> bool:
    return (DOCS / "performance" / f"{name}-{kind}.svg").is_file()


def _one_line(text: str) -> str:
    return " ".join(text.split())[:200]


_WRITERS = {"summary": summary, "table": table, "goals": goals, "missed": missed, "environment": environment}


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--check", action="store_true", help="write nothing; fail if a page is not up to date")
    check = reader.parse_args().check
    outdated = []
    for page in PAGES:
        old = page.read_text()
        new = filled(old)
        if new != old:
            outdated.append(page.name)
        if not check:
            page.write_text(new)
            print(f"wrote the tables of {page.name}")
    if check and outdated:
        sys.exit(f"not up to date: {', '.join(outdated)}; run python benchmarks/tables.py")


if __name__ == "__main__":
    main()
