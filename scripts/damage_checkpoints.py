"""Damage the files of a checkpoint in a thousand ways, and see that each is noticed and none is loaded.

    python scripts/damage_checkpoints.py                results in benchmarks/results/damage.json

A small run is made. Then, again and again, one file of its newest checkpoint is cut short, or a bit of it is flipped,
or (now and then) it is removed, emptied, joined by a stranger, or replaced by a directory, a FIFO, a broken link or a
link to itself; `burnish` is asked which checkpoint it would go on from, and must name the one before within SECONDS,
for a FIFO that is opened blocks for ever; and the file is put back. Now and then the run is resumed for real.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ODD = ("directory", "full directory", "fifo", "broken link", "link to itself", "strange fifo", "strange directory")
KINDS = ("bit",) * 9 + ("cut",) * 9 + ("missing", "emptied", "grown", "stranger") + ODD
SECONDS = 60  # after which a question that was asked of a damaged run counts as blocked


def damage(kind: str, file: Path, rng: Any) -> dict[str, Any]:
    """Do it, and say what was done."""
    content = bytearray(file.read_bytes())
    if kind == "bit":
        place, bit = rng.randrange(len(content)), rng.randrange(8)
        content[place] ^= 1 << bit
        file.write_bytes(bytes(content))
        return {"byte": place, "bit": bit}
    if kind == "cut":
        length = rng.randrange(len(content))
        file.write_bytes(bytes(content[:length]))
        return {"from": len(content), "to": length}
    if kind == "missing":
        file.unlink()
    elif kind == "emptied":
        file.write_bytes(b"")
    elif kind == "grown":
        file.write_bytes(bytes(content) + b"\0")
    elif kind == "stranger":
        file.with_name("stranger.bin").write_bytes(b"not yours")
    else:
        replace_by(kind, file)
    return {}


def replace_by(kind: str, file: Path) -> None:
    """Put something that is not a file in the place of one, or beside it."""
    if kind == "strange fifo":
        os.mkfifo(file.with_name("stranger.bin"))
        return
    if kind == "strange directory":
        file.with_name("stranger.bin").mkdir()
        return
    content = file.read_bytes()
    file.unlink()
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "broken link":
        file.symlink_to("nowhere")
    elif kind == "link to itself":
        file.symlink_to(file.name)
    else:
        file.mkdir()
        if kind == "full directory":
            (file / file.name).write_bytes(content)


def put_back(file: Path, content: bytes) -> None:
    """Undo a damage, whatever it was."""
    for path in (file, file.with_name("stranger.bin")):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    file.write_bytes(content)


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raises TimeoutError inside when the time is over, also where the process waits for a file."""

    def over(number: int, frame: object) -> None:
        raise TimeoutError(f"blocked for {seconds} s")

    earlier = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)


def make_run(folder: Path, model: str) -> None:
    """A run of two checkpoints with every kind of file: two trained members, and a memory."""
    import burnish

    small = {"steps": 2, "prompts": 2, "max_new_tokens": 8, "eval_tasks": 0, "save_every": 1, "device": "cpu"}
    burnish.train("ppo_max", model=model, task="sort", n=2, critic_warmup=0, out=str(folder), **small)


def noticed(run: Path) -> tuple[bool, str]:
    """Whether the damaged newest checkpoint is passed over for the one before, and why."""
    from burnish.checkpoint.checkpoint import newest
    from burnish.run.folder import Folder

    path, passed = newest(run, Folder(run).identity())
    return path is not None and path.name == "step-000001" and len(passed) == 1, " ".join(passed)


def copy_tree(run: Path, copy: Path) -> None:
    """A copy of a run folder with its FIFOs and links, which shutil.copytree would follow and wait for."""
    for place, folders, names in os.walk(run):
        to = copy / os.path.relpath(place, run)
        to.mkdir(parents=True, exist_ok=True)
        for name in [*names, *(folder for folder in folders if os.path.islink(os.path.join(place, folder)))]:
            file = Path(place) / name
            if file.is_symlink():
                (to / name).symlink_to(os.readlink(file))
            elif file.is_fifo():
                os.mkfifo(to / name)
            else:
                shutil.copy2(file, to / name)


def resumed_right(run: Path, straight: Path) -> bool:
    """Whether going on from the damaged run ends as the straight one did."""
    import burnish
    from burnish.checkpoint.diff import differences

    copy = run.with_name("resumed")
    copy_tree(run, copy)
    try:
        burnish.resume(copy)
        return not differences(straight, copy)
    finally:
        shutil.rmtree(copy)


def spoil(run: Path, straight: Path, number: int, seed: int, resume_every: int) -> dict[str, Any]:
    """One damage, from doing it to putting it right."""
    from burnish.core import randomness

    rng = randomness.rng(seed, "damage", number)
    last = run / "checkpoints" / "step-000002"
    files = sorted(path for path in last.rglob("*") if path.is_file())
    file, kind = files[number % len(files)], rng.choice(KINDS)
    before = file.read_bytes()
    what = damage(kind, file, rng)
    try:
        with time_limit(SECONDS):
            seen, why = noticed(run)
        with time_limit(5 * SECONDS):
            right = resumed_right(run, straight) if resume_every and number % resume_every == 0 else None
    except Exception as error:  # noqa: BLE001 - a blocked or broken question is a result of this script
        seen, why, right = False, f"{type(error).__name__}: {error}", None
    put_back(file, before)
    found = {"file": str(file.relative_to(last)), "kind": kind, **what, "detected": seen, "why": why}
    return found if right is None else {**found, "resumed_the_same": right}


def go(times: int, seed: int, resume_every: int, model: str = "tiny", say: Any = print) -> dict[str, Any]:
    """Damage a fresh run `times` times; the counts, and each case."""
    with tempfile.TemporaryDirectory(prefix="burnish-damage-") as work:
        run, straight = Path(work) / "run", Path(work) / "straight"
        make_run(run, model)
        shutil.copytree(run, straight)
        assert not noticed(run)[0], "the run is whole before it is damaged"
        cases = []
        for number in range(times):
            cases.append(spoil(run, straight, number, seed, resume_every))
            if (number + 1) % 50 == 0:
                say(f"{sum(case['detected'] for case in cases)} of {len(cases)} detected")
    resumed = [case["resumed_the_same"] for case in cases if "resumed_the_same" in case]
    return {
        "damages": len(cases),
        "detected": sum(case["detected"] for case in cases),
        "resumed": len(resumed),
        "resumed_the_same": sum(resumed),
        "by_kind": dict(Counter(case["kind"] for case in cases)),
        "by_file": dict(Counter(case["file"] for case in cases)),
        "cases": cases,
    }


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--times", type=int, default=1000)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--resume-every", type=int, default=50, help="resume for real after every so many damages")
    words.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "damage.json")
    arguments = words.parse_args()
    import torch

    from burnish.util.files import write_text

    torch.set_num_threads(1)
    from kill_harness import make_model, written

    with tempfile.TemporaryDirectory(prefix="burnish-model-") as model:
        make_model(Path(model) / "model")
        found = go(arguments.times, arguments.seed, arguments.resume_every, str(Path(model) / "model"))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    cases = found.pop("cases")
    write_text(arguments.out, written({"seed": arguments.seed, **found}, "cases", cases))
    print(
        f"{found['detected']} of {found['damages']} detected, {found['resumed_the_same']} of {found['resumed']} "
        "resumed right"
    )
    return 0 if found["detected"] == found["damages"] and found["resumed_the_same"] == found["resumed"] else 1


if __name__ == "__main__":
    sys.exit(main())
