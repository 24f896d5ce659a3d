"""The trainer's side of samplers and graders: gives units out, listens for signs of life, replaces who is lost.

One thread of the trainer does it, beside learning. Every actor is asked for a sign of life twice a second; one that died is
noticed by Ray's error, one that hangs by its silence. Its process is ended, a spare takes its place, its unit is given out
again. Nothing is waited for without a limit, and an error names the role, how long was waited, and what was last done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from burnish.placed.actors import end, ping
from burnish.placed.desk import GRADER, SAMPLER, Desk
from burnish.placed.ledger import UnitId

BEAT = 0.5  # seconds between two signs of life
SILENCE = 4.0  # seconds without one after which an actor is taken for hung
START = 300.0  # seconds that an actor may take to start
START_SILENCE = 60.0  # the same while it starts: importing may hold the interpreter for a while
TICK = 0.05  # seconds that one look lasts
LATE = 32  # results of lost actors that are still listened for
Proofs = dict[str, list[list[float]]]


@dataclass(frozen=True)
class Limits:
    """How many of each role work, and what the run puts up with."""

    wanted: dict[str, int]
    spares: int
    replacements: int
    recover_within: float
    call_timeout: float


@dataclass
class Place:
    """One actor, as the trainer knows it. `heard` is the last sign of life, `where` its process, once it is ready."""

    name: str
    role: str
    handle: Any
    began: float
    heard: float
    starting: Any = None
    where: dict[str, Any] | None = None
    pinged: Any = None
    asked_at: float = 0.0
    working: bool = False
    unit: UnitId | None = None
    result: Any = None
    since: float = 0.0
    last: str = "starting"


@dataclass
class Loss:
    """What is told of an actor that was lost."""

    name: str
    role: str
    why: str
    last: str
    silent: float

    def __str__(self) -> str:
        return f"{self.name} was lost: {self.why} (last sign of life {self.silent:.1f} s before; it was {self.last})"


class Crew:
    """Drives a desk with actors. `proved` is called with the proof of weights that a worker has loaded.

    told: what happened since it was last asked, as (time, kind, level, text)
    """

    def __init__(self, desk: Desk, limits: Limits, proved: Callable[[Any, Any, Proofs], None]) -> None:
        self.desk, self.limits, self.proved = desk, limits, proved
        self.places: dict[str, Place] = {}
        self.lost: list[Loss] = []
        self.error: BaseException | None = None
        self._told: list[tuple[float, str, str, str]] = []
        self._late: list[tuple[str, UnitId, Any]] = []
        self._empty: dict[str, float] = {}
        self.filled = False
        self._vacant: dict[str, list[float]] = {SAMPLER: [], GRADER: []}
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._looked = time.monotonic()
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------------------------------- called by other threads

    def join(self, name: str, role: str, handle: Any, where: dict[str, Any] | None = None) -> None:
        """Another actor: it works as soon as there is a place for it. where: its process, if it was ready before."""
        now = time.monotonic()
        starting = handle.ready.remote() if where is None else None
        with self._lock:
            self.places[name] = Place(name, role, handle, now, now, starting, where)

    def wanted(self) -> dict[str, int]:
        """How many more actors of each role should be started. Spares come when every place is filled, not to be in the way."""
        with self._lock:
            have = {role: sum(p.role == role for p in self.places.values()) for role in self.limits.wanted}
            working = sum(p.working for p in self.places.values())
        spares = self.limits.spares if self.filled or working == sum(self.limits.wanted.values()) else 0
        self.filled = self.filled or spares > 0
        return {role: max(0, n + spares - have[role]) for role, n in self.limits.wanted.items()}

    def whereabouts(self) -> dict[str, dict[str, Any]]:
        """The processes of those that are ready."""
        with self._lock:
            return {place.name: place.where for place in self.places.values() if place.where is not None}

    def told(self) -> list[tuple[float, str, str, str]]:
        with self._lock:
            found, self._told = self._told, []
        return found

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="burnish-crew", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop giving out work. The actors belong to whoever made them."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5.0)

    def state(self) -> str:
        """Who does what, for a person who waits."""
        with self._lock:
            return ", ".join(f"{p.name} {p.last}" for p in self.places.values() if p.working) or "nobody is ready yet"

    # ----------------------------------------------------------------------------------------------------- its own thread

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                self._look()
        except BaseException as error:  # noqa: BLE001 - it is raised again where the run can hear it
            self.error = error
        with self.desk.changed:
            self.desk.changed.notify_all()

    def _look(self) -> None:
        import ray

        with self._lock:
            places = list(self.places.values())
        refs = [ref for p in places for ref in (p.starting, p.result, p.pinged) if ref is not None]
        refs += [ref for _, _, ref in self._late]
        done: set[Any] = set()
        if refs:
            done = set(ray.wait(refs, num_returns=1, timeout=TICK)[0])
            done |= set(ray.wait(refs, num_returns=len(refs), timeout=0)[0]) if len(refs) > 1 else set()
        else:
            self._stop.wait(TICK)
        now = time.monotonic()
        held_up = now - self._looked - 1.0  # this thread itself did not run: nobody else is to blame for that
        self._looked = now
        for place in places:
            if held_up > 0:
                place.heard += held_up
            self._hear(place, done, now)
        self._hear_late(done)
        for place in places:
            if place.name in self.places:
                self._judge(place, now)
        self._fill_places(now)
        self._give_out(now)
        self._require_somebody(now)

    def _hear(self, place: Place, done: set[Any], now: float) -> None:
        """Take what an actor answered."""
        if place.starting in done and place.starting is not None:
            found = self._answer(place, place.starting)
            if found is not None:
                place.starting, place.where, place.heard = None, found[0], now
                self._tell(
                    "placed",
                    "info",
                    f"{place.name} is process {place.where['pid']}, ready after {now - place.began:.1f} s",
                )
        if place.pinged in done and place.pinged is not None:
            found = self._answer(place, place.pinged)
            if found is not None:
                place.pinged, place.heard, place.last = None, now, found[0][0]
        if place.result in done and place.result is not None:
            found = self._answer(place, place.result)
            if found is not None:
                place.heard = now
                self._take(place, *found[0])
        if place.pinged is None and now - place.asked_at >= BEAT and place.name in self.places:
            place.pinged, place.asked_at = ping(place.handle), now

    def _answer(self, place: Place, ref: Any) -> tuple[Any] | None:
        """What a reference holds; None where its actor died. What the actor itself raised ends the run, as it was raised."""
        import ray

        try:
            return (ray.get(ref),)
        except ray.exceptions.RayActorError as error:
            self._lose(place, f"its process ended ({_short(error)})")
            return None
        except ray.exceptions.RayTaskError as error:
            raise (error.cause or error) from error

    def _take(self, place: Place, made: Any, proofs: Proofs) -> None:
        unit, place.unit, place.result = place.unit, None, None
        assert unit is not None
        known = self.desk.units.get(unit)
        if known is not None:
            self.proved(known, made, proofs)
        if not self.desk.take(place.role, unit, made):
            self._tell("late", "info", f"a second result of unit {unit} came from {place.name} and was ignored")

    def _hear_late(self, done: set[Any]) -> None:
        """Results of actors that were given up: counted, never taken."""
        import ray

        for role, unit, ref in [one for one in self._late if one[2] in done]:
            self._late.remove((role, unit, ref))
            try:
                ray.get(ref)
            except (ray.exceptions.RayError, Exception):  # noqa: BLE001 - it is lost, whatever it says
                continue
            self.desk.late[unit] += 1
            self._tell("late", "info", f"a result of unit {unit} came after its actor was given up, and was ignored")

    def _judge(self, place: Place, now: float) -> None:
        """Give up an actor that is silent, or that does not end what it does."""
        if place.where is None and now - place.began > START:
            self._lose(place, f"it did not start within {START:g} s")
        elif place.where is None and place.heard == place.began:
            return  # its process does not exist yet
        elif now - place.heard > (SILENCE if place.where else START_SILENCE):
            self._lose(place, f"it gave no sign of life for {now - place.heard:.1f} s")
        elif place.result is not None and now - place.since > self.limits.call_timeout:
            self._lose(place, f"it lives, but had not ended after {now - place.since:.0f} s")

    def _lose(self, place: Place, why: str) -> None:
        with self._lock:
            if self.places.pop(place.name, None) is None:
                return
        loss = Loss(place.name, place.role, why, place.last, time.monotonic() - place.heard)
        self.lost.append(loss)
        self._tell("lost", "warning", str(loss))
        end(place.handle, place.where)
        if place.working:
            self._vacant[place.role].append(time.monotonic())
        if place.unit is not None:
            if place.result is not None:
                self._late = [*self._late, (place.role, place.unit, place.result)][-LATE:]
            self.desk.back(place.role, place.unit)

    def _fill_places(self, now: float) -> None:
        """Who is ready works, as many of each role as were asked for; the others are spares."""
        for role, wanted in self.limits.wanted.items():
            working = sum(p.role == role and p.working for p in self.places.values())
            for place in list(self.places.values()):
                if working < wanted and place.role == role and place.where is not None and not place.working:
                    place.working, working = True, working + 1
                    if self._vacant[role]:
                        after = now - self._vacant[role].pop(0)
                        self._tell(
                            "replaced", "info", f"{place.name} works in place of a lost {role}, {after:.1f} s later"
                        )

    def _give_out(self, now: float) -> None:
        for place in list(self.places.values()):
            if not place.working or place.result is not None:
                continue
            unit = self.desk.give(place.role)
            if unit is None:
                continue
            place.unit, place.since = unit.id, now
            if place.role == SAMPLER:
                place.result = place.handle.rollout.remote(unit)
            else:
                place.result = place.handle.score.remote(unit, self.desk.made[unit.id])

    def _require_somebody(self, now: float) -> None:
        """A role that nobody fills must be filled within the limit, or the run ends with a sentence."""
        for role in self.limits.wanted:
            if any(p.role == role and p.working for p in self.places.values()):
                self._empty.pop(role, None)
                continue
            since = self._empty.setdefault(role, now)
            lost = [loss for loss in self.lost if loss.role == role]
            if lost and now - since > self.limits.recover_within:
                raise ValueError(
                    f"there has been no {role} for {now - since:.0f} s (--recover-within {self.limits.recover_within:g}): "
                    f"{lost[-1]}, and no other was ready; see that the cluster has room, then use --resume"
                )
            if not lost and now - since > START:
                raise ValueError(
                    f"no {role} was ready within {START:g} s; see that the cluster has room for the actors"
                )

    def _tell(self, kind: str, level: str, text: str) -> None:
        with self._lock:
            self._told.append((time.time(), kind, level, text))


def _short(error: BaseException) -> str:
    """The one line of Ray's report that says why."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = next(
        (line for line in lines if "exit type" in line or "killed" in line), lines[0] if lines else "no reason given"
    )
    return (
        why.partition("Worker exit detail: ")[2].partition(". Some common causes")[0].partition(" Some common")[0]
        or why[:200]
    )
