"""Plant random slips in burnish, one at a time, and count how many of them the fast tests notice.

    python scripts/mutants.py                            100 slips with seed 1; a second call resumes
    python scripts/mutants.py --workers 14 --minutes 9   in 14 processes, for nine minutes
    python scripts/mutants.py --again                    run the slips again that were not noticed, after tests were
                                                         added; a slip in code that has moved since is looked for by
                                                         its function and text

The tests that call the function with the slip run, those that call the fewest functions first, until one fails. Which
tests those are is recorded first, and again for test files that changed (called.py). A slip that no test notices within
the time limit survives. The result is benchmarks/results/mutants.json; --state names the file of what was recorded.

A test that fails without a slip, or passes with it the second time, does not count. Not planted: files that need a GPU,
Ray or vLLM.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import itertools
import json
import os
import random
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(Path(__file__).parent))
import mutant_workers  # noqa: E402
from mutant_workers import Called  # noqa: E402
from slips import Slip, slips  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "mutants.json"
STATE = ROOT / "build" / "mutants.json.gz"
ELSEWHERE = ("/placed/", "/ray/", "vllm")  # what runs only where Ray or vLLM is installed; so do its tests
TEXT_ONLY = (  # they read the source, and would notice any change
    "tests/laws/test_repo.py",
    "tests/laws/test_security.py",
)
DEFAULTS = ("tests/config/test_defaults.py",)  # for slips in a default, which no call need notice
SLOWEST = ("laws", "e2e", "kernels", "distributed", "engine")  # folders whose files are recorded first
MOST_FILES = 10  # test files that run where what they call was not recorded


@dataclass(frozen=True)
class Told:
    """What this call is asked for."""

    result: Path
    state: Path
    seconds: float
    workers: int
    end: float


def main() -> None:
    """Record what is called where it is not known, then plant slips until all are done or the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--slips", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="of recorded test time for one slip")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many, to resume later")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes side by side")
    parser.add_argument("--result", type=Path, default=RESULT, help="the JSON file that is written and resumed")
    parser.add_argument("--state", type=Path, default=STATE, help="the file of what was recorded")
    parser.add_argument("--again", action="store_true", help="run the survivors again")
    parser.add_argument("--record-only", action="store_true", help="record which tests call what, and stop")
    parser.add_argument("tests", nargs="*", help="test files to use; by default all")
    given = parser.parse_args()
    told = Told(given.result, given.state, given.seconds, given.workers, time.monotonic() + 60 * given.minutes)
    files = given.tests or [str(p.relative_to(ROOT)) for p in sorted((ROOT / "tests").rglob("test_*.py"))]
    files = [file for file in files if file not in TEXT_ONLY]
    stored = _stored(told.result)
    drawn = found_again(stored["slips"]) if given.again else chosen(given.slips, given.seed)
    called = recorded(files, drawn, told)
    if given.record_only:
        return
    if given.again:
        run_again(stored, drawn, called, told)
    else:
        run_all(stored, drawn, called, told, given.seed)
    _say(_stored(told.result))


def run_all(stored: dict[str, Any], drawn: list[Slip], called: Called, told: Told, seed: int) -> None:
    """Run the slips that have no result yet; each result is written when it is there."""
    keys = [slip.key for slip in drawn]
    results = {found["key"]: found for found in stored["slips"]}
    left = [slip for slip in drawn if slip.key not in results]
    for found in _outcomes(left, called, told):
        results[found["key"]] = found
        _store(told.result, results, keys, seed)
    _store(told.result, results, keys, seed)


def run_again(stored: dict[str, Any], drawn: list[Slip], called: Called, told: Told) -> None:
    """Run the survivors of a stored result again, wherever their code stands now. Each keeps its place among the
    slips.
    """
    places = {slip.key: place for place, old in enumerate(stored["slips"]) for slip in drawn if alike(slip, old)}
    for found in _outcomes(drawn, called, told):
        old = stored["slips"][places[found["key"]]]
        new = old | found | {"drawn_as": old.get("drawn_as", old["key"])}
        if new["noticed"]:
            new.pop("reason", None)
        stored["slips"][places[found["key"]]] = new
        noticed = sum(slip["noticed"] for slip in stored["slips"])
        told.result.write_text(json.dumps(stored | {"noticed": noticed}, indent=1) + "\n")


def found_again(stored: list[dict[str, Any]]) -> list[Slip]:
    """The stored slips that survived, where they stand today: those that can be told from others."""
    every, found = possible(), []
    for old in stored:
        here = [slip for slip in every if not old["noticed"] and alike(slip, old)]
        found += here if len(here) == 1 else []
    return found


def alike(slip: Slip, old: dict[str, Any]) -> bool:
    """Whether a slip is the stored one, in a file that may have another name and other lines."""
    return (slip.function, slip.what, slip.before[:160], slip.after[:160]) == (
        old["function"],
        old["what"],
        old["before"],
        old["after"],
    )


def chosen(count: int, seed: int) -> list[Slip]:
    """So many slips, one of each package in turn, and within a package drawn without favour."""
    dice, packages = random.Random(seed), dict[str, list[Slip]]()
    for slip in possible():
        packages.setdefault(Path(slip.file).parts[1], []).append(slip)
    drawn = [dice.sample(found, min(count, len(found))) for found in packages.values()]
    dice.shuffle(drawn)
    turns = itertools.chain.from_iterable(itertools.zip_longest(*drawn))
    return [slip for slip in turns if slip is not None][:count]


def possible() -> list[Slip]:
    """Every slip that could be planted."""
    found: list[Slip] = []
    for file in sorted((ROOT / "src" / "burnish").rglob("*.py")):
        source, name = file.read_text(), str(file.relative_to(ROOT / "src"))
        if "import triton" not in source and not any(word in name for word in ELSEWHERE):
            found += slips(name, source)
    return found


def recorded(files: list[str], drawn: list[Slip], told: Told) -> Called:
    """What each test calls in the files with slips. It is recorded again when one of these has changed, and for a test
    file that has changed.
    """
    places = frozenset(slip.file for slip in drawn)
    sources = _hash("".join(name + _hash((ROOT / "src" / name).read_text()) for name in sorted(places)))
    state = json.loads(gzip.decompress(told.state.read_bytes())) if told.state.exists() else {}
    known = state["files"] if state.get("sources") == sources else {}
    marks = {file: _hash((ROOT / file).read_text()) for file in files}
    new = [file for file in files if known.get(file, {}).get("mark") != marks[file]]
    new.sort(key=lambda file: (Path(file).parts[1] not in SLOWEST, -(ROOT / file).stat().st_size))
    saved = time.monotonic()
    tasks = [(mutant_workers.record, (file, places, told.end)) for file in new]
    for number, tests in _done(tasks, told):
        if tests is not None:
            known[new[number]] = {"mark": marks[new[number]], "tests": tests}
            print(f"recorded {new[number]}: {len(tests)} tests", flush=True)
        if time.monotonic() > saved + 20:
            _save(told.state, sources, known)
            saved = time.monotonic()
    if new:
        _save(told.state, sources, known)
    return {test: found for file in files for test, found in known.get(file, {}).get("tests", {}).items()}


def tests_for(slip: Slip, called: Called, seconds: float) -> list[str]:
    """Tests that call the function with the slip, the most specific first, up to so many seconds.

    What stands outside of functions runs at import: tests that call anything of the file.
    """
    place = f"{slip.file}:{slip.first_line}" if slip.function else None
    prefix = f"{slip.file}:"
    near = [t for t, found in called.items() if place in found["calls"]]
    if not near:
        near = [t for t, found in called.items() if any(call.startswith(prefix) for call in found["calls"])]
    if not near:  # what runs in another process is not recorded: the test files that speak of the module
        return [*(DEFAULTS if slip.signature else ()), *_speak_of(slip.file)]
    near.sort(key=lambda t: (called[t]["seconds"] > 5, called[t]["size"], called[t]["seconds"]))
    taken, spent = [], 0.0
    for test in near:
        if spent + called[test]["seconds"] <= seconds or not taken:
            taken.append(test)
            spent += called[test]["seconds"]
    return [*(DEFAULTS if slip.signature else ()), *taken[:400]]


def _speak_of(file: str) -> list[str]:
    """Test files that import the module of a source file, or are called like it; where there are none, those of its
    package. Those called like it come first, then small ones; no more than MOST_FILES.
    """
    module, stem = file.removesuffix(".py").replace("/", "."), Path(file).stem
    package = Path(file).parts[1].removesuffix(".py")
    names = (module, f"from {module.rpartition('.')[0]} import {stem}")
    tests = {test: test.read_text() for test in sorted((ROOT / "tests").rglob("test_*.py"))}
    found = [t for t, text in tests.items() if any(n in text for n in names) or t.stem.startswith(f"test_{stem}")]
    found = found or [t for t, text in tests.items() if t.parent.name == package or f"burnish.{package}" in text]
    found.sort(key=lambda t: (stem not in t.stem, t.parent.name != package, len(tests[t])))
    return [str(test.relative_to(ROOT)) for test in found[:MOST_FILES]]


def _outcomes(left: list[Slip], called: Called, told: Told) -> Any:
    """The result of each slip, as it comes."""
    tasks = []
    for slip in left:
        tests = tests_for(slip, called, told.seconds)
        seconds = {test: called[test]["seconds"] for test in tests if test in called}
        tasks.append((mutant_workers.run, (slip, tests, seconds, told.end)))
    for number, found in _done(tasks, told):
        if found is not None:
            slip = left[number]
            took = f"{found['how']:9} {found['tests']:4} tests {found['seconds']:4} s"
            change = f"{slip.before[:60]!r} -> {slip.after[:60]!r}"
            print(f"{took}  {slip.file}:{slip.line} {slip.what}: {change}", flush=True)
            yield found


def _done(tasks: list[tuple[Any, tuple[Any, ...]]], told: Told) -> Any:
    """Number and result of each task as it ends, a few at a time, until the time is over."""
    if not tasks or time.monotonic() > told.end:
        return
    waiting = iter(enumerate(tasks))
    with mutant_workers.workers(min(told.workers, len(tasks))) as pool:
        running: dict[Future[Any], int] = {}
        while True:
            while len(running) < told.workers and time.monotonic() < told.end:
                number, (work, arguments) = next(waiting, (-1, (None, ())))
                if work is None:
                    break
                running[pool.submit(work, *arguments)] = number
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()


def _save(state: Path, sources: str, known: dict[str, Any]) -> None:
    state.parent.mkdir(parents=True, exist_ok=True)
    state.write_bytes(gzip.compress(json.dumps({"sources": sources, "files": known}).encode()))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _stored(result: Path) -> dict[str, Any]:
    return json.loads(result.read_text()) if result.exists() else {"slips": []}


def _store(result: Path, results: dict[str, dict[str, Any]], keys: list[str], seed: int) -> None:
    """Write what is known so far: the slips of this draw, and how many of them were noticed."""
    done = [results[key] for key in keys if key in results]
    noticed = sum(found["noticed"] for found in done)
    found = {"seed": seed, "wanted": len(keys), "run": len(done), "noticed": noticed, "slips": done}
    result.write_text(json.dumps(found, indent=1) + "\n")


def _say(found: dict[str, Any]) -> None:
    for slip in found["slips"]:
        if not slip["noticed"]:
            print(f"survived: {slip['file']}:{slip['line']} {slip['what']}: {slip['before']} -> {slip['after']}")
            print(f"          {slip.get('reason', 'no reason is known')}")
    share = found["noticed"] / max(1, found["run"])
    left = found["wanted"] - found["run"]
    print(f"{found['noticed']} of {found['run']} slips noticed ({share:.0%}); {left} not run yet")


if __name__ == "__main__":
    main()
