"""The share of replies that got no reward, and the end of a run in which it is too large (--max-reward-failures)."""

from __future__ import annotations

from collections import deque

from burnish.core.loop import Report

WINDOW = 5  # steps over which the share is taken
LEAST = 3  # steps before it may end a run: one bad step is no reason


class RewardFailures:
    """The share of replies without a reward, over the last WINDOW steps."""

    def __init__(self, most: float, dropped: bool) -> None:
        self.most, self.dropped = most, dropped
        self.steps: deque[tuple[float, float]] = deque(maxlen=WINDOW)  # (failed, replies)

    def saw(self, report: Report, why: str) -> None:
        """Count a step; raise ValueError if the share over the last steps is above the limit."""
        failed = float(report.metrics.get("reward_failures", 0))
        self.steps.append((failed, replies_of(report.metrics) + (failed if self.dropped else 0.0)))
        share = sum(f for f, _ in self.steps) / max(1.0, sum(n for _, n in self.steps))
        if len(self.steps) >= LEAST and share > self.most:
            raise ValueError(
                f"{share:.0%} of the replies of the last {len(self.steps)} steps got no reward: {why}; fix the reward, "
                "or raise --max-reward-failures, and use --resume"
            )


def replies_of(metrics: dict[str, float]) -> float:
    """The number of replies that were scored in a step and kept, from its metrics."""
    return float(metrics.get("sampled_tokens", 0)) / max(1e-9, float(metrics.get("length", 0) or 1))
