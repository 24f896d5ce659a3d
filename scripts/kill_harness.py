"""Kill runs with SIGKILL, resume them, and compare them with runs that nobody killed, bit for bit.

    python scripts/kill_harness.py                      200 kills, results in benchmarks/results/kills.json
    python scripts/kill_harness.py --kills 6 --only grpo,ppo --out /tmp/kills.json
    python scripts/kill_harness.py --table              the table of docs/reliability.md, from the stored results

Each trial is a run in a process of its own. It is killed once (sometimes twice) at an instant that the harness chooses:
anywhere by the clock, or when the run's own files show that it has come to a named point. Then the same folder is
resumed, as a user would, and metrics, traces, evaluations and every file of every checkpoint (weights, optimisers,
memories) are compared with those of the straight run. An interrupted harness goes on where it stopped. Variants whose
package (ray, vllm) is not installed are left out; BURNISH_VLLM_PYTHON names the Python that has vLLM.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kill_variants import ROOT, VARIANTS, available, make_model, train

MARK = "BURNISH_KILL_TRIAL"  # an environment variable of the processes of a trial
HELD = ("is being written by", "exists already")  # the trainer of a killed driver holds the lock until it has noticed
CACHES = ("ray", "torchinductor_")  # of Ray, and of the compiler of vLLM: every run leaves them, killed or not
POINTS = ("anywhere", "start", "rollout", "scoring", "learning", "logging", "writing", "retiring", "publishing")


# ------------------------------------------------------------------------------------------------------------ processes


def start(place: Path, work: Callable[[], object]) -> int:
    """A process that does the work inside `place`, its output in a file there; only its id comes back."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.chdir(place)
        log = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - it is in the output, and in the exit status
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def over(pid: int) -> int | None:
    """The exit status of a process, None while it runs; -9 where it was killed."""
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def finish(pid: int, limit: float = 300.0) -> int:
    """Wait for a process, and no longer than `limit` seconds."""
    deadline = time.monotonic() + limit
    while (code := over(pid)) is None:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
    return code


# ----------------------------------------------------------------------------------------------------------- one trial


def arrived(point: str, run: Path, occasion: int) -> bool:
    """Whether the run's own files show that it has come to a point for the `occasion`-th time."""
    if point == "writing":
        return any((run / "checkpoints").glob(f".step-{2 * occasion:06d}.partial/*"))
    if point == "retiring":
        return any((run / "checkpoints").glob(".step-*.old"))
    if point == "publishing":
        return (run / ".model.partial").exists()
    if point in ("scoring", "learning"):
        beat = run.parent / "beat"
        return beat.exists() and beat.stat().st_size >= occasion + 1  # the first beat is the evaluation's
    return _logged(run) == occasion  # rollout, logging


def _logged(run: Path) -> int:
    """Steps that the run's store holds."""
    file = run / "store.sqlite"
    if not file.exists():
        return 0
    try:
        db = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
        try:
            return db.execute("SELECT count(DISTINCT step) FROM metrics").fetchone()[0]
        finally:
            db.close()
    except sqlite3.Error:  # it is just being made
        return 0


def kill_at(pid: int, run: Path, point: str, rng: Any, whole: float) -> dict[str, Any] | None:
    """Kill the process at a point. What was hit; None where the run ended before."""
    occasion, began = rng.randint(1, 3 if point == "writing" else 5), time.monotonic()
    spread = {"anywhere": whole, "start": 0.35 * whole, "rollout": 0.03, "learning": 0.05, "writing": 0.02}.get(
        point, 0.003
    )
    delay = rng.uniform(0, spread)
    while over_now(pid) is None:
        if point in ("anywhere", "start") or arrived(point, run, occasion):
            time.sleep(delay)
            break
        time.sleep(0.0003)
    if over_now(pid) is not None:
        return None
    killed, victim = victim_of(pid, rng)
    os.kill(killed, signal.SIGKILL)
    after = round(time.monotonic() - began, 3)
    finish(pid)
    folder = run / "checkpoints"
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return {"point": point, "killed": victim, "after_s": after, "logged": _logged(run), "left": names}


def victim_of(pid: int, rng: Any) -> tuple[int, str]:
    """The process that is killed, and what it is: that of the command, or one of its ranks."""
    from burnish.distributed.ray.watchdog import descendants

    found = [(pid, "the command")]
    for child in descendants(pid):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
            rank = next((word.decode() for word in words if word.startswith(b"RANK=")), "")
            starts = b"burnish\0train" in Path(f"/proc/{child}/cmdline").read_bytes()
            found += [(child, f"rank {rank.removeprefix('RANK=')}")] if rank and starts else []
    return rng.choice(found)


def left_over(place: Path, straight: Path, mark: str) -> list[str]:
    """Files and processes that a killed and resumed run leaves, and that the straight one did not leave."""
    from burnish.distributed.ray.watchdog import having

    def files(run: Path) -> set[str]:
        return {str(path.relative_to(run)) for path in run.rglob("*") if not path.name.endswith(("-wal", "-shm"))}

    more = sorted(files(place / "run") - files(straight) - {"run.lock"})
    more += [f"TMPDIR/{path.name}" for path in sorted((place / "tmp").iterdir()) if not path.name.startswith(CACHES)]
    deadline = time.monotonic() + 10
    while (running := having(mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return more + [f"process {Path(f'/proc/{pid}/cmdline').read_bytes()[:80]!r}" for pid in running]


def over_now(pid: int) -> bool | None:
    """Whether a process has ended, without taking its exit status away from `finish`."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return None if found is None else True


def trial(
    number: int, variant: str, point: str, place: Path, straight: Path, whole: float, model: Path, seed: int
) -> dict[str, Any]:
    """Run, kill (a quarter of the trials twice), resume, compare."""
    from burnish.checkpoint.diff import differences
    from burnish.core import randomness

    rng = randomness.rng(seed, "kill", number)
    shutil.rmtree(place, ignore_errors=True)
    (place / "tmp").mkdir(parents=True)
    mark, kills = f"{MARK}={number}", []
    os.environ |= {"TMPDIR": str(place / "tmp"), MARK: str(number)}
    for again in range(1 + (rng.random() < 0.25)):
        (place / "beat").unlink(missing_ok=True)
        pid = start(place, lambda: train(variant, model))
        hit = kill_at(
            pid, place / "run", rng.choice(("anywhere", "scoring", "writing")) if again else point, rng, whole
        )
        if hit is None:
            finish(pid)
            break
        kills.append(hit)
    code = 0
    if not kills or hit is not None:
        code = resumed(place, lambda: train(variant, model))
    differ = differences(straight, place / "run") if code == 0 else [(place / "output.txt").read_text()[-400:]]
    left = left_over(place, straight, mark) if code == 0 and kills else []
    found = {"trial": number, "variant": variant, "kills": kills, "same": not differ, "differences": differ}
    return {**found, "left_over": left}


def resumed(place: Path, work: Callable[[], object]) -> int:
    """The exit status of a resume, tried again for a minute where a process of the killed run still holds the lock."""
    deadline = time.monotonic() + 60
    while code := finish(start(place, work)):
        if (
            not any(words in (place / "output.txt").read_text()[-3000:] for words in HELD)
            or time.monotonic() > deadline
        ):
            return code
        time.sleep(1)
    return 0


# ------------------------------------------------------------------------------------------------------------ all of it


def straight_run(work: Path, variant: str, model: Path) -> tuple[Path, float]:
    """The run that nobody kills, and its seconds."""
    place = work / f"straight-{variant}"
    place.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    code = finish(start(place, lambda: train(variant, model)))
    if code:
        raise RuntimeError(f"the straight run of {variant} failed:\n{(place / 'output.txt').read_text()[-3000:]}")
    return place / "run", time.monotonic() - began


def trials(arguments: argparse.Namespace, done: list[dict[str, Any]], work: Path) -> Iterator[dict[str, Any]]:
    """One result after the other, until there are enough kills; `done` are those of an earlier call."""
    model = work / "model"
    if finish(start(work, lambda: make_model(model))):
        raise RuntimeError((work / "output.txt").read_text())
    straight: dict[str, tuple[Path, float]] = {}
    killed, known = sum(len(one["kills"]) for one in done), {one["trial"] for one in done}
    variants = arguments.only.split(",") if arguments.only else [name for name in VARIANTS if available(name)]
    for number in itertools.count():
        if killed >= arguments.kills:
            return
        if number in known:
            continue
        variant, point = variants[number % len(variants)], POINTS[(number + number // len(variants)) % len(POINTS)]
        if variant not in straight:
            straight[variant] = straight_run(work, variant, model)
        folder, whole = straight[variant]
        result = trial(number, variant, point, work / f"trial-{number}", folder, whole, model, arguments.seed)
        killed += len(result["kills"])
        if result["same"]:
            shutil.rmtree(work / f"trial-{number}", ignore_errors=True)
        yield result


def table(results: list[dict[str, Any]]) -> str:
    """Markdown: by kind of run, with its engine, ranks, lag and chunk, what was killed, and what became of it."""
    heads = ("run", "engine", "ranks", "lag", "chunk", "kills", "of them, of a rank", "ended the same", "left files")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for variant, options in [*VARIANTS.items(), ("all", {})]:
        own = [one for one in results if variant in (one["variant"], "all")]
        hits = [(one, hit) for one in own for hit in one["kills"]]
        engine = "Ray" if "on" in options else options.get("engine", "local")
        how = (engine, options.get("ranks", 1), options.get("lag", 0), options.get("chunk", "-"))
        ranks = sum(hit.get("killed", "").startswith("rank") for _, hit in hits)
        left = sum(bool(one.get("left_over")) for one in own)
        cells = (
            variant,
            *(how if options else ("", "", "", "")),
            len(hits),
            ranks,
            sum(one["same"] for one, _ in hits),
        )
        lines += [f"| {' | '.join(map(str, (*cells, left)))} |"] if hits else []
    return "\n".join(lines)


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """How many kills there were, where they hit, and after how many of them the run was the same."""
    kills = [(one["same"], one["variant"], hit["point"]) for one in results for hit in one["kills"]]
    return {
        "kills": len(kills),
        "identical": sum(same for same, _, _ in kills),
        "by_point": dict(Counter(point for _, _, point in kills)),
        "killed": dict(Counter(hit.get("killed", "") for one in results for hit in one["kills"])),
        "runs_that_left_files_or_processes": sum(bool(one.get("left_over")) for one in results),
        "by_variant": dict(Counter(variant for _, variant, _ in kills)),
        "killed_before_the_first_checkpoint": sum(
            not any(n.startswith("step") for n in hit["left"]) for one in results for hit in one["kills"]
        ),
        "killed_with_a_checkpoint_half_written": sum(
            any(n.endswith(".partial") for n in hit["left"]) for one in results for hit in one["kills"]
        ),
    }


def written(head: dict[str, Any], name: str, rows: list[dict[str, Any]]) -> str:
    """JSON with the rows one to a line, so that people can read it and git can compare it."""
    return f'{json.dumps(head, indent=1)[:-2]},\n "{name}": [\n' + ",\n".join(map(json.dumps, rows)) + "\n ]\n}\n"


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--kills", type=int, default=200)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--only", default="", help=f"variants, of {', '.join(VARIANTS)}")
    words.add_argument("--table", action="store_true", help="print the stored results as a table, and kill nothing")
    words.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "kills.json")
    arguments = words.parse_args()
    if arguments.table:
        print(table(json.loads(arguments.out.read_text())["trials"]))
        return 0
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import transformers.models.llama.modeling_llama  # noqa: F401 - once, here, and not in every process

    import burnish.run.train  # noqa: F401
    from burnish.util.files import write_text

    stored = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {}
    results = stored.get("trials", []) if stored.get("seed") == arguments.seed else []
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="burnish-kills-") as work:
        for result in trials(arguments, results, Path(work)):
            results = sorted([*results, result], key=lambda one: one["trial"])
            found = summary(results)
            write_text(arguments.out, written({"seed": arguments.seed, "summary": found}, "trials", results))
            hits = ", ".join(f"{hit['point']} at {hit['after_s']:.2f} s" for hit in result["kills"]) or "ended before"
            said = "same" if result["same"] else f"DIFFERENT: {result['differences']}"
            print(f"{found['identical']}/{found['kills']}  {result['variant']:<18} {hits:<40} {said}", flush=True)
    found = summary(results)
    print(f"{found['identical']} of {found['kills']} kills left a run that ends as if it had never been killed.")
    return 0 if found["identical"] == found["kills"] else 1


if __name__ == "__main__":
    sys.exit(main())
