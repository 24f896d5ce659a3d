"""The summary of all studies: one table and one forest plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from burnish.report.charts import Row, interval_chart, standalone
from burnish.studies.page import shown, wrapped
from burnish.studies.results import Raw
from burnish.studies.rules import FAILS, HOLDS, SCALE, UNDECIDED, VERDICTS, AnyOf, Part
from burnish.studies.study import Study
from burnish.studies.verdicts import Verdict

COLOURS = {HOLDS: 4, FAILS: 2, UNDECIDED: 8, SCALE: 3}
SPAN = 3.0  # the forest plot ends so many times the distance from no effect to enough for the claim away
INTRODUCTION = """Claims of published papers, each tested here by an experiment whose rule, margin, arms, seeds and
budget stood in a claim file before its first run. The verdicts are computed from the raw results.
[How it works](../studies.md); `scripts/write_studies.py` writes these pages from the raw
results in `benchmarks/results/studies`."""
READ = """In the plot, 0 is no effect (or the bound at which a claim fails) and 1 is enough for the claim: a margin, a
ratio, a share. Claims that two things are alike hold near 0; their bar must lie within 1 on both sides. Bars are 95%
intervals, cut at the ends of the axis."""


@dataclass(frozen=True)
class Entry:
    """A study with its results, if it has any."""

    study: Study
    raw: Raw | None
    verdicts: tuple[Verdict, ...]


def counts(entries: Sequence[Entry]) -> dict[str, int]:
    """How many claims have each verdict."""
    found_in = [one.verdict for entry in entries if entry.raw is not None for one in entry.verdicts]
    return {verdict: found_in.count(verdict) for verdict in VERDICTS}


def summary(entries: Sequence[Entry], picture: str) -> str:
    """The page of all studies; picture: the file of the forest plot, or empty."""
    ran = [entry for entry in entries if entry.raw is not None]
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts(entries).items())
    quick = sum(entry.raw is not None and entry.raw.quick for entry in entries)
    line = (
        f"{len(ran)} studies with results ({quick} of them quick runs), {sum(counts(entries).values())} claims: {said}."
    )
    lines = ["| study | claim | effect [95%] | verdict |", "|---|---|---|---|"]
    for entry in ran:
        link = f"[{entry.study.name}]({entry.study.name}.md)"
        kind = " (quick)" if entry.raw is not None and entry.raw.quick else ""
        for place, one in enumerate(entry.verdicts):
            effect = shown(deciding(one)) if one.parts else one.why
            lines.append(
                f"| {f'{link}{kind}' if not place else ''} | {one.claim.text} | {effect} | **{one.verdict}** |"
            )
    parts = ["# Studies", INTRODUCTION, line, "\n".join(lines) if ran else "", *_carried(ran)]
    if picture:
        parts[3:3] = [f"![All claims in one plot]({picture})", READ]
    unrun = [entry.study.name for entry in entries if entry.raw is None]
    if unrun:
        parts += ["## Not yet run", "\n".join(f"- [{name}]({name}.md)" for name in unrun)]
    return "\n\n".join(wrapped(part) for part in parts if part) + "\n"


def _carried(entries: Sequence[Entry]) -> list[str]:
    """Which claims carry over to the small models here, and which do not, each with its study."""
    heads = {HOLDS: "## What carries over", FAILS: "## What does not", SCALE: "## What these models cannot show"}
    parts = []
    for verdict, head in heads.items():
        found = [
            f"- {one.claim.text} ([{entry.study.name}]({entry.study.name}.md))"
            for entry in entries
            for one in entry.verdicts
            if one.verdict == verdict
        ]
        parts += [head, "\n".join(wrapped(line) for line in found)] if found else []
    return parts


def forest(entries: Sequence[Entry]) -> str:
    """One row for each claim with a result: the part it hangs on, from no effect (0) to enough for the claim (1)."""
    rows = []
    for entry in entries:
        for one in entry.verdicts if entry.raw is not None else ():
            if not one.parts or not math.isfinite(deciding(one).mean):
                continue
            low, value, high = sorted(placed(deciding(one), x) for x in _ends(deciding(one)))
            label = f"{entry.study.name}: {one.claim.name}"
            rows.append(Row(label, value, low, high, one.verdict, COLOURS[one.verdict], one.verdict == UNDECIDED))
    if not rows:
        return ""
    chart = interval_chart(
        rows, title="Effects, in units of what each claim needs", x_range=(-SPAN, SPAN), rule=1.0, width=980
    )
    return standalone(chart)


def deciding(one: Verdict) -> Part:
    """The part that a claim hangs on: of several that must all hold the weakest, of alternatives the strongest."""
    strength = [placed(part, part.mean) if math.isfinite(part.mean) else -SPAN for part in one.parts]
    chosen = max(strength) if isinstance(one.claim.rule, AnyOf) else min(strength)
    return one.parts[strength.index(chosen)]


def _ends(part: Part) -> tuple[float, float, float]:
    return part.low, part.mean, part.high


def placed(part: Part, value: float) -> float:
    """A value on the axis of the forest plot, cut at its ends."""
    size = part.one - part.zero
    scaled = (value - part.zero) / size if size else 0.0
    return max(-SPAN, min(SPAN, scaled))
