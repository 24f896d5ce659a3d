"""When to ask for help: tabular values of recorded states, and the price of help that keeps to a budget of requests.

    V(s) = max(V_cont(s), V_help(s) - price);   V_a(s) = mean over the recorded steps (s, a, r, s') of r + V(s')

Help is asked for in s where V_help(s) - price > V_cont(s). Reconstructed from the abstract of arXiv 2502.04576.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SWEEPS = 1000  # most passes over the table; states that cannot be met again need as many as episodes have turns
HALVINGS = 30
_DEAR = 1e9  # a price that nothing is worth

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Transition:
    """One recorded step. helped: whether help wrote it; after: the next state, None at the end of the episode."""

    state: str
    helped: bool
    reward: float
    after: str | None


class HelperTable:
    """The recorded steps by state and action, as matrices, and where episodes begin."""

    def __init__(self, steps: Sequence[Transition], starts: Sequence[str]) -> None:
        names = dict.fromkeys(state for step in steps for state in (step.state, step.after) if state is not None)
        self.place = {state: i for i, state in enumerate(names)}
        size = len(self.place)
        self.starts = np.array([self.place[state] for state in starts], dtype=np.int64)
        at = {helped: [step for step in steps if step.helped is helped] for helped in (False, True)}
        self.many = {helped: np.bincount(self._of(own), minlength=size) for helped, own in at.items()}
        self.paid = {helped: self._mean(helped, self._of(own), [s.reward for s in own]) for helped, own in at.items()}
        going = {helped: [step for step in own if step.after is not None] for helped, own in at.items()}
        self.rows = {helped: self._of(own) for helped, own in going.items()}
        self.next = {
            helped: np.array([self.place[step.after] for step in own if step.after is not None], dtype=np.int64)
            for helped, own in going.items()
        }

    def _of(self, steps: Sequence[Transition]) -> Numbers:
        return np.array([self.place[step.state] for step in steps], dtype=np.int64)

    def _mean(self, helped: bool, rows: Numbers, values: Sequence[float] | Numbers) -> Numbers:
        """The mean of the values of each state's steps with this action; 0 where there are none."""
        total = np.bincount(rows, weights=np.asarray(values, dtype=float), minlength=len(self.place))
        return total / np.maximum(1, self.many[helped])

    def _later(self, helped: bool, values: Numbers) -> Numbers:
        """The mean of a number of the next states, which is 0 at the end of an episode."""
        return self._mean(helped, self.rows[helped], values[self.next[helped]])

    def _options(self, values: Numbers, price: float) -> dict[bool, Numbers]:
        """The value of each action in every state; -inf where it was not recorded."""
        found = {}
        for helped in (False, True):
            worth = self.paid[helped] + self._later(helped, values) - price * helped
            found[helped] = np.where(self.many[helped] > 0, worth, -np.inf)
        return found

    def _settled(self, update: Callable[[Numbers], Numbers]) -> Numbers:
        """The fixed point of an update, from zeros."""
        found = np.zeros(len(self.place))
        for _ in range(SWEEPS):
            new = update(found)
            if np.abs(new - found).max(initial=0.0) < 1e-12:
                break
            found = new
        return found

    def _values(self, price: float) -> Numbers:
        def update(values: Numbers) -> Numbers:
            options = self._options(values, price)
            best = np.maximum(options[False], options[True])
            return np.where(np.isinf(best), 0.0, best)  # a state without a recorded step

        return self._settled(update)

    def _asks(self, price: float) -> Numbers:
        options = self._options(self._values(price), price)
        return options[True] > options[False]

    def values(self, price: float) -> dict[str, float]:
        """V of every state, by value iteration. An action that was not recorded in a state is not chosen there."""
        found = self._values(price)
        return {state: float(found[i]) for state, i in self.place.items()}

    def asks(self, price: float) -> dict[str, bool]:
        """Whether help is asked for in each state in which both actions were recorded."""
        found, both = self._asks(price), (self.many[False] > 0) & (self.many[True] > 0)
        return {state: bool(found[i]) for state, i in self.place.items() if both[i]}

    def requests(self, price: float) -> float:
        """The expected number of requests of an episode, over the recorded beginnings."""
        asks = self._asks(price)

        def update(expected: Numbers) -> Numbers:
            return np.where(asks, 1 + self._later(True, expected), self._later(False, expected))

        return float(self._settled(update)[self.starts].mean()) if len(self.starts) else 0.0

    def price_for(self, budget: float) -> float:
        """The lowest price, by bisection, at which at most `budget` requests are expected; 0 if all fit into it.

        States in which only help was recorded ask at any price; they do not count against the search.
        """
        allowed = max(budget, self.requests(_DEAR))
        if self.requests(0.0) <= allowed:
            return 0.0
        low, high = 0.0, 1.0
        while self.requests(high) > allowed:
            low, high = high, 2 * high
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.requests(middle) <= allowed else (middle, high)
        return high
