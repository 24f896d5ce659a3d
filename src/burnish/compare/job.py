"""One run of a comparison: what it is told, and what it found. Both are plain values, for files and other processes."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from burnish.compare.budget import Budget


@dataclass(frozen=True)
class Job:
    """A candidate, a seed and a budget.

    label    the candidate's name in every table; runs of one label differ in their seed alone
    flags    options of every run and the method's own, without those that stand beside them here
    change   a part of the method that is switched off or changed back (compare/ablation.py), with its "parent"; empty: none
    points   evaluations along the way, evenly over the budget
    tasks    held-out tasks at the end (a half of them along the way); replies  replies to each at the end
    """

    label: str
    method: str
    flags: dict[str, Any]
    task: str
    seed: int
    budget: Budget
    out: str
    tasks: int = 200
    replies: int = 8
    points: int = 8
    keep_model: bool = False
    change: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What tells this run from every other of its comparison."""
        return f"{self.label} | {self.task} | {self.seed}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Job:
        return cls(**{**stored, "budget": Budget(**stored["budget"])})


@dataclass(frozen=True)
class Mark:
    """An evaluation along the way: after how many steps, how much of the budget's unit, and which tasks came out right."""

    steps: int
    at: float
    value: float
    right: str = ""  # a character for each held-out task, 1 where its reply was right


@dataclass(frozen=True)
class Found:
    """What a run found.

    status   done, or failed (with the reason in one sentence)
    measure  what `value` is: accuracy, or a method's own where it gives no replies
    right    right replies to each held-out task, out of `replies`; empty where there are none to judge
    legs     the lengths that the run's schedules were laid over, one after the other
    """

    label: str
    method: str
    task: str
    seed: int
    budget: Budget
    status: str
    reason: str = ""
    flags: dict[str, Any] = field(default_factory=dict)
    measure: str = "accuracy"
    value: float = float("nan")
    replies: int = 0
    right: tuple[int, ...] = ()
    curve: tuple[Mark, ...] = ()
    spent: dict[str, Any] = field(default_factory=dict)
    legs: tuple[int, ...] = ()
    device: str = ""

    @property
    def key(self) -> str:
        return f"{self.label} | {self.task} | {self.seed}"

    @property
    def done(self) -> bool:
        return self.status == "done"

    def to_json(self) -> dict[str, Any]:
        """Plain values; counts below ten as a string of digits, which is shorter, and nan as null."""
        right = "".join(map(str, self.right)) if self.replies < 10 else list(self.right)
        value = None if math.isnan(self.value) else round(self.value, 6)
        return {**asdict(self), "right": right, "value": value}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Found:
        return cls(
            **{
                **stored,
                "value": math.nan if stored["value"] is None else stored["value"],
                "budget": Budget(**stored["budget"]),
                "right": tuple(int(count) for count in stored["right"]),
                "curve": tuple(Mark(**mark) for mark in stored["curve"]),
                "legs": tuple(stored["legs"]),
            }
        )


def failed(job: Job, reason: str) -> Found:
    """The row of a run that did not come to its end."""
    return Found(job.label, job.method, job.task, job.seed, job.budget, "failed", reason, job.flags)
