"""Which of a step's many numbers people look at, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch

Metrics = Mapping[str, float]

_SHOWN = (  # label, the names it may come from (the first that exists), how it is written
    ("reward", ("reward",), "{:.3f}"),
    ("pairs right", ("*/accuracy",), "{:.1%}"),
    ("NLL", ("*/nll",), "{:.3f}"),
    ("margin", ("*/margin",), "{:.3f}"),
    ("loss", ("distil/loss", "reply/loss", "end/loss"), "{:.3f}"),
    ("KL", ("kl/loss", "kl", "pg/old_kl"), "{:.4f}"),
    ("entropy", ("*/entropy",), "{:.3f}"),
    ("length", ("length",), "{:.1f}"),
    ("being written", ("unfinished",), "{:.0f}"),
)
_TRAINED = ("reward", "*/accuracy", "*/nll", "*/loss")  # the first that exists is drawn


def find(metrics: Metrics, names: Sequence[str]) -> str | None:
    """The first metric that one of the names (with *) fits; held-out numbers are never meant."""
    for pattern in names:
        for name in metrics:
            if fnmatch(name, pattern) and not name.startswith("heldout/"):
                return name
    return None


def shown(metrics: Metrics, seconds: float) -> list[tuple[str, str]]:
    """The numbers of a step as (label, text)."""
    found = []
    for label, names, form in _SHOWN:
        name = find(metrics, names)
        if name is not None:
            found.append((label, form.format(metrics[name])))
    if metrics.get("sampled_tokens") and seconds:
        found.append(("tokens/s", f"{metrics['sampled_tokens'] / seconds:,.0f}"))
    return found


def trained_series(metrics: Metrics) -> str | None:
    return find(metrics, _TRAINED)


def heldout_of(metrics: Metrics) -> tuple[str, float] | None:
    """The held-out number of a step, if it was measured: ("accuracy", 0.31)."""
    for name, value in metrics.items():
        if name.startswith("heldout/"):
            return name.removeprefix("heldout/"), value
    return None


def written(name: str, value: float) -> str:
    """A held-out number as people write it: accuracies in percent."""
    return f"{value:.1%}" if name.endswith("accuracy") else f"{value:.3f}"


def better_is_lower(name: str) -> bool:
    return name.endswith(("nll", "loss"))
