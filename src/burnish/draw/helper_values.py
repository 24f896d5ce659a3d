"""When to ask for help: tabular values of recorded states, and the price of help that keeps to a budget of requests.

    V(s) = max(V_cont(s), V_help(s) - price);   V_a(s) = mean over the recorded steps (s, a, r, s') of r + V(s')

Help is asked for in s where V_help(s) - price > V_cont(s). Reconstructed from the abstract of arXiv 2502.04576.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

SWEEPS = 1000  # most passes over the table; states that cannot be met again need as many as episodes have turns
HALVINGS = 50


@dataclass(frozen=True)
class Transition:
    """One recorded step. helped: whether help wrote it; after: the next state, None at the end of the episode."""

    state: str
    helped: bool
    reward: float
    after: str | None


class HelperTable:
    """The recorded steps by state and action, and where episodes begin."""

    def __init__(self, steps: Sequence[Transition], starts: Sequence[str]) -> None:
        self.starts = list(starts)
        self.steps: dict[str, dict[bool, list[Transition]]] = defaultdict(lambda: {False: [], True: []})
        for step in steps:
            self.steps[step.state][step.helped].append(step)

    def values(self, price: float) -> dict[str, float]:
        """V of every state, by value iteration. An action that was not recorded in a state is not chosen there."""
        found = dict.fromkeys(self.steps, 0.0)
        for _ in range(SWEEPS):
            new = {state: max(self._options(state, found, price).values()) for state in self.steps}
            if all(abs(new[state] - found[state]) < 1e-12 for state in new):
                break
            found = new
        return found

    def _options(self, state: str, values: dict[str, float], price: float) -> dict[bool, float]:
        """The value of each recorded action of a state."""
        found = {}
        for helped, steps in self.steps[state].items():
            if steps:
                mean = statistics.fmean(s.reward + values.get(s.after, 0.0) if s.after else s.reward for s in steps)
                found[helped] = mean - price * helped
        return found

    def asks(self, price: float) -> dict[str, bool]:
        """Whether help is asked for in each state in which both actions were recorded."""
        values = self.values(price)
        options = {state: self._options(state, values, price) for state in self.steps}
        return {state: own[True] > own[False] for state, own in options.items() if len(own) == 2}

    def requests(self, price: float) -> float:
        """The expected number of requests of an episode, over the recorded beginnings."""
        asks, values = self.asks(price), self.values(price)
        expected = dict.fromkeys(self.steps, 0.0)
        for _ in range(SWEEPS):
            new = {}
            for state in self.steps:
                own = self._options(state, values, price)
                helped = asks.get(state, max(own, key=lambda action: own[action]))
                later = [expected.get(s.after, 0.0) if s.after else 0.0 for s in self.steps[state][helped]]
                new[state] = helped + statistics.fmean(later)
            settled = all(abs(new[state] - expected[state]) < 1e-12 for state in new)
            expected = new
            if settled:
                break
        return statistics.fmean(expected[state] for state in self.starts) if self.starts else 0.0

    def price_for(self, budget: float) -> float:
        """The lowest price, by bisection, at which at most `budget` requests are expected; 0 if all fit into it.

        States in which only help was recorded ask at any price; they do not count against the search.
        """
        least = self.requests(self._highest())
        if self.requests(0.0) <= max(budget, least):
            return 0.0
        low, high = 0.0, self._highest()
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.requests(middle) <= max(budget, least) else (middle, high)
        return high

    def _highest(self) -> float:
        """A price that no gain is worth."""
        every = [abs(s.reward) for actions in self.steps.values() for steps in actions.values() for s in steps]
        return 1.0 + 2 * max(every, default=0.0) * max(1, len(self.steps))
