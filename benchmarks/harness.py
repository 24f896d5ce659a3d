"""Sides take turns at the same work; what every turn took is written down; a table says who was how fast.

A part is one piece of work and the sides that do it. Every side is a process of its own (worker.py). After warm-up
turns, the sides take turns one after the other (burnish, peer, burnish, peer ...), so that whatever else the machine
does falls on all of them. Every turn is saved at once: what was interrupted goes on where it stopped, as long as
neither the code nor the machine nor the work has changed. A side that fails is recorded with its error, and the others
go on.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from rich.console import Console

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SCRATCH = ROOT / ".bench"
RESULTS = HERE / "results"
OURS = "burnish"

console = Console(highlight=False)


@dataclass(frozen=True)
class Side:
    """One contestant: its name, the function that does the work, and the Python it needs."""

    name: str
    target: str
    options: Mapping[str, Any] = field(default_factory=dict)  # added to the work, for this side alone
    python: str = sys.executable
    paths: tuple[str, ...] = ()  # put before PYTHONPATH
    env: Mapping[str, str] = field(default_factory=dict)
    warmup: int | None = None  # turns before the ones that count; None takes the run's own number


@dataclass(frozen=True)
class Goal:
    """What burnish has to reach in a part.

    of        rate (higher is better), seconds or peak_bytes (lower is better), or floor (the share of the floor
              reached)
    value     the bound itself, or the factor by which burnish has to be better than `against`
    against   another side of the part, or "side@part" of another part
    ours      which of our sides the goal is about
    """

    of: str
    value: float
    against: str | None = None
    ours: str = OURS

    def text(self) -> str:
        sign = ">=" if self.against or self.of in ("rate", "floor") else "<="
        if self.against:
            what = {"peak_bytes": " less memory than", "seconds": " faster than"}.get(self.of, "")
            return f"{sign} {self.value:g}x{what} {self.against.replace('@', ' of ')}"
        if self.of == "floor":
            return f"{sign} {self.value:.0%} of the floor"
        return f"{sign} {shown(self.value, '' if self.of == 'rate' else 's')}"


@dataclass(frozen=True)
class Part:
    """One piece of work for several sides.

    rate   the count that is divided by the seconds (sampled_tokens, processed_tokens, samples); None compares seconds
    work   everything that the sides need to know, as JSON
    floor  the least seconds that the machine could need for it, where that can be computed
    facts  numbers about the work for the readers of the results
    same   the counts that every side must agree on; {name: share by which they may differ}
    """

    name: str
    title: str
    sides: Sequence[Side]
    work: Mapping[str, Any]
    rate: str | None = None
    goals: Sequence[Goal] = ()
    floor: float | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    same: Mapping[str, float] = field(default_factory=dict)
    fresh: bool = False  # a new process for every turn


class Failed(RuntimeError):
    """A side could not do its work; the message is its own."""


class Worker:
    """A side's process, and the turns it is given."""

    def __init__(self, side: Side, part: Part) -> None:
        place = SCRATCH / "work"
        place.mkdir(parents=True, exist_ok=True)
        name = f"{part.name}-{side.name}"
        work = place / f"{name}.json"
        work.write_text(json.dumps({**part.work, **side.options}))
        self.log = place / f"{name}.log"
        inherited = [
            str(Path(entry).resolve()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry
        ]
        paths = os.pathsep.join([*side.paths, str(HERE), str(ROOT / "src"), *inherited])
        env = {**os.environ, **side.env, "PYTHONPATH": paths, "HF_HUB_OFFLINE": "1"}
        self._stderr: IO[str] = self.log.open("w")
        self.process = subprocess.Popen(
            [side.python, str(HERE / "worker.py"), side.target, str(work)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=env,
            cwd=SCRATCH,
        )
        self._left = b""

    def answer(self, limit: float, waiting_for: str) -> dict[str, Any]:
        """The next line of the side, or Failed."""
        assert self.process.stdout is not None
        chooser = selectors.DefaultSelector()
        chooser.register(self.process.stdout, selectors.EVENT_READ)
        end = time.monotonic() + limit
        while b"\n" not in self._left:
            if not chooser.select(max(0.0, end - time.monotonic())):
                raise Failed(f"no answer within {limit:.0f} s while waiting for {waiting_for}")
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            if not chunk:
                raise Failed(
                    f"ended with code {self.process.wait()} while waiting for {waiting_for}: {self._last_words()}"
                )
            self._left += chunk
        line, _, self._left = self._left.partition(b"\n")
        said = json.loads(line)
        if "error" in said:
            raise Failed(said["error"])
        return said

    def turn(self, limit: float, waiting_for: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()
        return self.answer(limit, waiting_for)

    def _last_words(self) -> str:
        return " | ".join(self.log.read_text(errors="replace").strip().splitlines()[-3:])[-600:]

    def close(self, patience: float = 20) -> None:
        """No more turns: the process may end by itself, or is ended."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self._stderr.close()


def compete(
    part: Part, sides: list[Side], record: dict[str, Any], save: Any, *, repeats: int, warmup: int, limit: float
) -> None:
    """Give these sides of a part their turns; `record` is the part's entry in the results, saved after every turn."""
    console.print(f"\n[bold]{part.name}[/bold]  {part.title}")
    for side in sides:
        if record["sides"].get(side.name, {}).get("options", side.options) != dict(side.options):
            del record["sides"][side.name]  # it was measured with other settings
    wanted = [side for side in sides if _missing(record, side.name, repeats)]
    for side in sides:
        if side not in wanted:
            console.print(f"  {side.name}: {repeats} runs are there already")
    if part.fresh:
        _fresh_turns(part, wanted, record, save, repeats, limit)
    else:
        _turns(part, wanted, record, save, repeats, warmup, limit)
    for problem in disagreements(record):
        console.print(f"  [yellow]not the same work:[/yellow] {problem}")


def _turns(
    part: Part, sides: list[Side], record: dict[str, Any], save: Any, repeats: int, warmup: int, limit: float
) -> None:
    workers = {side.name: Worker(side, part) for side in sides}
    for side in sides:
        record["sides"][side.name] = {
            "options": dict(side.options),
            "runs": record["sides"].get(side.name, {}).get("runs", []),
        }
    try:
        for side in sides:
            name = side.name
            with _tolerant(part, name, record, workers, save):
                start = time.monotonic()
                found = workers[name].answer(limit, f"{name} to set itself up")
                record["sides"][name]["versions"] = found["versions"]
                record["sides"][name]["set_up_seconds"] = round(time.monotonic() - start, 3)
                turns = warmup if side.warmup is None else side.warmup
                for k in range(turns):
                    run = workers[name].turn(limit, f"a warm-up turn of {name}")
                    console.print(f"  {name:<16} warm-up {k + 1}/{turns}  {run['seconds']:.3f} s", style="dim")
        while todo := [name for name in workers if _missing(record, name, repeats)]:
            for name in todo:
                with _tolerant(part, name, record, workers, save):
                    _note(part, record, name, workers[name].turn(limit, f"a turn of {name}"), repeats)
                    save()
    finally:
        for worker in workers.values():
            worker.close()


def _fresh_turns(part: Part, sides: list[Side], record: dict[str, Any], save: Any, repeats: int, limit: float) -> None:
    """A process for every turn, for what happens only once in a process."""
    for side in sides:
        record["sides"].setdefault(side.name, {"options": dict(side.options), "runs": []})
    alive = {side.name: side for side in sides}
    while todo := [name for name in alive if _missing(record, name, repeats)]:
        for name in todo:
            worker = {name: Worker(alive[name], part)}
            with _tolerant(part, name, record, worker, save):
                record["sides"][name]["versions"] = worker[name].answer(limit, f"{name} to start")["versions"]
                _note(part, record, name, worker[name].turn(limit, f"a turn of {name}"), repeats)
                save()
            if name in worker:
                worker[name].close()
            else:
                del alive[name]


class _tolerant:  # noqa: N801 - reads as a word in a with statement
    """A side that fails is recorded and leaves; the others go on."""

    def __init__(self, part: Part, name: str, record: dict[str, Any], workers: dict[str, Worker], save: Any) -> None:
        self.part, self.name, self.record, self.workers, self.save = part, name, record, workers, save

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, (Failed, BrokenPipeError)):
            return False
        self.record["sides"].setdefault(self.name, {"runs": []})["error"] = str(error)
        self.workers.pop(self.name).close(patience=1)
        self.save()
        console.print(f"  {self.name:<16} [red]failed:[/red] {str(error)[:300]}", markup=True)
        return True


def _missing(record: dict[str, Any], name: str, repeats: int) -> bool:
    side = record["sides"].get(name)
    return side is None or "error" in side or len(side["runs"]) < repeats


def _note(part: Part, record: dict[str, Any], name: str, run: dict[str, Any], repeats: int) -> None:
    runs = record["sides"][name]["runs"]
    runs.append(run)
    done = f"{run[part.rate] / run['seconds']:,.0f} {unit(part.rate)}" if part.rate else ""
    peak = run["peak_bytes"] / 2**30
    console.print(f"  {name:<16} {len(runs)}/{repeats}  {run['seconds']:8.3f} s  {done:>16}  peak {peak:.2f} GiB")


def disagreements(record: Mapping[str, Any]) -> list[str]:
    """Counts that a part's sides should agree on and do not, in words."""
    found = []
    for name, tolerance in record.get("same", {}).items():
        counts = {
            side: sum(run[name] for run in entry["runs"]) / len(entry["runs"])
            for side, entry in record["sides"].items()
            if entry["runs"] and name in entry["runs"][0]
        }
        if counts and max(counts.values()) - min(counts.values()) > tolerance * max(counts.values()):
            found.append(f"{name} a turn: " + ", ".join(f"{side} {count:,.0f}" for side, count in counts.items()))
    return found


def unit(rate: str | None) -> str:
    """How a rate is called in tables."""
    return {
        "sampled_tokens": "tok/s",
        "trained_tokens": "tok/s",
        "processed_tokens": "tok/s",
        "samples": "samples/s",
    }.get(rate or "", "s")


def shown(value: float, what: str = "") -> str:
    """A number with as many digits as matter."""
    number = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{number} {what}".rstrip()
