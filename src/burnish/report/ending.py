"""What is said when a run ends: was it worth it, what does the model answer now, where is it, what next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from burnish.report.numbers import better_is_lower, written

if TYPE_CHECKING:
    from burnish.run.evaluate import Shown
    from burnish.run.heldout import Outcome
    from burnish.run.train import Result, Run

ANSWERS = 5


def verdict(result: Result, tasks: int) -> list[str]:
    """Held-out before and after with 95% intervals, and the gain."""
    before, after = result.before, result.after
    if after is None:
        return []
    name = after.name.removeprefix("held-out ")
    if before is None or before.name != after.name:
        return [f"held-out {name}: {estimate(after)}"]
    gain = after.value.mean - before.value.mean
    points = f"{100 * gain:+.1f} points" if name.endswith("accuracy") else f"{gain:+.3f}"
    lines = [f"held-out {name}: {estimate(before)} -> {estimate(after)}, {points}"]
    if (
        after.value.low < after.value.high
        and after.value.low <= before.value.high
        and before.value.low <= after.value.high
    ):
        lines.append(
            f"The 95% intervals overlap: on {tasks} tasks this may be chance. More --steps or --eval-tasks will tell."
        )
    elif better_is_lower(name) and gain > 0 or not better_is_lower(name) and gain < 0:
        lines.append("The model got worse: try a smaller --lr, or fewer --steps.")
    return lines


def estimate(outcome: Outcome) -> str:
    """A headline with its interval, where there is one."""
    name, value = outcome.name, outcome.value
    if value.low == value.high:
        return written(name, value.mean)
    return f"{written(name, value.mean)} [{written(name, value.low)}, {written(name, value.high)}]"


def answers(before: Outcome | None, after: Outcome | None) -> Table | None:
    """The first held-out prompts with the answers before and after, marked right or wrong."""
    if after is None or not after.shown:
        return None
    table = Table(title="The first held-out tasks", title_justify="left", title_style="bold", expand=True)
    table.add_column("prompt", ratio=3)
    earlier = {shown.prompt: shown for shown in before.shown} if before else {}
    if before:
        table.add_column("before", ratio=3)
    table.add_column("after", ratio=3)
    for now in after.shown[:ANSWERS]:
        was = [marked(earlier[now.prompt]) if now.prompt in earlier else Text()] if before else []
        table.add_row(one_line(now.prompt), *was, marked(now))
    return table


def marked(shown: Shown) -> Text:
    """A reply on one line, behind a tick or a cross."""
    mark, colour = ("✓ ", "green") if shown.correct else ("✗ ", "red")
    return Text.assemble((mark, colour), one_line(shown.reply))


def one_line(text: str, longest: int = 120) -> Text:
    """Text of several lines on one, cut to a length, without control characters."""
    flat = " ⏎ ".join(line for line in text.strip().splitlines() if line.strip())
    clean = "".join(c if c.isprintable() else "�" for c in flat)
    return Text(clean if len(clean) <= longest else clean[: longest - 1] + "…", overflow="fold")


def places(result: Result) -> list[tuple[str, str]]:
    found = [("run", str(result.folder))]
    return [("model", str(result.model)), *found] if result.model else found


def next_steps(run: Run, result: Result) -> list[tuple[str, str]]:
    """Commands that make sense now, with what they do."""
    options, folder = run.config.options, shlex.quote(str(result.folder))
    resume = f"burnish train --resume {folder}"
    if result.stopped:
        asked = f" --steps {options.steps}" if options.steps != _stored_steps(run) else ""
        return [(resume + asked, "go on from here")]
    more = (f"{resume} --steps {2 * options.steps}", "train on")
    if result.model is None:
        return []
    model = shlex.quote(str(result.model))
    if run.method.product != "policy":
        return [
            (f"burnish train grpo --task {shlex.quote(options.task)} --reward-model {model}", "train with it"),
            more,
        ]
    return [
        (f"burnish chat {model}", "talk to it"),
        (f"burnish eval {model} --task {shlex.quote(options.task)}", "pass@k and majority@k"),
        more,
    ]


def _stored_steps(run: Run) -> int:
    import yaml

    return int(yaml.safe_load((Path(run.folder.path) / "config.yaml").read_text())["steps"])
