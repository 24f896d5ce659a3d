"""The contents of a run's report, for HTML, Markdown and notebooks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from burnish.evals.heldout import Outcome
from burnish.report.catalogue import Summary, summary
from burnish.report.charts import Line, Point, line_chart, percent, short
from burnish.report.definitions import definition
from burnish.report.measured import measured
from burnish.report.titles import is_share, title_of
from burnish.store.health import HealthLimits, worries
from burnish.store.reader import RunStore
from burnish.store.records import Evaluation, EventRow, GitState, ShownReply, TraceRow

LEARNING = ("reward", "correct", "*/accuracy", "*/nll", "*/margin", "score/*")
HEALTH = (
    "kl/loss",
    "kl",
    "*/entropy",
    "length",
    "cut_off",
    "*/clipped",
    "*/old_kl",
    "mismatch/*",
    "zero_variance_groups",
    "grad_norm",
)
SAMPLES = 6
LOOK = 60  # traces among which a few distinct ones are chosen


@dataclass(frozen=True)
class Curve:
    """One metric over the steps, with its definition; `share` metrics are shown in percent."""

    chapter: str
    name: str
    what: str
    points: list[Point]
    share: bool

    def drawn(self) -> str:
        """The curve as SVG, with the last value at the end of the line."""
        form = percent if self.share else short
        y_range = (0.0, 1.0) if self.share and all(0 <= y <= 1 for _, y in self.points) else None
        line = Line(form(self.points[-1][1]), self.points)
        titled = title_of(self.name)
        title = f"{titled.title}, {titled.unit}" if titled.unit and not self.share else titled.title
        return line_chart([line], title=title, y_form=form, y_range=y_range, width=420, height=200)


@dataclass(frozen=True)
class Sample:
    """A held-out prompt with the replies before and after training."""

    prompt: str
    before: str | None
    before_right: bool
    after: str | None
    after_right: bool


@dataclass(frozen=True)
class RunReport:
    """The contents of a report."""

    run: Summary
    headline: str
    worries: dict[str, str]
    curves: list[Curve]
    time: list[tuple[str, float]]
    samples: list[Sample]
    traces: dict[str, list[TraceRow]]
    events: list[EventRow]
    config: dict[str, object]
    environment: dict[str, object]
    git: GitState | None
    count: int

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.time)


def run_report(store: RunStore) -> RunReport:
    """Read a report's contents from the run's store."""
    info, metrics, evaluation = store.info(), store.metrics(), store.evaluation()
    return RunReport(
        run=summary(store, store.folder),
        headline=_headline(evaluation, metrics),
        worries=worries(metrics, HealthLimits(**info.get("limits", {}))),
        curves=_curves(metrics, evaluation),
        time=_time(store),
        samples=_samples(evaluation),
        traces=_traces(store, metrics),
        events=store.events(),
        config=info.get("config", {}),
        environment=info.get("environment", {}),
        git=info.get("git"),
        count=store.count(),
    )


def curve_of(name: str, metrics: Sequence[Mapping[str, Any]]) -> Curve:
    """One metric of a run's steps."""
    return _curve("", name, [(row["step"], row[name]) for row in metrics if row.get(name) is not None])


def config_text(config: dict[str, object]) -> str:
    """The configuration as YAML, for `burnish train run.yaml`."""
    import yaml

    return yaml.safe_dump({key: value for key, value in config.items() if key != "out"}, sort_keys=False)


def when(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def held_out_lines(evaluation: Mapping[str, Evaluation | None]) -> list[str]:
    """The held-out measure before and after training with its 95% intervals, and what was measured beside it."""
    before, after = evaluation.get("before"), evaluation.get("after")
    if after and before:
        return measured(_outcome(before), _outcome(after))
    only = after or before
    return [line + ("" if after else " before training") for line in measured(None, _outcome(only))] if only else []


def _headline(evaluation: Mapping[str, Evaluation | None], metrics: Sequence[Mapping[str, Any]]) -> str:
    if lines := held_out_lines(evaluation):
        return "; ".join(line.replace(" -> ", " → ") for line in lines)
    last = metrics[-1] if metrics else {}
    return (
        f"reward {last['reward']:.3f} in the last step" if last.get("reward") is not None else f"{len(metrics)} steps"
    )


def _outcome(stored: Evaluation) -> Outcome:
    return Outcome.from_json({"shown": [], **stored})


def _curves(metrics: Sequence[Mapping[str, Any]], evaluation: Mapping[str, Evaluation | None]) -> list[Curve]:
    names = list(dict.fromkeys(name for row in metrics for name in row if name != "step"))
    heldout = [name for name in names if name.startswith("heldout/")]
    if not heldout and (after := evaluation.get("after")):
        heldout = list(_outcome(after).metrics())
    curves, used = [], set(heldout)
    for chapter, patterns in (("Learning", LEARNING), ("Health", HEALTH), ("Everything else", ("*",))):
        for name in (name for pattern in patterns for name in names if fnmatchcase(name, pattern)):
            if name not in used:
                used.add(name)
                points = [(row["step"], row[name]) for row in metrics if row.get(name) is not None]
                curves.append(_curve(chapter, name, points))
        if chapter == "Learning":
            curves += [_curve(chapter, name, _held_out(name, metrics, evaluation)) for name in heldout]
    return [curve for curve in curves if curve.points]


def _curve(chapter: str, name: str, points: list[Point]) -> Curve:
    defined = definition(name)
    return Curve(chapter, name, defined.what if defined else "", points, is_share(name))


def _held_out(
    name: str, metrics: Sequence[Mapping[str, Any]], evaluation: Mapping[str, Evaluation | None]
) -> list[tuple[float, float]]:
    points = [(row["step"], row[name]) for row in metrics if row.get(name) is not None]
    for which, step in (("before", 0), ("after", len(metrics))):
        outcome = evaluation.get(which)
        if outcome and (value := _outcome(outcome).metrics().get(name)) is not None:
            points.insert(0 if which == "before" else len(points), (step, value))
    return points


def _time(store: RunStore) -> list[tuple[str, float]]:
    """Total seconds of each stage in pipeline order, and of the rest of the steps; shares below 0.2% are left out."""
    stages = {row["room"]: row["s"] for row in store.sql("SELECT room, sum(seconds) AS s FROM timings GROUP BY room")}
    total = stages.pop("step", 0.0)
    order = ("draw", "rollout", "score", "select", "credit", "learn", "publish")
    times = [(name, stages[name]) for name in sorted(stages, key=lambda n: order.index(n) if n in order else 99)]
    times.append(("other", max(0.0, total - sum(stages.values()))))
    return [(name, seconds) for name, seconds in times if total and seconds / total > 0.002]


def _shown(outcome: Evaluation | None) -> list[ShownReply]:
    return outcome.get("shown", []) if outcome else []


def _samples(evaluation: Mapping[str, Evaluation | None]) -> list[Sample]:
    before, after = ({shown["prompt"]: shown for shown in _shown(evaluation.get(when))} for when in ("before", "after"))
    return [
        Sample(
            prompt,
            before[prompt]["reply"] if prompt in before else None,
            prompt in before and before[prompt]["correct"],
            after[prompt]["reply"] if prompt in after else None,
            prompt in after and after[prompt]["correct"],
        )
        for prompt in list(after or before)[:SAMPLES]
    ]


def _traces(store: RunStore, metrics: Sequence[Mapping[str, Any]]) -> dict[str, list[TraceRow]]:
    """A few distinct traces by title: the best and worst of the last step (any, without rewards), and dropped ones."""
    last = metrics[-1]["step"] if metrics else 0
    best, worst = (store.traces(step=last, order=order, limit=LOOK) for order in ("best", "worst"))
    sections = {
        "The best-rewarded of the last step": best if worst else [],
        "The worst-rewarded of the last step": worst,
        "From the last step": [] if worst else best,
        "Dropped before learning": store.traces(dropped=True, order="newest", limit=LOOK),
    }
    return {title: _distinct(traces) for title, traces in sections.items()}


def _distinct(traces: Sequence[TraceRow]) -> list[TraceRow]:
    """The first three traces with distinct prompt and reply."""
    return list({(trace["prompt"], trace["text"]): trace for trace in reversed(traces)}.values())[::-1][:3]
