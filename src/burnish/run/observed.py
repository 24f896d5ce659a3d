"""What may be read of a run by those who follow it: displays, the last message, callbacks.

A run in this process (`Run` of run/train.py) and a run on Ray, whose models are in another process (`RemoteRun` of
distributed/ray/driver.py), both have it. mypy compares each with it where it is passed to an observer, so what a
display reads beyond this is an error before it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from burnish.config.options import Config
from burnish.core.method import Method
from burnish.core.step import Settings
from burnish.evals.best import Best
from burnish.run.folder import Folder
from burnish.run.lengths import Lengths
from burnish.run.reward_versions import Versions
from burnish.tasks.source import Source


@dataclass(frozen=True)
class About:
    """The trained model in numbers: its weights, how many of them are trained, and its device.

    plain: whether it uses burnish's plain chat template, because it has none of its own
    """

    weights: int
    moving: int
    device: str
    plain: bool = False


class ObservedRun(Protocol):
    """A run as observers see it.

    start     the steps that were done when it began or resumed
    about     the product's model in numbers
    lengths   what is left out or cut of a dataset's rows
    rewards   the versions of the rewards
    best      the held-out scores so far: why the run ends before its last step
    held_out  the number of held-out tasks of an evaluation
    """

    @property
    def config(self) -> Config: ...

    @property
    def method(self) -> Method: ...

    @property
    def source(self) -> Source: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def folder(self) -> Folder: ...

    @property
    def start(self) -> int: ...

    @property
    def about(self) -> About: ...

    @property
    def lengths(self) -> Lengths | None: ...

    @property
    def rewards(self) -> Versions: ...

    @property
    def best(self) -> Best: ...

    @property
    def held_out(self) -> int: ...


def held_out_size(config: Config, source: Source) -> int:
    """The number of held-out tasks of an evaluation: --eval-tasks, or all rows of a dataset that has fewer."""
    size = source.size("heldout")
    return config.options.eval_tasks if size is None else min(config.options.eval_tasks, size)
