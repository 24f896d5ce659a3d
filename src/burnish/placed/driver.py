"""`burnish train --on ray`: this process starts the actors, follows the trainer and shows what it does.

It owns all actors, so that samplers and graders outlive a trainer that is lost: another trainer, which stands ready, goes on
from the last good checkpoint with the same crew. What happens to actors is written into the run store.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from burnish.loop import Report
from burnish.methods.table import Entry
from burnish.placed.actors import LIFE, Hand, end, placed, tensors_as_bytes
from burnish.placed.cluster import cluster
from burnish.placed.crew import SILENCE, START, TICK, Limits
from burnish.placed.desk import GRADER, SAMPLER
from burnish.placed.stagehand import Spec
from burnish.placed.trainer import Joining, News, Trainer
from burnish.placed.units import split_score
from burnish.report.control import order
from burnish.report.schema import FILE, connect
from burnish.run.config import Config
from burnish.run.folder import Folder
from burnish.run.planning import Plan, plan
from burnish.run.train import About, Observer, Own, Result, Run, polite_interrupt

TRAINER = "trainer"


@dataclass
class Seen:
    """A run that runs elsewhere, as observers see it: a Run without its models."""

    config: Config
    method: Any
    source: Any
    settings: Any
    folder: Folder
    start: int
    about: About


@dataclass
class Actor:
    """An actor that this process made."""

    name: str
    role: str
    handle: Any
    starting: Any
    where: dict[str, Any] | None = None


class TrainerLost(Exception):
    """The trainer died or fell silent; `why` says which, and what it last did."""


def run_on_ray(entry: Entry, config: Config, observer: Observer, folder: Folder | None, own: Own) -> Result:
    """The run on Ray, from its beginning or from the newest checkpoint of its folder."""
    planned = plan(entry, config, own.task)
    options = planned.config.options
    place = folder or Folder.create(planned.config)
    place.path = place.path.resolve()
    graders = options.graders if any(split_score(phase.score)[0] for phase in planned.method.phases) else 0
    limits = Limits(
        {SAMPLER: options.samplers, GRADER: graders} if graders else {SAMPLER: options.samplers},
        options.spares, options.replacements, options.recover_within, options.call_timeout,
    )  # fmt: skip
    actors = sum(limits.wanted.values()) + options.spares * (len(limits.wanted) + 1) + 1
    try:
        observer.preparing(
            "starting Ray" if options.ray_address is None else f"joining the Ray at {options.ray_address}"
        )
        with cluster(options.ray_address, 2 * actors) as ray:
            spec = Spec(planned.config, planned.settings, planned.base, os.getcwd(), own.entry, own.task)
            driver = Driver(ray, planned, spec, limits, place, observer)
            try:
                return driver.run()
            finally:
                driver.close()
    except BaseException:
        place.discard_if_unused()
        raise


class Driver:
    """Makes actors, and follows one trainer after the other until the run ends."""

    def __init__(self, ray: Any, planned: Plan, spec: Spec, limits: Limits, folder: Folder, observer: Observer) -> None:
        self.ray, self.planned, self.spec, self.limits = ray, planned, spec, limits
        self.folder, self.observer = folder, observer
        self.actors: dict[str, Actor] = {}
        self.made: dict[str, int] = {}
        self.lost: set[str] = set()
        self.done = 0
        self.begun = False
        self.ordered = False
        self.unwritten: list[tuple[float, None, str, str, str]] = []
        tensors_as_bytes()

    def run(self) -> Result:
        """The run's result; what the run raises is raised here."""
        self._make(TRAINER)
        for role, n in self.limits.wanted.items():
            for _ in range(n):
                self._make(role)
        words = ", ".join(
            f"{n} {role}{'s' if n > 1 else ''}" for role, n in (*self.limits.wanted.items(), (TRAINER, 1))
        )
        self.observer.preparing(f"starting {words}")
        with polite_interrupt(self.observer) as asked:
            while True:
                trainer = self._next_trainer()
                try:
                    return self._follow(trainer, asked)
                except TrainerLost as why:
                    self._replace_trainer(trainer, str(why))

    def close(self) -> None:
        """End all actors."""
        for actor in self.actors.values():
            with suppress(Exception):  # the cluster may be gone already
                end(actor.handle, actor.where)
        self.actors.clear()

    # ---------------------------------------------------------------------------------------------------------- trainers

    def _next_trainer(self) -> Actor:
        """A trainer that is ready, within the limit."""
        began = time.monotonic()
        first = not self.begun and not self.lost
        limit = START if first else self.limits.recover_within
        while True:
            mine = [actor for actor in self.actors.values() if actor.role == TRAINER]
            for actor in mine or [self._make(TRAINER)]:
                if self._is_ready(actor):
                    return actor
            if time.monotonic() - began > limit:
                raise ValueError(
                    f"no trainer was ready within {limit:g} s (--recover-within): see that the cluster has room for it, then "
                    f"use --resume {self.folder.path}"
                )
            time.sleep(TICK)

    def _is_ready(self, actor: Actor) -> bool:
        if actor.where is None and self.ray.wait([actor.starting], timeout=0)[0]:
            try:
                actor.where = self.ray.get(actor.starting)
            except self.ray.exceptions.RayActorError:
                self.actors.pop(actor.name, None)
                return False
            except self.ray.exceptions.RayTaskError as error:
                raise (error.cause or error) from error
            self._write(time.time(), "placed", "info", f"{actor.name} is process {actor.where['pid']}, ready")
        return actor.where is not None

    def _follow(self, trainer: Actor, asked: list[int]) -> Result:
        """Until the run ends. Raises TrainerLost where its trainer is."""
        result = trainer.handle.train.remote(str(self.folder.path), self.limits)
        news = _ask(trainer, [_joining(actor) for actor in self.actors.values() if actor.role != TRAINER])
        heard = looked = time.monotonic()
        doing = "starting"
        while True:
            ended, _ = self.ray.wait([result, news], num_returns=1, timeout=TICK)
            now = time.monotonic()
            heard += max(0.0, now - looked - 1.0)  # this process itself did not run: the trainer is not to blame
            looked = now
            if asked and not self.ordered and self.begun:
                self.ordered = True
                order(self.folder.path, "stop")
            try:
                if news in ended:
                    told: News = self.ray.get(news)
                    heard, doing = now, told.doing[0]
                    news = _ask(trainer, self._hear(told), after=4 * TICK)
                if result in ended:
                    found: Result = self.ray.get(result)
                    with suppress(
                        self.ray.exceptions.RayError
                    ):  # all is done: the last news would only be nice to have
                        for last in (news, _ask(trainer, [])):  # the question under way may hold the last step
                            self._hear(self.ray.get(last, timeout=SILENCE))
                    self.observer.finished(found)
                    return found
            except self.ray.exceptions.RayTaskError as error:
                raise (error.cause or error) from error
            except self.ray.exceptions.RayActorError:
                raise TrainerLost(f"its process ended; it was {doing}") from None
            if now - heard > SILENCE:
                raise TrainerLost(f"it gave no sign of life for {now - heard:.1f} s; it was {doing}")

    def _replace_trainer(self, trainer: Actor, why: str) -> None:
        self.actors.pop(trainer.name, None)
        self.ordered = False  # the next one has not heard of it
        end(trainer.handle, trainer.where)
        said = f"{trainer.name} was lost: {why}"
        self._write(time.time(), "lost", "warning", said)
        self.observer.warned(f"{said}; another goes on from the last checkpoint")
        self._count(trainer.name, said)

    def _count(self, name: str, said: str) -> None:
        """One more was lost, whichever trainer it worked for."""
        self.lost.add(name)
        if len(self.lost) > self.limits.replacements:
            raise ValueError(
                f"{len(self.lost)} actors were lost, more than --replacements {self.limits.replacements}; the last: {said}; "
                f"look at the logs of Ray, then use --resume {self.folder.path}"
            )

    # -------------------------------------------------------------------------------------------------------------- news

    def _hear(self, news: News) -> list[Joining]:
        """Pass on what a trainer told. The actors that were started for it since."""
        for what, values in news.events:
            self._pass_on(what, values)
        for when, kind, level, text in news.happened:
            self._write(when, kind, level, text)
            if level == "warning":
                self.observer.warned(text)
        for name, said in news.lost.items():
            if self.actors.pop(name, None) is not None:
                self._count(name, said)
        trainers = sum(actor.role == TRAINER for actor in self.actors.values())
        if news.filled and trainers < 1 + self.limits.spares:
            self._make(TRAINER)
        for name, where in news.where.items():
            if name in self.actors:
                self.actors[name].where = where
        return [_joining(self._make(role)) for role, n in news.wanted.items() for _ in range(n)]

    def _pass_on(self, what: str, values: tuple[Any, ...]) -> None:
        if what == "started":
            start, about = values
            if self.begun:
                self._write(time.time(), "replaced", "info", f"another trainer goes on after step {start}")
                return
            self.begun, self.done, p = True, start, self.planned
            seen = Seen(p.config, p.method, p.source, p.settings, self.folder, start, about)
            self.observer.started(cast(Run, seen))
        elif what == "stepped":
            report: Report = values[0]
            if report.clock.step >= self.done:  # steps that another trainer did already were shown
                self.done = report.clock.step + 1
                self.observer.stepped(*values)
        elif what == "ordered" and self.ordered:
            return  # it was this process that ordered it, on Ctrl-C
        else:
            getattr(self.observer, what)(*values)

    # ------------------------------------------------------------------------------------------------------------ actors

    def _make(self, role: str) -> Actor:
        """Start an actor; it gets ready by itself."""
        self.made[role] = self.made.get(role, 0) + 1
        name = f"{role}-{self.made[role]}"
        kind = placed(Trainer if role == TRAINER else Hand)
        handle = kind.remote(name, role, self.spec)
        actor = Actor(name, role, handle, handle.ready.remote() if role == TRAINER else None)
        self.actors[name] = actor
        return actor

    def _write(self, when: float, kind: str, level: str, text: str) -> None:
        """What happens to actors, into the run store: once the trainer has made it."""
        self.unwritten.append((when, None, kind, level, text))
        if not self.begun:
            return
        db = connect(self.folder.path / FILE)
        try:
            db.executemany("INSERT INTO events (time, step, kind, level, text) VALUES (?,?,?,?,?)", self.unwritten)
            self.unwritten.clear()
        finally:
            db.close()


def _joining(actor: Actor) -> Joining:
    return actor.name, actor.role, actor.handle, actor.where


def _ask(trainer: Actor, joining: list[Joining], after: float = 0.0) -> Any:
    """Ask a trainer for news, a moment later."""
    if after:
        time.sleep(after)
    return trainer.handle.news.options(concurrency_group=LIFE).remote(joining)
