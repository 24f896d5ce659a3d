"""Which of a step's many numbers people look at, how they are written, and when they are a reason to worry."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch

Metrics = Mapping[str, float]

RECENT = 5  # steps that a warning looks back over
_SHOWN = (  # label, the names it may come from (the first that exists), how it is written
    ("reward", ("reward",), "{:.3f}"),
    ("pairs right", ("*/accuracy",), "{:.1%}"),
    ("NLL", ("*/nll",), "{:.3f}"),
    ("margin", ("*/margin",), "{:.3f}"),
    ("loss", ("distil/loss", "reply/loss", "end/loss"), "{:.3f}"),
    ("KL", ("kl/loss", "kl", "pg/old_kl"), "{:.4f}"),
    ("entropy", ("*/entropy",), "{:.3f}"),
    ("length", ("length",), "{:.1f}"),
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


def worries(history: Sequence[Metrics], max_new_tokens: int) -> dict[str, str]:
    """What the last steps give reason to say, in words, by kind; nothing before there are enough steps to tell."""
    found: dict[str, str] = {}
    if len(history) < RECENT:
        return found
    flat, cut, dropped = (
        _recent(history, name) for name in ("zero_variance_groups", "cut_off", "dropped/no_preference")
    )
    known = all("reward" in metrics for metrics in history[-RECENT:])  # a refused step has none
    best, reward = _best(history, "reward"), _recent(history, "reward")
    same = f"in {flat:.0%} of the groups all replies score the same"
    if known and best > 0.2 and reward < best / 4:
        found["collapse"] = f"the reward has collapsed, from {best:.2f} to {reward:.2f}: start again with a lower --lr"
    elif flat > 0.8 and reward > 0.9:
        found["solved"] = f"the task is almost solved ({same}): a harder level teaches more"
    elif flat > 0.8:
        found["flat"] = f"{same}, so they teach nothing: try an easier level, a larger --n or a higher --temperature"
    if dropped > 0.8:
        found["dropped"] = (
            f"{dropped:.0%} of the prompts give no preference: all their replies score the same; raise --n"
        )
    if cut > 0.5:
        found["cut"] = f"{cut:.0%} of the replies are cut off at {max_new_tokens} tokens: raise --max-new-tokens"
    if any(not math.isfinite(value) for value in history[-1].values()):
        found["infinite"] = "a number of this step is not finite: lower --lr"
    return found


def _best(history: Sequence[Metrics], name: str) -> float:
    """The highest mean of RECENT steps in a row, or the first step's number while there are fewer."""
    values = [metrics[name] for metrics in history if name in metrics]
    sums = [sum(values[i : i + RECENT]) / RECENT for i in range(len(values) - RECENT + 1)]
    return max([*sums, *values[:1]], default=0.0)


def _recent(history: Sequence[Metrics], name: str) -> float:
    values = [metrics[name] for metrics in history[-RECENT:] if name in metrics]
    return sum(values) / len(values) if len(values) == min(RECENT, len(history)) and values else 0.0
