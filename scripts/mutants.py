"""Plant random slips in burnish, one at a time, and count how many of them the fast tests notice.

    python scripts/mutants.py            100 slips with seed 1; goes on where it stopped
    python scripts/mutants.py --again    run the slips again that were not noticed, after tests were added; a slip in
    code
                                         that has moved since is looked for by its function and text

Each slip is planted in a copy of the tree. The tests that call the function with the slip run there, those that call
the fewest functions first, until one fails; which tests those are is recorded once (scripts/called.py) and again for
test files that changed. A slip that no test notices within the time limit survives. The result is
benchmarks/results/mutants.json.

A test that fails in the copy without a slip does not count. Not planted: files that need a GPU, Ray or vLLM.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import itertools
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(Path(__file__).parent))
from forked import run_pytest  # noqa: E402
from slips import Slip, planted, slips  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "mutants.json"
CACHE = ROOT / "build" / "mutants"
ELSEWHERE = ("/placed/", "/ray/", "vllm")  # what runs only where Ray or vLLM is installed; so do its tests
TEXT_ONLY = (
    "tests/laws/test_repo.py",
    "tests/laws/test_security.py",
)  # they read the source, and would notice any change
DEFAULTS = ("tests/config/test_defaults.py",)  # for slips in a default, which no call need notice
FAILED = ".failed"
MOST_FILES = 10  # test files that run where what they call was not recorded
UNKNOWN = 120.0  # seconds of a test file that was not recorded, for the time limit
_sound: set[str] = set()  # tests that were seen to pass in the copy
Called = dict[str, dict[str, Any]]  # test id -> seconds, calls


def main() -> None:
    """Record what is called where it is not known, then plant slips until all are done or the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--slips", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="of recorded test time for one slip")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so many, to go on another time")
    parser.add_argument("--result", type=Path, default=RESULT, help="the JSON file that is written and gone on with")
    parser.add_argument("--again", action="store_true", help="run the survivors again")
    parser.add_argument("--record-only", action="store_true", help="record which tests call what, and stop")
    parser.add_argument("--recorded-only", action="store_true", help="use what is recorded, record nothing")
    parser.add_argument("tests", nargs="*", help="test files to record; by default all")
    told = parser.parse_args()
    end = time.monotonic() + 60 * told.minutes
    files = told.tests or [str(p.relative_to(ROOT)) for p in sorted((ROOT / "tests").rglob("test_*.py"))]
    called = recorded([file for file in files if file not in TEXT_ONLY], told.recorded_only, end)
    if told.record_only:
        return
    if told.again:
        run_again(told.result, called, told.seconds, end)
        return
    drawn = chosen(told.slips, told.seed)
    keys = [slip.key for slip in drawn]
    results = {found["key"]: found for found in _stored(told.result)["slips"]}
    with tempfile.TemporaryDirectory(prefix="burnish-mutants-") as folder:
        copy = _copy(Path(folder))
        for slip in drawn:
            old = results.get(slip.key)
            if time.monotonic() > end or old:
                continue
            results[slip.key] = run(slip, copy, called, told.seconds)
            _store(told.result, results, keys, told.seed)
    _say(_store(told.result, results, keys, told.seed))


def run_again(result: Path, called: Called, seconds: float, end: float) -> None:
    """Run the survivors of a stored result again, wherever their code stands now. Each keeps its place
    among the slips.
    """
    stored = _stored(result)
    every = possible()
    with tempfile.TemporaryDirectory(prefix="burnish-mutants-") as folder:
        copy = _copy(Path(folder))
        for place, old in enumerate(stored["slips"]):
            here = [slip for slip in every if not old["noticed"] and alike(slip, old)]
            if len(here) == 1 and time.monotonic() < end:
                found = old | run(here[0], copy, called, seconds)
                if found["noticed"]:
                    found.pop("reason", None)
                stored["slips"][place] = found | {"drawn_as": old.get("drawn_as", old["key"])}
                noticed = sum(slip["noticed"] for slip in stored["slips"])
                result.write_text(json.dumps(stored | {"noticed": noticed}, indent=1) + "\n")
    _say(_stored(result))


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


def recorded(files: list[str], as_it_is: bool, end: float) -> Called:
    """What each test calls; a test file is recorded again when it has changed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    called: Called = {}
    for file in files:
        kept = CACHE / f"{file.replace('/', '+')}.json"
        mark = hashlib.sha256((ROOT / file).read_bytes()).hexdigest()
        known = json.loads(kept.read_text()) if kept.exists() else {"mark": None, "tests": {}}
        if known["mark"] != mark and not as_it_is and time.monotonic() < end:
            known = {"mark": mark, "tests": _record(file)}
            kept.write_text(json.dumps(known))
        called |= {test: found for test, found in known["tests"].items() if "outcome" not in found}
    return called


def _record(file: str) -> Called:
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        start = time.monotonic()
        code = run_pytest(ROOT, [file, "-p", "called"], 1800, extra={"CALLED": out.name})
        text = Path(out.name).read_text()
        print(f"recorded {file} in {time.monotonic() - start:.0f} s (exit {code})", flush=True)
        return json.loads(text) if text else {}


def run(slip: Slip, copy: Path, called: Called, seconds: float) -> dict[str, Any]:
    """Plant the slip, run the tests that could notice it, take it away again."""
    tests = tests_for(slip, called, seconds)
    target = copy / "src" / slip.file
    source = (ROOT / "src" / slip.file).read_text()
    start = time.monotonic()
    (copy / FAILED).unlink(missing_ok=True)
    target.write_text(planted(source, slip.number))
    code = 0
    try:
        while tests and code == 0:
            expected = sum(called[test]["seconds"] if test in called else UNKNOWN for test in tests)
            code = run_pytest(copy, [*tests, "-x", "--timeout", "60"], 90 + 5 * expected, failed=copy / FAILED)
            if code == 1 and (wrong := _fails_anyway(copy, target, source)):
                called.pop(wrong, None)
                tests, code = [test for test in tests if test != wrong], 0
                target.write_text(planted(source, slip.number))
                continue
            break
    finally:
        target.write_text(source)
    how = {0: "survived", 5: "survived"}.get(code, "time" if code == -9 else "failed")
    print(
        f"{how:9} {len(tests):4} tests {time.monotonic() - start:4.0f} s  {slip.file}:{slip.line} {slip.what}: "
        f"{slip.before[:60]!r} -> {slip.after[:60]!r}",
        flush=True,
    )
    failed = (copy / FAILED).read_text() if how == "failed" and (copy / FAILED).exists() else ""
    found = dataclasses.asdict(slip) | {"before": slip.before[:160], "after": slip.after[:160], "key": slip.key}
    return found | {"noticed": how != "survived", "how": how, "tests": len(tests), "by": failed}


def _fails_anyway(copy: Path, target: Path, source: str) -> str | None:
    """The test that failed last, if it fails in the copy without the slip, too."""
    failed = (copy / FAILED).read_text() if (copy / FAILED).exists() else ""
    if not failed or failed in _sound:
        return None
    target.write_text(source)
    if run_pytest(copy, [failed, "--timeout", "60"], 600) == 0:
        _sound.add(failed)
        return None
    return failed


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
    near.sort(key=lambda t: (called[t]["seconds"] > 5, len(called[t]["calls"]), called[t]["seconds"]))
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


def _copy(folder: Path) -> Path:
    """The tracked and untracked files of the tree, elsewhere, where they can be changed."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for name in listed.stdout.split("\n"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    return folder


def _stored(result: Path) -> dict[str, Any]:
    return json.loads(result.read_text()) if result.exists() else {"slips": []}


def _store(result: Path, results: dict[str, dict[str, Any]], keys: list[str], seed: int) -> dict[str, Any]:
    """Write what is known so far: the slips of this draw, and how many of them were noticed."""
    done = [results[key] for key in keys if key in results]
    noticed = sum(found["noticed"] for found in done)
    found = {"seed": seed, "wanted": len(keys), "run": len(done), "noticed": noticed, "slips": done}
    result.write_text(json.dumps(found, indent=1) + "\n")
    return found


def _say(found: dict[str, Any]) -> None:
    for slip in found["slips"]:
        if not slip["noticed"]:
            print(f"survived: {slip['file']}:{slip['line']} {slip['what']}: {slip['before']} -> {slip['after']}")
            print(f"          {slip.get('reason', 'no reason is known')}")
    share = found["noticed"] / max(1, found["run"])
    print(
        f"{found['noticed']} of {found['run']} slips noticed ({share:.0%}); {found['wanted'] - found['run']} not run "
        "yet"
    )


if __name__ == "__main__":
    main()
