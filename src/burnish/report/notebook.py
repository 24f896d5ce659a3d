"""A run in a notebook: curves, answers and traces with HTML representations."""

from __future__ import annotations

from html import escape

from burnish.report.charts import STYLE as CHARTS
from burnish.report.charts import standalone
from burnish.report.page import STYLE, curves, samples
from burnish.report.summary import curve_of, run_report
from burnish.store.reader import RunStore
from burnish.store.records import TraceRow

_SCOPE = "burnish-run"


class Plot:
    """Plots of metrics of a run, shown as HTML in a notebook; `svg()` returns them as text."""

    def __init__(self, drawings: dict[str, str]) -> None:
        self._drawings = drawings

    def svg(self) -> dict[str, str]:
        """The SVG of each plot, by the name of its metric."""
        return dict(self._drawings)

    def _repr_html_(self) -> str:
        return f'<div style="display:flex;flex-wrap:wrap;gap:12px">{"".join(self._drawings.values())}</div>'

    def __repr__(self) -> str:
        return f"Plot of {', '.join(self._drawings)}"


class Traces(list[TraceRow]):
    """Traces as a list of dicts, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = [
            f"<tr><td>{trace['step']}</td><td>{_number(trace['reward'])}</td><td>{_number(trace['advantage'])}</td>"
            f"{_cell(trace['prompt'])}{_cell(trace['text'])}<td>{escape(trace['dropped'] or '')}</td></tr>"
            for trace in self
        ]
        head = "".join(f"<th>{name}</th>" for name in ("step", "reward", "advantage", "prompt", "reply", "dropped by"))
        return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def plot(store: RunStore, *names: str) -> Plot:
    """Plot the named metrics over the steps; by default the learning curves."""
    metrics = store.metrics()
    recorded = dict.fromkeys(name for row in metrics for name in row if name != "step")
    for name in names:
        if name not in recorded:
            raise ValueError(f"this run has no metric {name!r}; it has {', '.join(recorded) or 'none yet'}")
    curves = [curve_of(name, metrics) for name in names]
    curves = curves or [curve for curve in run_report(store).curves if curve.chapter == "Learning"]
    return Plot({curve.name: standalone(curve.drawn()) for curve in curves if curve.points})


def card(store: RunStore) -> str:
    """Summary of a run as HTML: configuration, result, warnings, curves, answers before and after."""
    report = run_report(store)
    run = report.run
    style = (
        (CHARTS + STYLE)
        .replace(":root", f".{_SCOPE}")
        .replace("\nbody{margin:0;", f"\n.{_SCOPE}{{padding:14px 18px;border-radius:12px;")
    )
    scoped = "\n".join(line for line in style.splitlines() if not line.startswith(("main{", "@media print")))
    warned = "".join(
        f'<div class="worry"><b>{escape(kind)}</b>: {escape(text)}</div>' for kind, text in report.worries.items()
    )
    return (
        f'<div class="{_SCOPE}"><style>{_within(scoped)}</style><b>{escape(run.method)} on {escape(run.task)}</b> '
        f'<span class="dim">{escape(str(run.path))}, {run.state}, step {run.step} of {run.steps}</span>'
        f'<p class="head">{escape(report.headline)}</p>{warned}'
        f"{curves(report, ('Learning', 'Health'))}{samples(report.samples)}</div>"
    )


def _within(style: str) -> str:
    """Scope the CSS rules to our own element, so that they do not change the rest of the notebook."""
    import re

    def scope(match: re.Match[str]) -> str:
        chosen = [part.strip() for part in match[1].split(",")]
        inside = (part if part.startswith((f".{_SCOPE}", "@")) else f".{_SCOPE} {part}" for part in chosen)
        return ",".join(inside) + "{"

    lines = [line if line.startswith("@media") else re.sub(r"([^{}]+)\{", scope, line) for line in style.splitlines()]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _cell(text: str) -> str:
    return f'<td style="text-align:left;white-space:pre-wrap">{escape(text)}</td>'
