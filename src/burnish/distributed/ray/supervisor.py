"""Supervision of samplers and graders by the trainer: assigns units, checks heartbeats, replaces lost actors.

It runs in one thread of the trainer while that learns. Every actor gets a heartbeat request twice a second; a dead
actor is detected by Ray's error, a hanging one by missing heartbeats. Its process is killed, a spare replaces it, and
its unit is assigned again. Every wait has a time limit; errors name the role, the time waited and the last activity.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from burnish.core.pending_step import PartialStep
from burnish.core.sample_ledger import UnitId
from burnish.distributed.ray.actors import Handle, Where, end, ping
from burnish.distributed.ray.units import Unit
from burnish.distributed.ray.work_queue import GRADER, SAMPLER, WorkQueue

if TYPE_CHECKING:
    from ray import ObjectRef

T = TypeVar("T")

BEAT = 0.5  # seconds between two heartbeats
SILENCE = 4.0  # seconds without a heartbeat after which an actor counts as hung
START = 300.0  # time limit in seconds for the start of an actor
START_SILENCE = 60.0  # SILENCE for an actor that starts: imports may hold the GIL for a while
TICK = 0.05  # seconds of one iteration of the supervisor thread
LATE = 32  # pending results of lost actors that are still tracked
Proofs = dict[str, list[list[float]]]


@dataclass(frozen=True)
class ActorLimits:
    """The number of working actors per role, spares, replacements and time limits."""

    wanted: dict[str, int]
    spares: int
    replacements: int
    recover_within: float
    call_timeout: float


@dataclass
class WorkerState:
    """An actor's state. `heard`: time of the last heartbeat; `where`: its process, once it is ready."""

    name: str
    role: str
    handle: Handle
    began: float
    heard: float
    starting: ObjectRef[Where] | None = None
    where: Where | None = None
    pinged: ObjectRef[tuple[str, float]] | None = None
    asked_at: float = 0.0
    working: bool = False
    unit: UnitId | None = None
    result: ObjectRef[tuple[PartialStep, Proofs]] | None = None
    since: float = 0.0
    last: str = "starting"


@dataclass
class Loss:
    """A lost actor, for error messages."""

    name: str
    role: str
    why: str
    last: str
    silent: float

    def __str__(self) -> str:
        return f"{self.name} was lost: {self.why} (last heartbeat {self.silent:.1f} s before; it was {self.last})"


class Supervisor:
    """Processes a work queue with actors.

    proved: called with a unit, its result and the probe log-probs of the weights that the worker loaded for it
    """

    def __init__(
        self, queue: WorkQueue, limits: ActorLimits, proved: Callable[[Unit, PartialStep, Proofs], None]
    ) -> None:
        self.queue, self.limits, self.proved = queue, limits, proved
        self.workers: dict[str, WorkerState] = {}
        self.lost: list[Loss] = []
        self.error: BaseException | None = None
        self._events: list[tuple[float, str, str, str]] = []
        self._late: list[tuple[str, UnitId, ObjectRef[tuple[PartialStep, Proofs]]]] = []
        self._empty: dict[str, float] = {}
        self.filled = False
        self._vacant: dict[str, list[float]] = {SAMPLER: [], GRADER: []}
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._looked = time.monotonic()
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------------------------------ called by other threads

    def join(self, name: str, role: str, handle: Handle, where: Where | None = None) -> None:
        """Add an actor; it works as soon as its role needs one more. where: its process, if it is ready already."""
        now = time.monotonic()
        starting = handle.ready.remote() if where is None else None
        with self._lock:
            self.workers[name] = WorkerState(name, role, handle, now, now, starting, where)

    def wanted(self) -> dict[str, int]:
        """How many more actors of each role to start.

        Spares are started after all working actors, not to slow these down.
        """
        with self._lock:
            have = {role: sum(p.role == role for p in self.workers.values()) for role in self.limits.wanted}
            working = sum(p.working for p in self.workers.values())
        spares = self.limits.spares if self.filled or working == sum(self.limits.wanted.values()) else 0
        self.filled = self.filled or spares > 0
        return {role: max(0, n + spares - have[role]) for role, n in self.limits.wanted.items()}

    def whereabouts(self) -> dict[str, Where]:
        """The processes of the actors that are ready."""
        with self._lock:
            return {worker.name: worker.where for worker in self.workers.values() if worker.where is not None}

    def take_events(self) -> list[tuple[float, str, str, str]]:
        """The events since the last call, as (time, kind, level, text)."""
        with self._lock:
            events, self._events = self._events, []
        return events

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="burnish-supervisor", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop assigning work. The driver, which started the actors, ends them."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def state(self) -> str:
        """The activity of each working actor, for the warning during a long wait."""
        with self._lock:
            return (
                ", ".join(f"{p.name} {p.last}" for p in self.workers.values() if p.working) or "no actor is ready yet"
            )

    # --------------------------------------------------------------------------------------------------- its own thread

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                self._look()
        except BaseException as error:  # noqa: BLE001 - the pipeline raises it in the training thread
            self.error = error
        with self.queue.changed:
            self.queue.changed.notify_all()

    def _look(self) -> None:
        import ray

        with self._lock:
            workers = list(self.workers.values())
        refs = [ref for p in workers for ref in (p.starting, p.result, p.pinged) if ref is not None]
        refs += [ref for _, _, ref in self._late]
        done: set[object] = set()
        if refs:
            done = set(ray.wait(refs, num_returns=1, timeout=TICK)[0])
            done |= set(ray.wait(refs, num_returns=len(refs), timeout=0)[0]) if len(refs) > 1 else set()
        else:
            self._stop.wait(TICK)
        now = time.monotonic()
        held_up = now - self._looked - 1.0  # time in which this thread itself was not running does not count as silence
        self._looked = now
        for worker in workers:
            if held_up > 0:
                worker.heard += held_up
            self._hear(worker, done, now)
        self._hear_late(done)
        for worker in workers:
            if worker.name in self.workers:
                self._judge(worker, now)
        self._activate(now)
        self._assign(now)
        self._require_actors(now)

    def _hear(self, worker: WorkerState, done: set[object], now: float) -> None:
        """Process the answers of an actor, and request the next heartbeat."""
        if worker.starting in done and worker.starting is not None:
            answer = self._answer(worker, worker.starting)
            if answer is not None:
                worker.starting, worker.where, worker.heard = None, answer[0], now
                self._tell(
                    "placed",
                    "info",
                    f"{worker.name} is process {answer[0]['pid']}, ready after {now - worker.began:.1f} s",
                )
        if worker.pinged in done and worker.pinged is not None:
            beat = self._answer(worker, worker.pinged)
            if beat is not None:
                worker.pinged, worker.heard, worker.last = None, now, beat[0][0]
        if worker.result in done and worker.result is not None:
            result = self._answer(worker, worker.result)
            if result is not None:
                worker.heard = now
                self._take(worker, *result[0])
        if worker.pinged is None and now - worker.asked_at >= BEAT and worker.name in self.workers:
            worker.pinged, worker.asked_at = ping(worker.handle), now

    def _answer(self, worker: WorkerState, ref: ObjectRef[T]) -> tuple[T] | None:
        """The value of a reference, in a tuple; None if its actor died.

        An error raised inside the actor ends the run.
        """
        import ray

        try:
            return (ray.get(ref),)
        except ray.exceptions.RayActorError as error:
            self._lose(worker, f"its process ended ({_short(error)})")
            return None
        except ray.exceptions.RayTaskError as error:
            raise (error.cause or error) from error

    def _take(self, worker: WorkerState, made: PartialStep, proofs: Proofs) -> None:
        unit, worker.unit, worker.result = worker.unit, None, None
        assert unit is not None
        queued = self.queue.units.get(unit)
        if queued is not None:
            self.proved(queued, made, proofs)
        if not self.queue.accept(worker.role, unit, made):
            self._tell("late", "info", f"a second result of unit {unit} came from {worker.name} and was ignored")

    def _hear_late(self, done: set[object]) -> None:
        """Count late results of lost actors; they are ignored."""
        import ray

        for role, unit, ref in [one for one in self._late if one[2] in done]:
            self._late.remove((role, unit, ref))
            try:
                ray.get(ref)
            except (ray.exceptions.RayError, Exception):  # noqa: BLE001 - the actor is lost already
                continue
            self.queue.late[unit] += 1
            self._tell("late", "info", f"a result of unit {unit} came after its actor was lost, and was ignored")

    def _judge(self, worker: WorkerState, now: float) -> None:
        """Replace an actor that sends no heartbeat, or that exceeds the time limit of a call."""
        if worker.where is None and now - worker.began > START:
            self._lose(worker, f"it did not start within {START:g} s")
        elif worker.where is None and worker.heard == worker.began:
            return  # its process does not exist yet
        elif now - worker.heard > (SILENCE if worker.where else START_SILENCE):
            self._lose(worker, f"it sent no heartbeat for {now - worker.heard:.1f} s")
        elif worker.result is not None and now - worker.since > self.limits.call_timeout:
            self._lose(worker, f"it is alive, but its unit took more than {now - worker.since:.0f} s")

    def _lose(self, worker: WorkerState, why: str) -> None:
        with self._lock:
            if self.workers.pop(worker.name, None) is None:
                return
        loss = Loss(worker.name, worker.role, why, worker.last, time.monotonic() - worker.heard)
        self.lost.append(loss)
        self._tell("lost", "warning", str(loss))
        end(worker.handle, worker.where)
        if worker.working:
            self._vacant[worker.role].append(time.monotonic())
        if worker.unit is not None:
            if worker.result is not None:
                self._late = [*self._late, (worker.role, worker.unit, worker.result)][-LATE:]
            self.queue.put_back(worker.role, worker.unit)

    def _activate(self, now: float) -> None:
        """Let ready actors work, up to the wanted number of each role; the others are spares."""
        for role, wanted in self.limits.wanted.items():
            working = sum(p.role == role and p.working for p in self.workers.values())
            for worker in list(self.workers.values()):
                if working < wanted and worker.role == role and worker.where is not None and not worker.working:
                    worker.working, working = True, working + 1
                    if self._vacant[role]:
                        after = now - self._vacant[role].pop(0)
                        self._tell(
                            "replaced", "info", f"{worker.name} works in place of a lost {role}, {after:.1f} s later"
                        )

    def _assign(self, now: float) -> None:
        """Give the next unit to each idle actor."""
        for worker in list(self.workers.values()):
            if not worker.working or worker.result is not None:
                continue
            unit = self.queue.next_unit(worker.role)
            if unit is None:
                continue
            worker.unit, worker.since = unit.id, now
            if worker.role == SAMPLER:
                worker.result = worker.handle.rollout.remote(unit)
            else:
                worker.result = worker.handle.score.remote(unit, self.queue.made[unit.id])

    def _require_actors(self, now: float) -> None:
        """Raise ValueError if a role has had no working actor for longer than the time limit."""
        for role in self.limits.wanted:
            if any(p.role == role and p.working for p in self.workers.values()):
                self._empty.pop(role, None)
                continue
            since = self._empty.setdefault(role, now)
            lost = [loss for loss in self.lost if loss.role == role]
            if lost and now - since > self.limits.recover_within:
                raise ValueError(
                    f"there has been no {role} for {now - since:.0f} s (--recover-within "
                    f"{self.limits.recover_within:g}): "
                    f"{lost[-1]}, and no other was ready; check that the cluster has capacity, then use --resume"
                )
            if not lost and now - since > START:
                raise ValueError(
                    f"no {role} was ready within {START:g} s; check that the cluster has capacity for the actors"
                )

    def _tell(self, kind: str, level: str, text: str) -> None:
        with self._lock:
            self._events.append((time.time(), kind, level, text))


def _short(error: BaseException) -> str:
    """The reason, from the lines of Ray's error message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = next(
        (line for line in lines if "exit type" in line or "killed" in line), lines[0] if lines else "no reason given"
    )
    return (
        why.partition("Worker exit detail: ")[2].partition(". Some common causes")[0].partition(" Some common")[0]
        or why[:200]
    )
