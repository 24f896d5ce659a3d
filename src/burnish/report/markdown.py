"""The report of one run as Markdown, for a pull request or a wiki."""

from __future__ import annotations

from burnish.report.page import made_with
from burnish.report.summary import RunReport, config_text, when


def markdown(report: RunReport) -> str:
    """The report as Markdown. Curves are a table of their first, last, smallest and largest values."""
    run = report.run
    parts = [
        f"# {run.method} on {run.task}",
        f"{run.path.name}, {run.model}, seed {run.seed}; {run.state} after {run.step} of {run.steps} steps; "
        f"started {when(run.created)}.",
        f"**{report.headline}**",
        *(f"> **{kind.replace('_', ' ')}**: {text}" for kind, text in report.worries.items()),
        _numbers(report),
        _time(report),
        samples(report),
        "## How to reproduce it\n\nSave this as `run.yaml`, then `burnish train run.yaml`.\n\n"
        f"```yaml\n{config_text(report.config)}```\n\n{made_with(report)}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _numbers(report: RunReport) -> str:
    rows = ["| metric | first | last | smallest | largest | what |", "|---|---|---|---|---|---|"]
    for curve in report.curves:
        values = [y for _, y in curve.points]
        cells = (f"{x:.1%}" if curve.share else f"{x:.4g}" for x in (values[0], values[-1], min(values), max(values)))
        rows.append(f"| `{curve.name}` | {' | '.join(cells)} | {curve.what} |")
    return "## Metrics\n\n" + "\n".join(rows) if report.curves else ""


def _time(report: RunReport) -> str:
    if not report.time:
        return ""
    shares = ", ".join(f"{name} {seconds / report.seconds:.0%}" for name, seconds in report.time)
    return f"## Where the time goes\n\n{report.seconds:.1f} s in {report.run.step} steps: {shares}."


def samples(report: RunReport) -> str:
    """Held-out answers before and after training, as a table."""
    if not report.samples:
        return ""
    rows = ["| prompt | before | after |", "|---|---|---|"]
    for sample in report.samples:
        before, after = _reply(sample.before, sample.before_right), _reply(sample.after, sample.after_right)
        rows.append(f"| {cell(sample.prompt)} | {before} | {after} |")
    return "## Held-out answers\n\n" + "\n".join(rows)


def _reply(text: str | None, right: bool) -> str:
    return "" if text is None else f"{'✓' if right else '✗'} {cell(text)}"


def cell(text: str) -> str:
    """Text escaped for a cell of a Markdown table."""
    return text.strip().replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ⏎ ")
