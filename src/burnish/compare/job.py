"""One run of a comparison: its job and its result, both serialisable as JSON for files and worker processes."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

from burnish.compare.budget import Budget


@dataclass(frozen=True)
class Job:
    """A candidate, a seed and a budget.

    label    the candidate's name in every table; runs of one label differ only in their seed
    flags    options of the run and of the method, other than the fields of this class
    change   a reverted difference to the "parent" method (compare/ablation.py); empty for none
    points   evaluations during training, evenly over the budget
    tasks    held-out tasks of the final evaluation; evaluations during training use half of them
    replies  replies per task in the final evaluation
    measure  auto, the measure of what the method learns from; or replies, which candidates have in common
    learns   the data of the training, where it is not the task that judges (pairs of a file)
    record   names of metrics whose values at every step are kept with the result
    probes   what else is measured on the trained model (compare/probes.py)
    """

    label: str
    method: str
    flags: dict[str, object]
    task: str
    seed: int
    budget: Budget
    out: str
    tasks: int = 200
    replies: int = 8
    points: int = 8
    keep_model: bool = False
    change: dict[str, str] = field(default_factory=dict)
    measure: str = "replies"
    learns: str = ""
    record: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Unique key of this run in its comparison."""
        return f"{self.label} | {self.task} | {self.seed}"

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Job:
        lists = {name: tuple(stored.get(name, ())) for name in ("record", "probes")}
        return cls(**{**stored, **lists, "budget": Budget(**stored["budget"])})


@dataclass(frozen=True)
class Mark:
    """An evaluation during training: after `steps` steps and the amount `at` of the budget's unit."""

    steps: int
    at: float
    value: float
    right: str = ""  # one character per held-out task, 1 if its reply was correct


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    status   done, or failed (with the reason in one sentence)
    measure  the name of `value`: accuracy, reward, or the measure of given replies
    right    number of correct replies to each held-out task, out of `replies`; empty if replies are not evaluated
    scores   mean reward of the replies to each held-out task, where rewards are graded
    legs     the run lengths that schedules were computed for, one after the other
    recorded the values of a metric at every step; None where a step has none
    probed   what a probe measured, a number for each thing that it looked at
    """

    label: str
    method: str
    task: str
    seed: int
    budget: Budget
    status: str
    reason: str = ""
    flags: dict[str, object] = field(default_factory=dict)
    measure: str = "accuracy"
    value: float = float("nan")
    replies: int = 0
    right: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    curve: tuple[Mark, ...] = ()
    spent: dict[str, float] = field(default_factory=dict)
    legs: tuple[int, ...] = ()
    device: str = ""
    recorded: dict[str, tuple[float | None, ...]] = field(default_factory=dict)
    probed: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.label} | {self.task} | {self.seed}"

    @property
    def done(self) -> bool:
        return self.status == "done"

    def to_json(self) -> dict[str, object]:
        """JSON values; counts below ten are a string of digits, which is shorter, and NaN is null."""
        right = "".join(map(str, self.right)) if self.replies < 10 else list(self.right)
        value = None if math.isnan(self.value) else round(self.value, 6)
        scores = [round(score, 6) for score in self.scores]
        row = {**asdict(self), "right": right, "scores": scores, "value": value}
        return {key: x for key, x in row.items() if x or key not in ("recorded", "probed")}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> RunResult:
        return cls(
            **{
                **stored,
                "value": math.nan if stored["value"] is None else stored["value"],
                "budget": Budget(**stored["budget"]),
                "right": tuple(int(count) for count in stored["right"]),
                "curve": tuple(Mark(**mark) for mark in stored["curve"]),
                "legs": tuple(stored["legs"]),
                "scores": tuple(stored.get("scores", ())),
                "recorded": {name: tuple(values) for name, values in stored.get("recorded", {}).items()},
                "probed": {name: tuple(values) for name, values in stored.get("probed", {}).items()},
            }
        )


def failed(job: Job, reason: str) -> RunResult:
    """The result of a failed run."""
    return RunResult(job.label, job.method, job.task, job.seed, job.budget, "failed", reason, job.flags)
