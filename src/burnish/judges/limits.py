"""How much a judge may be asked: calls and tokens of a run, calls a second, and the waits between attempts."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from burnish.core.scorer import ScoringStops
from burnish.core.seeds import rng


class BudgetSpent(ScoringStops):
    """The judge's budget is used up. The run stops; what was answered is in the cache."""


@dataclass
class Budget:
    """Counts calls and tokens of this process; raises BudgetSpent before a call that is beyond `calls` or `tokens`.

    Answers from the cache cost nothing, so a run that resumes pays only for what it has not asked yet.
    """

    calls: int | None = None
    tokens: int | None = None
    asked: int = 0
    used: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def spend_call(self) -> None:
        """Count a call that is about to be made."""
        with self._lock:
            if self.calls is not None and self.asked >= self.calls:
                raise BudgetSpent(f"the judge's budget of {self.calls} calls is used up; raise calls= and use --resume")
            if self.tokens is not None and self.used >= self.tokens:
                raise BudgetSpent(
                    f"the judge's budget of {self.tokens} tokens is used up ({self.used} used); raise tokens= and use "
                    "--resume"
                )
            self.asked += 1

    def spend_tokens(self, count: int) -> None:
        """Count the tokens that a call took."""
        with self._lock:
            self.used += count


@dataclass
class Rate:
    """At most `per_second` calls a second, evenly spaced; None: without a limit."""

    per_second: float | None = None
    _next: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def wait(self, stopped: threading.Event, deadline: float) -> bool:
        """Wait for the next place; False where `stopped` is set, or the place comes after the deadline."""
        if self.per_second is None:
            return not stopped.is_set()
        with self._lock:
            now = time.monotonic()
            at = max(now, self._next)
            if at > deadline:
                return False
            self._next = at + 1 / self.per_second
        return not stopped.wait(at - now)


def backoff(attempt: int, key: str, first: float = 0.5, longest: float = 30.0) -> float:
    """Seconds before attempt 1, 2, ...: first x 2^(attempt - 1), at most `longest`, times 0.5 to 1 by the key."""
    return float(min(longest, first * 2 ** (attempt - 1)) * rng("backoff", key, attempt).uniform(0.5, 1.0))
