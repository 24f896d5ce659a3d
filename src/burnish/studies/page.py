"""The page of a study in Markdown, with its figure: everything on it is computed from the raw results."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from burnish.compare.board import scores
from burnish.compare.budget import written
from burnish.compare.statistics import interval
from burnish.report.charts import Row, interval_chart, percent, standalone
from burnish.studies.claim_file import file_of
from burnish.studies.results import Raw
from burnish.studies.rules import Part
from burnish.studies.study import Arm, Design, Study
from burnish.studies.verdicts import Verdict, changed_claim_file

WIDTH = 860  # of the figure, in pixels
COLUMNS = 118  # of the text


def page(
    study: Study, raw: Raw | None, verdicts: Sequence[Verdict], picture: str = "", methods: str = "../methods"
) -> str:
    """The page. raw: None where nothing has been run; methods: where the pages of the methods are."""
    parts = [
        f"# {study.source.title}",
        f"{_head(study)} {_raw(study, raw)}".strip(),
        "\n".join(f"- {line}" for line in study.quoted),
    ]
    if raw is None:
        parts.append("**Not yet run.** The claim file is there; `burnish study run` makes the results.")
    else:
        parts += ["## Verdicts", _ran(study, raw), _table(verdicts, raw), _notes(study, raw, verdicts)]
        parts.append(f"![The arms with their intervals]({picture})" if picture else "")
    parts += ["## Rules", *(_rule(verdict) for verdict in verdicts)]
    parts += ["## Design", _design(study, raw), _arms(study, raw, methods)]
    if study.departures:
        parts += ["## What differs from the paper", "\n".join(f"- {line}" for line in study.departures)]
    if study.untested:
        parts += ["## What was not tested", "\n".join(f"- {line}" for line in study.untested)]
    parts += ["## Run it", _command(study, raw)]
    return "\n\n".join(wrapped(part) for part in parts if part) + "\n"


def wrapped(block: str) -> str:
    """Prose and lists in lines of at most 120 columns; tables, pictures, headings and code as they are."""
    lines = []
    for line in block.split("\n"):
        if line.startswith(("|", "    ", "!", "#")) or len(line) <= COLUMNS:
            lines.append(line)
            continue
        indent = "  " if line.startswith("- ") else ""
        lines += textwrap.wrap(line, COLUMNS, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def figure(study: Study, raw: Raw) -> str:
    """The final score of every arm with its interval, as an SVG file; the dashed line is the mean start."""
    rows, starts = [], []
    for place, task in enumerate(raw.runs.tasks):
        for arm in study.arms.values():
            runs = raw.runs.rows.get(arm.name, {}).get(task)
            if not runs or runs[0].measure != "accuracy":
                continue
            value = interval(scores(runs))
            label = arm.name if len(raw.runs.tasks) == 1 else f"{arm.name}, {task}"
            rows.append(Row(label, value.mean, value.low, value.high, percent(value.mean), place + 1))
            starts.append(runs[0].curve[0].value)
    if not rows:
        return ""
    title = "Held-out accuracy at the end; the dashed line is the start"
    rule = sum(starts) / len(starts)
    return standalone(interval_chart(rows, title=title, form=percent, rule=rule, width=WIDTH))


def shown(part: Part) -> str:
    """An estimate with its 95% interval in its unit."""
    if not math.isfinite(part.mean):
        return "not defined (the denominator may be 0)"
    scale, form = (100, "+.1f") if part.unit == "points" else (100, ".0f") if part.unit == "share" else (1, ".3g")
    ends = [f"{scale * value:{form}}" for value in (part.mean, part.low, part.high)]
    unit = {"points": " points", "share": "%"}.get(part.unit, "")
    return f"{ends[0]}{unit} [{ends[1]}, {ends[2]}]"


def _head(study: Study) -> str:
    link = f"[arXiv {study.source.arxiv}](https://arxiv.org/abs/{study.source.arxiv})" if study.source.arxiv else ""
    return f"{link}. {study.about}".removeprefix(". ")


def _raw(study: Study, raw: Raw | None) -> str:
    """Where the numbers of the page come from."""
    if raw is None:
        return "Its runs will be in `results.json` of their folder."
    return f"Every number is computed from the raw results, `{raw.file}`."


def _ran(study: Study, raw: Raw) -> str:
    kind = "A quick run" if raw.quick else "The full study"
    done = f"{raw.count} runs, {raw.seeds} seeds, {raw.seconds / 3600:.1f} hours of training steps on one core each"
    failed = f", {len(raw.failures)} runs failed" if raw.failures else ""
    if not raw.quick and raw.seeds < study.full.seeds:
        failed += f"; time ran out after {raw.seeds} of {study.full.seeds} seeds"
    changed = changed_claim_file(study, raw)
    return f"{kind}: {done}{failed}. Claim file `{study.sha}`.{f' **{changed}**' if changed else ''}"


def _table(verdicts: Sequence[Verdict], raw: Raw) -> str:
    lines = ["| claim | measured | effect [95%] | 90% | p (Holm) | verdict |", "|---|---|---|---|---|---|"]
    for one in verdicts:
        for place, part in enumerate(one.parts or (None,)):
            first = place == 0
            claim, verdict = (one.claim.text, f"**{one.verdict}**") if first else ("", "")
            if part is None:
                lines.append(f"| {claim} | {one.why} | - | - | - | {verdict} |")
                continue
            p = "-" if part.adjusted is None else "< 0.001" if part.adjusted < 0.001 else f"{part.adjusted:.3f}"
            lines.append(f"| {claim} | {part.what} | {shown(part)} | {_near(part)} | {p} | {verdict} |")
    return "\n".join(lines)


def _near(part: Part) -> str:
    scale = 100 if part.unit in ("points", "share") else 1
    if not math.isfinite(part.low90):
        return "-"
    return f"{scale * part.low90:.3g} to {scale * part.high90:.3g}"


def _notes(study: Study, raw: Raw, verdicts: Sequence[Verdict]) -> str:
    notes = [f"- {one.claim.name}: {one.why}." for one in verdicts if one.why and one.parts]
    tested = [part for one in verdicts for part in one.parts if part.p is not None]
    if tested and all(part.least * len(tested) > 0.05 for part in tested):
        notes.append(
            f"- {raw.seeds} seeds cannot give p <= 0.05 for {len(tested)} tests after Holm's correction: no claim of a "
            "difference can hold with them."
        )
    ends = {min(study.tune, default=0), max(study.tune, default=0)}
    edge = [arm for arm, rate in raw.rates.items() if rate in ends]
    if edge:
        notes.append(
            f"- The learning rate that was chosen is at an end of its grid for {', '.join(edge)}: one beyond it may be "
            "better."
        )
    reasons = sorted({f"{row.label}: {row.reason}" for row in raw.failures})
    notes += [f"- failed: {reason}" for reason in reasons[:5]]
    return "\n".join(notes)


def _rule(verdict: Verdict) -> str:
    claim = verdict.claim
    lines = [f"**{claim.name}**: {claim.text}", f"Holds if {claim.rule.said()}. Anything else is undecided."]
    for check in claim.checks:
        lines.append(f"Check first: {check.said().partition(':')[0]}; otherwise the verdict is {claim.otherwise}.")
    if claim.guess:
        lines.append(f"Guess before the first run: {claim.guess}")
    if claim.change:
        lines.append(f"What would change it: {claim.change}")
    return "\n\n".join(lines)


def _design(study: Study, raw: Raw | None) -> str:
    design = study.design(raw.quick if raw else False)
    options = ", ".join(f"{key}={value}" for key, value in study.options.items())
    return (
        f"Model `{study.model}`; tasks {', '.join(f'`{task}`' for task in design.on)}; {design.seeds} seeds; "
        f"{_budget(design)} a run; {design.tasks} held-out tasks x {design.replies} replies"
        + (f"; all arms have {options}" if options else "")
        + "."
        + _grid(study, design)
    )


def _budget(design: Design) -> str:
    return f"{written(design.budget.limit)} {design.budget.unit}"


def _grid(study: Study, design: Design) -> str:
    if not study.tune:
        return ""
    rates = ", ".join(f"{rate:g}" for rate in study.tune)
    return (
        f" The learning rate of each arm is the best of {rates} on {design.dev_seeds} development seeds, which "
        "serve for nothing else."
    )


def _arms(study: Study, raw: Raw | None, methods: str) -> str:
    lines = ["| arm | method | settings | lr | what it is |", "|---|---|---|---|---|"]
    for arm in study.arms.values():
        if raw is not None and arm.name not in raw.runs.rows:
            continue
        rate = raw.rates.get(arm.name) if raw else None
        settings = [f"{key}={value}" for key, value in arm.flags.items()]
        settings += [f"learns={arm.learns}"] if arm.learns else []
        settings += [str(arm.budget)] if arm.budget else []
        text = ", ".join(f"`{one}`" for one in settings) or "-"
        lines.append(
            f"| {arm.name} | {_method(arm, methods)} | {text} | {f'{rate:g}' if rate else '-'} | {arm.about} |"
        )
    return "\n".join(lines)


def _method(arm: Arm, methods: str) -> str:
    return (
        arm.method if arm.method.endswith(".py") or ":" in arm.method else f"[{arm.method}]({methods}/{arm.method}.md)"
    )


def _command(study: Study, raw: Raw | None) -> str:
    name = study.name if file_of_box(study.name) else f"{study.name}.yaml"
    quick = " --quick" if raw is not None and raw.quick else ""
    lines = [f"    burnish study run {name}{quick}", f"    burnish study report {name}{quick}"]
    return "\n".join(lines)


def file_of_box(name: str) -> bool:
    """Whether a study of this name is in the box."""
    try:
        file_of(name)
    except ValueError:
        return False
    return True
