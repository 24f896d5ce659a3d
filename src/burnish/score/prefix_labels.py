"""Labels of prefixes of a reply from the outcomes of n completions of each: pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Rule = Callable[[Sequence[float]], float]  # outcomes in [0, 1] of completions -> the label of their prefix


def any_right(outcomes: Sequence[float]) -> float:
    """1 if at least one completion is right, else 0: Math-Shepherd's hard label (arXiv 2312.08935)."""
    return float(max(outcomes) >= 1)


def share_right(outcomes: Sequence[float]) -> float:
    """The mean outcome: Math-Shepherd's soft label (arXiv 2312.08935)."""
    return sum(outcomes) / len(outcomes)


def soft_value(eta: float) -> Rule:
    """(1/eta) log mean exp(eta R): the soft value of the prefix under the policy that completes it (arXiv 2412.11006).

    For a share p of right completions it is log(1 + p (e^eta - 1)) / eta, always in [0, 1]. eta = 0 is the mean;
    infinity is any_right, minus infinity asks that all are right.
    """

    def rule(outcomes: Sequence[float]) -> float:
        if eta == 0:
            return share_right(outcomes)
        if math.isinf(eta):
            return max(outcomes) if eta > 0 else min(outcomes)
        largest = max(eta * outcome for outcome in outcomes)
        total = sum(math.exp(eta * outcome - largest) for outcome in outcomes)
        return (largest + math.log(total / len(outcomes))) / eta

    return rule


class FirstBad:
    """A binary search for the first step after which a reply cannot be saved, one question at a time.

    `ask` is the number of steps of the prefix to try next, None when it is over; `answer` takes whether that prefix is
    good. `good` is then the number of steps before the first bad one. It assumes that no prefix of a good prefix is
    bad, and that the empty one is good; log2 of the number of steps questions are asked (arXiv 2410.17621).
    """

    def __init__(self, steps: int, right: bool) -> None:
        """steps: of the whole reply; right: whether the whole reply is right, in which case nothing is asked."""
        self.good, self.bad = (steps, steps + 1) if right else (0, steps)

    @property
    def ask(self) -> int | None:
        return (self.good + self.bad) // 2 if self.bad - self.good > 1 else None

    def answer(self, is_good: bool) -> None:
        asked = self.ask
        assert asked is not None
        if is_good:
            self.good = asked
        else:
            self.bad = asked
