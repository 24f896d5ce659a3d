"""The runs of a study as jobs, in waves: learning rates first, then arms, each after the arms that it refers to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from burnish.compare.helpers import plain
from burnish.compare.job import Job, RunResult
from burnish.compose.swap import swapped
from burnish.config.options import configure
from burnish.methods.table import find
from burnish.studies.claim_file import REFERENCE, references
from burnish.studies.study import Arm, Design, Study
from burnish.tasks.resolve import resolve_task

DEV = 1000  # the first of the seeds on which learning rates are chosen


@dataclass(frozen=True)
class Plan:
    """A study that is run in a folder. made: (stage of `prepare`, task) -> what it made."""

    study: Study
    design: Design
    out: Path
    device: str = "auto"
    made: Mapping[tuple[str, str], str] | None = None

    @property
    def arms(self) -> list[Arm]:
        """The arms of the design, and those that they refer to."""
        chosen = set(self.design.arms or self.study.arms)
        for arm in reversed(list(self.study.arms.values())):
            if arm.name in chosen:
                chosen |= set(references(arm)) & set(self.study.arms)
        return [arm for arm in self.study.arms.values() if arm.name in chosen]

    def tuned(self) -> list[Arm]:
        """The arms whose learning rate is chosen: those that name none and stand on their own."""
        if not self.study.tune:
            return []
        return [arm for arm in self.arms if arm.tune and "lr" not in arm.flags and not self._before(arm)]

    def tuning(self) -> list[Job]:
        """Every rate of the grid on the development seeds."""
        seeds = range(DEV, DEV + self.design.dev_seeds)
        return [
            self._job(arm, task, seed, rate)
            for seed in seeds
            for arm in self.tuned()
            for rate in self.study.tune
            for task in self.design.on
        ]

    def rates(self, rows: Sequence[RunResult]) -> dict[str, float]:
        """The learning rate of each tuned arm: the best mean over tasks and development seeds."""
        rates = {}
        for arm in self.tuned():
            means = {}
            for rate in self.study.tune:
                values = [row.value for row in rows if row.done and row.label == tuning_label(arm, rate)]
                if values:
                    means[rate] = sum(values) / len(values)
            if means:
                rates[arm.name] = max(means, key=lambda rate: means[rate])
        return rates

    def waves(self, rates: Mapping[str, float]) -> list[list[Job]]:
        """The runs that the verdict is computed from, seed by seed."""
        depths: dict[str, int] = {}
        for arm in self.arms:
            depths[arm.name] = max((depths[name] + 1 for name in self._before(arm)), default=0)
        return [
            [
                self._job(arm, task, seed, rates.get(arm.name))
                for seed in range(self.design.seeds)
                for arm in self.arms
                if depths[arm.name] == depth
                for task in self.design.on
            ]
            for depth in range(max(depths.values(), default=0) + 1)
        ]

    def check(self) -> None:
        """Raise ValueError for an arm that cannot work, before anything runs."""
        for arm in self.arms:
            for task in self.design.on:
                flags = {key: self._stand_in(value) for key, value in {**self.study.options, **arm.flags}.items()}
                try:
                    source = resolve_task(task)
                    entry = find(arm.method)
                    config = configure(entry, arm.method, {"model": self.study.model, **flags})
                    if not references(arm):
                        built = entry.build(source if not arm.learns else resolve_task(arm.learns), **config.arguments)
                        if config.options.swap:
                            swapped(built, config.options.swap)
                except ValueError as error:
                    raise ValueError(f"study {self.study.name}: arm {arm.name!r}: {error}") from None

    def _stand_in(self, value: object) -> object:
        return REFERENCE.sub(self.study.model, value) if isinstance(value, str) else value

    def _before(self, arm: Arm) -> list[str]:
        return [name for name in references(arm) if name in self.study.arms]

    def _job(self, arm: Arm, task: str, seed: int, rate: float | None) -> Job:
        """One run. With a reward of its own it `learns` the task with that reward, and the plain task judges it."""
        label = tuning_label(arm, rate) if seed >= DEV and rate is not None else arm.name
        flags: dict[str, object] = {"model": self.study.model, "device": self.device, **self.study.options, **arm.flags}
        if rate is not None:
            flags["lr"] = rate
        return Job(
            label=label,
            method=arm.method,
            flags={key: self._filled(value, task, seed) for key, value in flags.items()},
            task=task,
            seed=seed,
            budget=arm.budget or self.design.budget,
            out=self._folder(label, task, seed),
            tasks=self.design.tasks,
            replies=self.design.replies if seed < DEV else 1,
            points=self.design.points if seed < DEV else 1,
            keep_model=self._kept(arm) and seed < DEV,
            learns=str(self._filled(arm.learns or (task if "reward" in flags else ""), task, seed)),
            record=self.study.record if seed < DEV else (),
            probes=tuple(str(self._filled(one, task, seed)) for one in self.study.probes) if seed < DEV else (),
        )

    def _kept(self, arm: Arm) -> bool:
        return any(arm.name in references(other) for other in self.arms)

    def _filled(self, value: object, task: str, seed: int) -> object:
        """The value with folders and files in place of names in braces."""
        if not isinstance(value, str):
            return value

        def of(name: str) -> str:
            if (name, task) in (self.made or {}):
                return (self.made or {})[name, task]
            return f"{self._folder(name, task, seed)}/model" if name in self.study.arms else f"{{{name}}}"

        return REFERENCE.sub(lambda match: of(match[1]), value)

    def _folder(self, label: str, task: str, seed: int) -> str:
        return str(self.out / "runs" / f"{plain(label)}-{plain(task)}-seed{seed}")


def tuning_label(arm: Arm, rate: float) -> str:
    """The label of a run on a development seed; such runs are in no verdict."""
    return f"{arm.name} lr={rate:g}"
