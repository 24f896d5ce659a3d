"""The report of one run as Markdown: the same story in plain text, for a pull request or a wiki."""

from __future__ import annotations

from burnish.report.page import made_with
from burnish.report.story import Story, config_text, when


def markdown(story: Story) -> str:
    """The whole text. Curves are a table of numbers: first, best, last."""
    run = story.run
    parts = [
        f"# {run.method} on {run.task}",
        f"{run.path.name}, {run.model}, seed {run.seed}; {run.state} after {run.step} of {run.steps} steps; begun {when(run.created)}.",
        f"**{story.headline}**",
        *(f"> **{kind.replace('_', ' ')}**: {text}" for kind, text in story.worries.items()),
        _numbers(story),
        _time(story),
        _samples(story),
        f"## To repeat it\n\nSave this as `run.yaml`, then `burnish train run.yaml`.\n\n```yaml\n{config_text(story.config)}```\n\n{made_with(story)}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _numbers(story: Story) -> str:
    rows = ["| metric | first | last | least | largest | what |", "|---|---|---|---|---|---|"]
    for curve in story.curves:
        values = [y for _, y in curve.points]
        cells = (f"{x:.1%}" if curve.share else f"{x:.4g}" for x in (values[0], values[-1], min(values), max(values)))
        rows.append(f"| `{curve.name}` | {' | '.join(cells)} | {curve.what} |")
    return "## Numbers\n\n" + "\n".join(rows) if story.curves else ""


def _time(story: Story) -> str:
    if not story.time:
        return ""
    shares = ", ".join(f"{name} {seconds / story.seconds:.0%}" for name, seconds in story.time)
    return f"## Where the time goes\n\n{story.seconds:.1f} s in {story.run.step} steps: {shares}."


def _samples(story: Story) -> str:
    if not story.samples:
        return ""
    rows = ["| prompt | before | after |", "|---|---|---|"]
    for one in story.samples:
        rows.append(
            f"| {_cell(one.prompt)} | {_said(one.before, one.before_right)} | {_said(one.after, one.after_right)} |"
        )
    return "## Held-out answers\n\n" + "\n".join(rows)


def _said(text: str | None, right: bool) -> str:
    return "" if text is None else f"{'✓' if right else '✗'} {_cell(text)}"


def _cell(text: str) -> str:
    """Text that cannot break out of its table."""
    return text.strip().replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ⏎ ")
