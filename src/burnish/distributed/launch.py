"""Several processes for one run: `burnish train ... --ranks 4`, or any launcher that sets torchrun's variables.

Each process executes the same command (models/ranks.py says what they divide). Those that `launch` starts meet through
a file in a private folder and talk over the loopback interface; on a GPU machine each has a GPU of its own. Rank 0 has
the terminal, the others write what they say into files that are shown only when a rank fails.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from burnish.models.ranks import Ranks, here
from burnish.rewards.code.kernel import die_with_parent

PATIENCE = timedelta(minutes=60)  # how long a rank waits for another one: a reward function may take a while
MEETING = "BURNISH_RANKS_MEET_AT"  # a file for ranks that one machine started
END_SECONDS = 10.0  # how long ranks have to end by themselves, once one has failed
LOCAL = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}  # ranks of one machine open no port to others


def placed() -> Ranks:
    """The place of this process among the ranks of a run, from the environment variables of its launcher."""
    try:
        rank, world = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
    except ValueError:
        raise ValueError(
            f"RANK is {os.environ.get('RANK')!r} and WORLD_SIZE {os.environ.get('WORLD_SIZE')!r}, which are not "
            "numbers; start the ranks with --ranks or torchrun"
        ) from None
    if not 0 <= rank < max(1, world):
        raise ValueError(f"RANK is {rank}, but WORLD_SIZE is {world}: ranks are counted from 0")
    return Ranks(rank, world)


def join(device: str = "auto") -> Ranks:
    """Join the other ranks of this run, if its launcher started any; the ranks of this process."""
    own = placed()
    if own.world == 1 or dist.is_initialized():
        return here()
    local = int(os.environ.get("LOCAL_RANK", own.rank))
    on_gpu = device != "cpu" and torch.cuda.is_available()
    if on_gpu:
        if local >= torch.cuda.device_count():
            raise ValueError(
                f"rank {own.rank} has no GPU: this machine has {torch.cuda.device_count()}; use fewer --ranks, or "
                "--device cpu"
            )
        torch.cuda.set_device(local)
    else:
        beside = int(os.environ.get("LOCAL_WORLD_SIZE", own.world))
        torch.set_num_threads(max(1, torch.get_num_threads() // beside))
    meeting = os.environ.get(MEETING)
    if meeting and sys.platform == "linux":
        die_with_parent(signal.SIGTERM)  # a launcher that is killed stops the run as Ctrl-C does: it saves first
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
        init_method=f"file://{meeting}" if meeting else "env://",
        rank=own.rank,
        world_size=own.world,
        timeout=PATIENCE,
    )
    return here()


def wanted(ranks: int) -> int:
    """The processes that --ranks asks for; 1 where a launcher has started them already."""
    if "WORLD_SIZE" in os.environ:
        return 1
    if ranks:
        return ranks
    if not torch.cuda.is_available():
        raise ValueError("--ranks 0 takes one process for each GPU, but torch sees no GPU; say how many: --ranks 2")
    return torch.cuda.device_count()


def launch(words: list[str], world: int) -> int:
    """Run `burnish train` with these words in `world` processes; the exit code of rank 0, or of the first that failed.

    A signal reaches the ranks themselves; this process waits for them, and ends the others when one has failed.
    """
    with tempfile.TemporaryDirectory(prefix="burnish-ranks-") as place, _signals_pass_by() as received:
        folder = Path(place)
        ranks = [_start(words, rank, world, folder) for rank in range(world)]
        try:
            return _wait(ranks, folder, received)
        finally:
            for process in ranks:
                process.kill()


def _start(words: list[str], rank: int, world: int, folder: Path) -> subprocess.Popen[bytes]:
    """Start one rank; all but the first write into a file."""
    named = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    own = {name: str(value) for name, value in named.items()} | LOCAL | {MEETING: str(folder / "meeting")}
    command = [sys.executable, "-m", "burnish", "train", *words]
    if not rank:
        return subprocess.Popen(command, env={**os.environ, **own})
    with open(_log(folder, rank), "wb") as log:
        return subprocess.Popen(
            command, env={**os.environ, **own}, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )


def _wait(ranks: list[subprocess.Popen[bytes]], folder: Path, received: list[int]) -> int:
    """Wait until all ranks have ended, or one has failed: then the others get END_SECONDS."""
    passed_on = 0
    while not any(process.poll() for process in ranks):
        if all(process.poll() == 0 for process in ranks):
            return 0
        for number in received[passed_on:]:  # a terminal sends Ctrl-C to all; SIGTERM comes to this process alone
            passed_on += 1
            if number == signal.SIGTERM:
                ranks[0].send_signal(number)
        time.sleep(0.05)
    failed = next(rank for rank, process in enumerate(ranks) if process.poll())
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline and any(process.poll() is None for process in ranks):
        time.sleep(0.05)
    code = ranks[0].poll() or ranks[failed].returncode
    if ranks[0].poll() is None or (failed and ranks[0].poll() not in (2, 130)):
        said = _log(folder, failed).read_text(errors="replace").strip() if failed else ""
        print(f"rank {failed} failed (exit code {ranks[failed].returncode}):\n{said[-4000:]}", file=sys.stderr)
    return code if code > 0 else 128 - code


def _log(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.log"


@contextmanager
def _signals_pass_by() -> Iterator[list[int]]:
    """Inside, SIGINT and SIGTERM are noted instead of ending this process."""
    received: list[int] = []
    earlier = {
        number: signal.signal(number, lambda n, _: received.append(n)) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield received
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
