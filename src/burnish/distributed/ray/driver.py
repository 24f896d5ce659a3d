"""`burnish train --on ray`: this process starts the actors, follows the trainer and displays its progress.

It owns all actors, so samplers and graders survive a lost trainer: a spare trainer resumes from the last good
checkpoint with the same workers. Events of actors are written to the run store.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from burnish.config.options import Config
from burnish.core.method import Method
from burnish.core.parts import split_score
from burnish.core.step import Settings
from burnish.distributed.ray.actors import LIFE, Handle, Where, WorkerActor, as_actor, end, tensors_as_bytes
from burnish.distributed.ray.cluster import cluster
from burnish.distributed.ray.supervisor import SILENCE, START, TICK, ActorLimits
from burnish.distributed.ray.trainer import Joining, News, Trainer
from burnish.distributed.ray.work_queue import GRADER, SAMPLER
from burnish.distributed.ray.worker import Spec
from burnish.evals.best import Best
from burnish.methods.table import Entry
from burnish.run.folder import Folder
from burnish.run.lengths import Lengths
from burnish.run.lock import DRIVER
from burnish.run.observed import About, held_out_size
from burnish.run.plan import RunPlan, plan
from burnish.run.reward_versions import Versions
from burnish.run.train import Observer, PassedObjects, Result, graceful_interrupt
from burnish.store.control import order
from burnish.store.schema import FILE, connect
from burnish.tasks.source import Source

if TYPE_CHECKING:
    from ray import ObjectRef

TRAINER = "trainer"


@dataclass
class RemoteRun:
    """A run in another process, as observers see it (ObservedRun): a Run without its models."""

    config: Config
    method: Method
    source: Source
    settings: Settings
    folder: Folder
    start: int
    about: About
    lengths: Lengths | None
    rewards: Versions
    best: Best

    @property
    def held_out(self) -> int:
        """The number of held-out tasks of an evaluation."""
        return held_out_size(self.config, self.source)


@dataclass
class Actor:
    """An actor that this process started."""

    name: str
    role: str
    handle: Handle
    starting: ObjectRef[Where] | None
    where: Where | None = None


class TrainerLostError(Exception):
    """The trainer died or sent no heartbeat."""


def run_on_ray(
    entry: Entry, config: Config, observer: Observer, folder: Folder | None, passed: PassedObjects
) -> Result:
    """Execute a run on Ray, from the start or from the newest checkpoint of its folder."""
    planned = plan(entry, config, passed.task, passed.rewards)
    options = planned.config.options
    run_folder = folder or Folder.create(planned.config)
    run_folder.path = run_folder.path.resolve()
    run_folder.release()  # the trainer takes the lock for writing; this process owns the run but writes no steps
    run_folder.lock(DRIVER)
    graders = options.graders if any(split_score(phase.score)[0] for phase in planned.method.phases) else 0
    working = {SAMPLER: options.samplers, GRADER: graders} if graders else {SAMPLER: options.samplers}
    seconds = options.recover_within, options.call_timeout
    limits = ActorLimits(working, options.spares, options.replacements, *seconds)
    actors = sum(limits.wanted.values()) + options.spares * (len(limits.wanted) + 1) + 1
    try:
        observer.preparing(
            "starting Ray" if options.ray_address is None else f"joining the Ray at {options.ray_address}"
        )
        with cluster(options.ray_address, 2 * actors) as ray:
            own = (passed.entry, passed.task, passed.rewards)
            spec = Spec(planned.config, planned.settings, planned.base, os.getcwd(), *own)
            driver = Driver(ray, planned, spec, limits, run_folder, observer)
            try:
                return driver.run()
            finally:
                driver.close()
    except BaseException:
        run_folder.discard_if_unused()
        raise
    finally:
        run_folder.release()


class Driver:
    """Starts actors, and follows the trainer (or its replacements) until the run ends."""

    def __init__(
        self, ray: ModuleType, planned: RunPlan, spec: Spec, limits: ActorLimits, folder: Folder, observer: Observer
    ) -> None:
        self.ray, self.planned, self.spec, self.limits = ray, planned, spec, limits
        self.folder, self.observer = folder, observer
        self.actors: dict[str, Actor] = {}
        self.made: dict[str, int] = {}
        self.lost: set[str] = set()
        self.done, self.best = 0, Best(planned.config.options)
        self.begun = self.training = False
        self.ordered = False
        self.unwritten: list[tuple[float, None, str, str, str]] = []
        tensors_as_bytes()

    def run(self) -> Result:
        """Wait for the run's result; errors of the run are raised here."""
        self._make(TRAINER)
        for role, n in self.limits.wanted.items():
            for _ in range(n):
                self._make(role)
        words = ", ".join(
            f"{n} {role}{'s' if n > 1 else ''}" for role, n in (*self.limits.wanted.items(), (TRAINER, 1))
        )
        self.observer.preparing(f"starting {words}")
        with graceful_interrupt(self.observer) as signals:
            while True:
                trainer = self._next_trainer()
                try:
                    return self._follow(trainer, signals)
                except TrainerLostError as why:
                    self._replace_trainer(trainer, str(why))

    def close(self) -> None:
        """End all actors."""
        for actor in self.actors.values():
            with suppress(Exception):  # the cluster may be gone already
                end(actor.handle, actor.where)
        self.actors.clear()

    # --------------------------------------------------------------------------------------------------------- trainers

    def _next_trainer(self) -> Actor:
        """Wait for a trainer that is ready; raise ValueError after the time limit."""
        began = time.monotonic()
        first = not self.begun and not self.lost
        limit = START if first else self.limits.recover_within
        while True:
            trainers = [actor for actor in self.actors.values() if actor.role == TRAINER]
            for actor in trainers or [self._make(TRAINER)]:
                if self._is_ready(actor):
                    return actor
            if time.monotonic() - began > limit:
                raise ValueError(
                    f"no trainer was ready within {limit:g} s (--recover-within); check that the cluster has capacity "
                    f"for it, then use --resume {self.folder.path}"
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

    def _follow(self, trainer: Actor, signals: list[int]) -> Result:
        """Follow a trainer until the run ends; raise TrainerLostError if it dies or sends no heartbeat."""
        result = trainer.handle.train.remote(str(self.folder.path), self.limits)
        news = _ask(trainer, [_joining(actor) for actor in self.actors.values() if actor.role != TRAINER])
        heard = looked = time.monotonic()
        doing = "starting"
        while True:
            ended, _ = self.ray.wait([result, news], num_returns=1, timeout=TICK)
            now = time.monotonic()
            heard += max(0.0, now - looked - 1.0)  # do not count time in which this process itself was not running
            looked = now
            if signals and not self.ordered and self.begun:
                self.ordered = True
                order(self.folder.path, "stop")
            try:
                if news in ended:
                    latest: News = self.ray.get(news)
                    heard, doing = now, latest.doing[0]
                    news = _ask(trainer, self._hear(latest), after=4 * TICK)
                if result in ended:
                    outcome: Result = self.ray.get(result)
                    with suppress(self.ray.exceptions.RayError):  # the run is done, so the last news are optional
                        for last in (news, _ask(trainer, [])):  # the pending request may hold the last step
                            self._hear(self.ray.get(last, timeout=SILENCE))
                    self.observer.finished(outcome)
                    return outcome
            except self.ray.exceptions.RayTaskError as error:
                raise (error.cause or error) from error
            except self.ray.exceptions.RayActorError:
                raise TrainerLostError(f"its process ended; it was {doing}") from None
            if now - heard > SILENCE:
                raise TrainerLostError(f"it sent no heartbeat for {now - heard:.1f} s; it was {doing}")

    def _replace_trainer(self, trainer: Actor, why: str) -> None:
        self.actors.pop(trainer.name, None)
        self.ordered = False  # the next trainer has not received the order
        end(trainer.handle, trainer.where)
        message = f"{trainer.name} was lost: {why}"
        self._write(time.time(), "lost", "warning", message)
        self.observer.warned(f"{message}; another trainer resumes from the last checkpoint")
        self._count(trainer.name, message)

    def _count(self, name: str, message: str) -> None:
        """Count a lost actor; raise ValueError after more than --replacements of them."""
        self.lost.add(name)
        if len(self.lost) > self.limits.replacements:
            raise ValueError(
                f"{len(self.lost)} actors were lost, more than --replacements {self.limits.replacements}; the last: "
                f"{message}; check the logs of Ray, then use --resume {self.folder.path}"
            )

    # ------------------------------------------------------------------------------------------------------------- news

    def _hear(self, news: News) -> list[Joining]:
        """Handle the news of a trainer; return the actors that were started for it."""
        for what, values in news.events:
            self._pass_on(what, values)
        for when, kind, level, text in news.happened:
            self._write(when, kind, level, text)
            if level == "warning":
                self.observer.warned(text)
        for name, message in news.lost.items():
            if self.actors.pop(name, None) is not None:
                self._count(name, message)
        trainers = sum(actor.role == TRAINER for actor in self.actors.values())
        if news.filled and trainers < 1 + self.limits.spares:
            self._make(TRAINER)
        for name, where in news.where.items():
            if name in self.actors:
                self.actors[name].where = where
        return [_joining(self._make(role)) for role, n in news.wanted.items() for _ in range(n)]

    def _pass_on(self, what: str, values: tuple[Any, ...]) -> None:
        if what == "started":
            start, about, lengths, scores = values
            if self.begun:
                self._write(time.time(), "replaced", "info", f"another trainer resumes after step {start}")
                return
            self.begun, self.done, p = True, start, self.planned
            own = (self.folder, start, about, lengths, p.rewards, self.best)
            self.best.load_state_dict(scores)
            self.observer.started(RemoteRun(p.config, p.method, p.source, p.settings, *own))
        elif what == "stepped":
            report, heldout, seconds, scores = values
            if report.clock.step >= self.done:  # steps repeated by a replacement were shown already
                self.done = report.clock.step + 1
                self.best.load_state_dict(scores)
                self.observer.stepped(report, heldout, seconds)
        elif what == "begun" and self.training:
            return  # a replacement starts over
        elif what == "ordered" and self.ordered:
            return  # this process sent the order itself, on Ctrl-C
        else:
            self.training = self.training or what == "begun"
            getattr(self.observer, what)(*values)

    # ----------------------------------------------------------------------------------------------------------- actors

    def _make(self, role: str) -> Actor:
        """Start an actor; it loads asynchronously."""
        self.made[role] = self.made.get(role, 0) + 1
        name = f"{role}-{self.made[role]}"
        kind = as_actor(Trainer if role == TRAINER else WorkerActor)
        handle = kind.remote(name, role, self.spec)
        actor = Actor(name, role, handle, handle.ready.remote() if role == TRAINER else None)
        self.actors[name] = actor
        return actor

    def _write(self, when: float, kind: str, level: str, text: str) -> None:
        """Write an event to the run store; before the trainer has created the store, keep it for later."""
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


def _ask(trainer: Actor, joining: list[Joining], after: float = 0.0) -> ObjectRef[News]:
    """Request a trainer's news, `after` seconds from now."""
    if after:
        time.sleep(after)
    return trainer.handle.news.options(concurrency_group=LIFE).remote(joining)
