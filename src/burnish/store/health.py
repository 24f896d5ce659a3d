"""Health checks of a run: detectors of reward collapse, entropy collapse, reward hacking, NaN and so on.

Detectors are pure functions of the metrics of the steps. The terminal, the store, the dashboard and the report use
them. Each compares the last steps with the first ones, and returns None while there are too few of either.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

Metrics = Mapping[str, float | None]
History = Sequence[Metrics]

RECENT = 5  # steps that are averaged, at the start and at the end
WINDOW = 200  # steps of history that are checked


@dataclass(frozen=True)
class HealthLimits:
    """Thresholds that depend on the run's settings.

    max_new_tokens  the longest reply, in tokens
    logp_apart      largest mean |log-prob of the sampler - log-prob of the trainer| that their precision explains
    """

    max_new_tokens: int = 64
    logp_apart: float = 1e-3


@dataclass(frozen=True)
class Worry:
    """One warning: the detector's name, and a sentence with the numbers and a remedy."""

    kind: str
    text: str


class Health:
    """Health checks over the steps of a run as they arrive; `news` returns each kind of warning once."""

    def __init__(self, limits: HealthLimits) -> None:
        self.limits = limits
        self._first: list[Metrics] = []
        self._last: deque[Metrics] = deque(maxlen=WINDOW)
        self._reported: set[str] = set()

    def add(self, metrics: Metrics) -> None:
        if len(self._first) < RECENT:
            self._first.append(metrics)
        self._last.append(metrics)

    def worries(self) -> dict[str, str]:
        last = list(self._last)
        return _worries(self._first, last, self.limits)

    def news(self, step: int, metrics: Metrics) -> list[Worry]:
        """Add a step's metrics and return the warnings that were not returned before."""
        self.add(metrics)
        new = [Worry(kind, text) for kind, text in self.worries().items() if kind not in self._reported]
        self._reported |= {worry.kind for worry in new}
        return new


def worries(history: History, limits: HealthLimits) -> dict[str, str]:
    """Warnings about the steps so far, by kind."""
    return _worries(history[:RECENT], history[-WINDOW:], limits)


def _worries(first: History, last: History, limits: HealthLimits) -> dict[str, str]:
    if len(last) < RECENT:
        alarm = canary(first, last, limits)
        return {"canary": alarm} if alarm else {}
    texts = {kind: detect(first, last, limits) for kind, detect in DETECTORS.items()}
    if texts["unread"]:
        texts["flat"] = None  # replies of which the judge said nothing score the same, and no other level would help
    if texts["collapse"]:
        texts["flat"] = texts["solved"] = texts["entropy"] = None  # these are consequences of a collapse
    return {kind: text for kind, text in texts.items() if text}


CANARY_ALARM = (
    "{:.0f} replies passed canary tests, which contradict each other: a program reached its own verdict; stop the run, "
    "and read these traces"
)


def canary(first: History, last: History, limits: HealthLimits) -> str | None:
    """Tests that no program can pass were passed, in any step."""
    passed = sum(metrics.get("canaries_passed") or 0.0 for metrics in last)
    return CANARY_ALARM.format(passed) if passed > 0 else None


def collapse(first: History, last: History, limits: HealthLimits) -> str | None:
    """Reward collapse: the mean reward fell below a quarter of its best."""
    best, now = _best(last, "reward"), _mean(last[-RECENT:], "reward")
    if best is None or now is None or not (best > 0.2 and now < best / 4):
        return None
    return f"the reward has collapsed, from {best:.2f} to {now:.2f}: start again with a lower --lr"


def solved(first: History, last: History, limits: HealthLimits) -> str | None:
    """The task is solved: almost all groups have zero variance at a high reward."""
    flat, reward = _mean(last[-RECENT:], "zero_variance_groups"), _mean(last[-RECENT:], "reward")
    if flat is None or flat <= 0.8 or reward is None or reward <= 0.9:
        return None
    return (
        f"the task is almost solved (in {flat:.0%} of the groups all replies score the same): "
        "a harder level teaches more"
    )


def flat(first: History, last: History, limits: HealthLimits) -> str | None:
    """Most groups have zero reward variance, hence zero advantage and no gradient."""
    flat = _mean(last[-RECENT:], "zero_variance_groups")
    if flat is None or flat <= 0.8 or solved(first, last, limits):
        return None
    return (
        f"in {flat:.0%} of the groups all replies score the same, so they teach nothing: "
        "try an easier level, a larger --n or a higher --temperature"
    )


def unread(first: History, last: History, limits: HealthLimits) -> str | None:
    """More than half of a judge's answers cannot be read."""
    share = _mean(last[-RECENT:], "judge_unread")
    if share is None or share <= 0.5:
        return None
    return (
        f"{share:.0%} of the judge's answers did not come or could not be read, so its rewards say little: choose "
        "a judge that keeps to the form of the question (words=brief for a small one), or give it more max_tokens"
    )


def dropped(first: History, last: History, limits: HealthLimits) -> str | None:
    """A part of the select stage drops more than 80% of the traces."""
    for name in _names(last[-1], "dropped/*"):
        share = _mean(last[-RECENT:], name)
        if share is not None and share > 0.8:
            what = name.removeprefix("dropped/").replace("_", " ")
            return (
                f"{share:.0%} is dropped before learning ({what}): raise --n, or choose tasks on which replies differ"
            )
    return None


def cut(first: History, last: History, limits: HealthLimits) -> str | None:
    """More than half of the replies are truncated at max_new_tokens."""
    share = _mean(last[-RECENT:], "cut_off")
    if share is None or share <= 0.5:
        return None
    return f"{share:.0%} of the replies are cut off at {limits.max_new_tokens} tokens: raise --max-new-tokens"


def infinite(first: History, last: History, limits: HealthLimits) -> str | None:
    """A metric of the last step is NaN or Inf."""
    non_finite = [name for name, value in last[-1].items() if value is None or not math.isfinite(value)]
    return f"{non_finite[0]} is not finite in this step: lower --lr" if non_finite else None


def entropy(first: History, last: History, limits: HealthLimits) -> str | None:
    """Entropy collapse: the policy's entropy is near 0 while the reward is still low."""
    name = next(iter(_names(last[-1], "*/entropy")), None)
    if name is None:
        return None
    before, now, reward = _mean(first, name), _mean(last[-RECENT:], name), _mean(last[-RECENT:], "reward")
    if before is None or now is None or reward is None or not (now < 0.05 and now < before / 5 and reward <= 0.9):
        return None  # without a reward (given pairs) certainty is no failure
    return (
        f"the entropy has collapsed, from {before:.2f} to {now:.3f}: the policy hardly tries anything else any more; "
        "try a higher --temperature, a lower --lr, or a method with a wider clip (dapo)"
    )


def unlearned(first: History, last: History, limits: HealthLimits) -> str | None:
    """Likelihood collapse: the log-prob of preferred replies falls to less than twice its start."""
    name = next(iter(_names(last[-1], "*/chosen_logp")), None)
    moved = _rise(first, last, name) if name else None
    if moved is None or moved[0] >= 0 or moved[1] > 2 * moved[0] - 1:
        return None
    return (
        f"the log-prob of preferred replies has collapsed, from {moved[0]:.1f} to {moved[1]:.1f}: the policy unlearns "
        "both sides of its pairs; try a larger --beta, a lower --lr, or a method with an SFT term (rpo, cpo)"
    )


def hacking(first: History, last: History, limits: HealthLimits) -> str | None:
    """Reward hacking: the reward rises and correctness does not."""
    reward, correct = (_rise(first, last, name) for name in ("reward", "correct"))
    if reward is None or correct is None:
        return None
    (r0, r1), (c0, c1) = reward, correct
    if not (r1 - r0 > max(0.1, 0.2 * abs(r0)) and c1 - c0 < 0.02 and c1 < 0.9):
        return None
    return (
        f"the reward rises ({r0:.2f} to {r1:.2f}) but correctness does not ({c0:.0%} to {c1:.0%}): "
        "the policy may be hacking the reward; read the best-rewarded traces"
    )


def over_optimised(first: History, last: History, limits: HealthLimits) -> str | None:
    """Over-optimisation: the held-out score falls while the training reward does not."""
    measured = [(i, name, x) for i, m in enumerate(last) for name, x in m.items() if name.startswith("heldout/")]
    watched = [name for _, name, _ in measured if name.endswith(("accuracy", "success"))]
    points = [(i, x) for i, name, x in measured if watched and name == watched[0] and x is not None]
    if len(points) < 3:
        return None
    at, best = max(points, key=lambda point: point[1])
    now = points[-1][1]
    then, reward = _mean(last[max(0, at - RECENT) : at + 1], "reward"), _mean(last[-RECENT:], "reward")
    if then is None or reward is None or not (now < best - 0.05 and points[-2][1] < best - 0.03 and reward >= then):
        return None
    return (
        f"held-out accuracy has fallen from {best:.1%} to {now:.1%} while the training reward has not ({then:.2f} to "
        f"{reward:.2f}): the run over-optimises; use the checkpoint from before, a larger --beta, or more varied tasks"
    )


def mismatch(first: History, last: History, limits: HealthLimits) -> str | None:
    """Sampler and trainer disagree on the log-probs of the same tokens."""
    apart = _mean(last[-RECENT:], "mismatch/logp")
    if apart is not None and apart > limits.logp_apart:
        return (
            f"the trainer gives the sampled tokens other log-probs than the sampler did ({apart:.4f} apart, where "
            f"rounding explains {limits.logp_apart:g}): the sampler may not run the trained weights"
        )
    ratio = _mean(last[-RECENT:], "mismatch/ratio")
    if ratio is None or abs(ratio - 1) <= 0.02:
        return None
    return (
        f"trainer and sampler disagree: the mean probability ratio of sampled tokens is {ratio:.3f} "
        "where it should be 1"
    )


def length(first: History, last: History, limits: HealthLimits) -> str | None:
    """Replies more than double in length without a better reward."""
    lengths, reward = _rise(first, last, "length"), _rise(first, last, "reward")
    if lengths is None or not (lengths[1] > 2 * lengths[0] and lengths[1] - lengths[0] > 8):
        return None
    if reward is not None and reward[1] - reward[0] > 0.1:
        return None
    return (
        f"replies grow from {lengths[0]:.0f} to {lengths[1]:.0f} tokens without a better reward: try a length penalty, "
        "or a norm that does not favour long replies (dr_grpo)"
    )


def drift(first: History, last: History, limits: HealthLimits) -> str | None:
    """KL drift: the policy is more than 1 nat per token away from its reference."""
    name = next((n for pattern in ("kl/loss", "kl") for n in _names(last[-1], pattern)), None)
    kl = _mean(last[-RECENT:], name) if name else None
    if kl is None or kl <= 1.0:
        return None
    return f"the policy is {kl:.2f} nats a token away from its reference: raise --beta or lower --lr"


def clipped(first: History, last: History, limits: HealthLimits) -> str | None:
    """More than half of the tokens are clipped: the updates are too large."""
    name = next(iter(_names(last[-1], "*/clipped")), None)
    share = _mean(last[-RECENT:], name) if name else None
    if share is None or share <= 0.5:
        return None
    return (
        f"{share:.0%} of the tokens are clipped: each update moves too far; lower --lr or make fewer updates of a batch"
    )


def diverged(first: History, last: History, limits: HealthLimits) -> str | None:
    """The negative log-likelihood of what is imitated rises to twice its start."""
    name = next(iter(_names(last[-1], "*/nll")), None)
    before, now = (first[0].get(name), _mean(last[-RECENT:], name)) if name else (None, None)
    if before is None or now is None or now <= 2 * before + 0.5:
        return None
    return f"the NLL has risen from {before:.2f} to {now:.2f}: the run diverges; start again with a lower --lr"


def spike(first: History, last: History, limits: HealthLimits) -> str | None:
    """The gradient norm is more than 20 times its median."""
    norms = [x for m in last if (x := m.get("grad_norm")) is not None]
    if len(norms) < 4 * RECENT:
        return None
    usual = statistics.median(norms[:-1])
    if not (usual > 0 and norms[-1] > 20 * usual):
        return None
    return (
        f"the gradient norm jumped to {norms[-1]:.1f}, usually {usual:.2f}: one batch may be broken; look at its traces"
    )


DETECTORS: dict[str, Callable[[History, History, HealthLimits], str | None]] = {
    "canary": canary,
    "collapse": collapse,
    "solved": solved,
    "flat": flat,
    "unread": unread,
    "dropped": dropped,
    "cut": cut,
    "infinite": infinite,
    "entropy": entropy,
    "unlearned": unlearned,
    "hacking": hacking,
    "over_optimised": over_optimised,
    "mismatch": mismatch,
    "length": length,
    "drift": drift,
    "clipped": clipped,
    "diverged": diverged,
    "spike": spike,
}


def _mean(steps: History, name: str) -> float | None:
    """Mean of a metric over these steps; None unless each of them has it."""
    values = [value for metrics in steps if (value := metrics.get(name)) is not None]
    return sum(values) / len(values) if values and len(values) == len(steps) else None


def _rise(first: History, last: History, name: str) -> tuple[float, float] | None:
    """Mean of a metric over the first and over the last steps; None while the two overlap."""
    before, now = _mean(first, name), _mean(last[-RECENT:], name)
    return None if before is None or now is None or len(last) < 2 * RECENT else (before, now)


def _best(history: History, name: str) -> float | None:
    """Highest mean over RECENT consecutive steps, or the first step's value while there are fewer."""
    values = [value for metrics in history if (value := metrics.get(name)) is not None]
    sums = [sum(values[i : i + RECENT]) / RECENT for i in range(len(values) - RECENT + 1)]
    return max([*sums, *values[:1]], default=None)


def _names(metrics: Metrics, pattern: str) -> list[str]:
    return [name for name in metrics if fnmatch(name, pattern) and not name.startswith("heldout/")]
