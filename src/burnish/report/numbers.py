"""The main metrics of a step for terminal output, and how they are formatted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch

from burnish.evals.better import better_is_lower as better_is_lower

Metrics = Mapping[str, float]
LARGE = 1e6  # numbers beyond are written with an exponent

_SHOWN = (  # label, patterns of metric names (the first match is shown), format
    ("reward", ("reward",), "{:.3f}"),
    ("steps right", ("step/accuracy",), "{:.1%}"),
    ("outcomes right", ("value/accuracy",), "{:.1%}"),
    ("pairs right", ("*/accuracy",), "{:.1%}"),
    ("NLL", ("*/nll",), "{:.3f}"),
    ("margin", ("*/margin",), "{:.3f}"),
    ("loss", ("distil/loss", "reply/loss", "end/loss"), "{:.3f}"),
    ("KL", ("kl/loss", "kl", "pg/old_kl"), "{:.4f}"),
    ("entropy", ("*/entropy",), "{:.3f}"),
    ("length", ("length",), "{:.1f}"),
    ("unfinished", ("unfinished",), "{:.0f}"),
)
_TRAINED = ("reward", "*/accuracy", "*/nll", "*/loss")  # the first match is plotted


def find(metrics: Metrics, names: Sequence[str]) -> str | None:
    """The first metric that matches one of the patterns; held-out metrics are skipped."""
    for pattern in names:
        for name in metrics:
            if fnmatch(name, pattern) and not name.startswith("heldout/"):
                return name
    return None


def shown(metrics: Metrics, seconds: float) -> list[tuple[str, str]]:
    """The main metrics of a step as (label, text)."""
    texts: list[tuple[str, str]] = []
    used: set[str] = set()
    for label, names, form in _SHOWN:
        name = find(metrics, names)
        if name is not None and name not in used:
            used.add(name)
            value = metrics[name]
            texts.append((label, form.format(value) if abs(value) < LARGE else f"{value:.3g}"))
    if metrics.get("sampled_tokens") and seconds:
        texts.append(("tokens/s", f"{metrics['sampled_tokens'] / seconds:,.0f}"))
    return texts


def trained_series(metrics: Metrics) -> str | None:
    """The name of the metric that shows the progress of training."""
    return find(metrics, _TRAINED)


def heldout_of(metrics: Metrics) -> tuple[str, float] | None:
    """The held-out metric of a step, if it was measured: ("accuracy", 0.31)."""
    for name, value in metrics.items():
        if name.startswith("heldout/"):
            return name.removeprefix("heldout/"), value
    return None
