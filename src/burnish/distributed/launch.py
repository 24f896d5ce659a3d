"""Several processes for one run: `burnish train ... --ranks 4`, or any launcher that sets torchrun's variables.

Each process executes the same command (models/ranks.py says what they divide). Those that `launch` starts meet through
a file in a private folder and talk over the loopback interface; on a GPU machine each has a GPU of its own. Rank 0 has
the terminal, the others write what they say into files that are shown only when a rank fails. Who is lost is noticed by
the launcher (distributed/launched.py), or, where another one started the ranks, by heartbeats (distributed/peers.py).
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from burnish.distributed.launched import Launched, log_of, units_of
from burnish.distributed.meeting import ADDRESS, SAME, TOKEN, Address, meet, own_interface
from burnish.distributed.peers import Peers
from burnish.models.ranks import MEETING, RUN, Ranks, here, with_others
from burnish.sandbox.code.kernel import die_with_parent
from burnish.util.failures import LOST_RANK
from burnish.util.work_units import UNITS

PATIENCE = 3600.0  # seconds that a rank waits for another one, at least: a reward function may take a while
LATER = 60.0  # seconds after which the wait itself fails, if no launcher or heartbeat has named a rank by then
LAUNCHER = "BURNISH_RANKS_LAUNCHER"  # the process that started the ranks of one machine
MET = "meeting"  # the file at which the ranks of one machine meet, in their launcher's folder
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


def join(device: str = "auto", idle: float | None = None) -> Ranks:
    """Join the other ranks of this run, if its launcher started any; the ranks of this process.

    idle: seconds that a rank may do nothing while others wait for it; by default as long as what it does may take
    """
    own = placed()
    UNITS.allow(idle)
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
        launcher = int(os.environ.get(LAUNCHER, os.getppid()))
        atexit.register(_remove_orphaned, Path(meeting).parent, launcher)
        die_with_parent(signal.SIGTERM)  # a launcher that is killed stops the run as Ctrl-C does: it saves first
        if os.getppid() != launcher:  # it was killed while this process was starting
            sys.exit(LOST_RANK)
    address = os.environ.get(ADDRESS)
    store = meet(own, Address.read(address), os.environ.get(TOKEN, "")) if address else None
    how = {"store": store} if store is not None else {"init_method": f"file://{meeting}" if meeting else "env://"}
    with with_others():
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            rank=own.rank,
            world_size=own.world,
            timeout=timedelta(seconds=max(PATIENCE, idle or 0.0) + LATER),
            **how,
        )
        ranks = here()
    if meeting:
        UNITS.publish(units_of(Path(meeting).parent, local))
    if address or not meeting:
        Peers(ranks).begin()
    return ranks


def _remove_orphaned(folder: Path, launcher: int) -> None:
    """Remove the launcher's folder if the launcher was killed."""
    if os.getppid() != launcher:
        shutil.rmtree(folder, ignore_errors=True)


def check_elastic(elastic: bool) -> None:
    """Raise where ranks were not started by the launcher of one machine, who alone can start those that are left."""
    if elastic and placed().world > 1 and (ADDRESS in os.environ or MEETING not in os.environ):
        raise ValueError(
            "--elastic works with --ranks on one machine, whose launcher starts the ranks that are left again; with "
            "torchrun or several machines leave it out, and resume with --resume RUN and the ranks that are left"
        )


def wanted(ranks: int) -> int:
    """The processes that --ranks asks for; 1 where a launcher has started them already."""
    if "WORLD_SIZE" in os.environ:
        return 1
    if ranks:
        return ranks
    if not torch.cuda.is_available():
        raise ValueError("--ranks 0 takes one process for each GPU, but torch sees no GPU; say how many: --ranks 2")
    return torch.cuda.device_count()


@dataclass(frozen=True)
class Node:
    """One of the machines of a run: its number, how many there are, and where their ranks meet."""

    number: int
    count: int
    address: Address

    def variables(self, words: Sequence[str]) -> dict[str, str]:
        """What the ranks of this machine need to know. words: of the command, the same on all machines."""
        interface = own_interface(self.address)
        named = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface} if interface else {}
        ours = {name: value for name, value in named.items() if name not in os.environ}
        host, port = self.address.host, str(self.address.port)
        same = hashlib.sha256("\0".join(words).encode()).hexdigest()
        return {**ours, ADDRESS: str(self.address), "MASTER_ADDR": host, "MASTER_PORT": port, SAME: same}


def launch(words: list[str], world: int, node: Node | None = None, elastic: bool = False) -> int:
    """Run `burnish train` with these words in `world` processes; the exit code of rank 0, or of the rank that was lost.

    node: this machine, where it is one of several, each of which runs `world` processes
    elastic: resume with the ranks that are left while one is lost, on the GPUs that are left
    """
    gpus: list[str] = []
    while True:
        code, lost, run = _launch_once(words, world, node, elastic and world > 1, gpus)
        if lost is None:
            return code
        gpus, world = _without(gpus, lost), world - 1
        words = ["--resume", run, "--ranks", str(world), *(word for word in words if word == "--quiet")]


def _launch_once(
    words: list[str], world: int, node: Node | None, elastic: bool, gpus: list[str]
) -> tuple[int, int | None, str]:
    """The exit code, the rank that was lost if the run is to go on without it, and where the run is.

    A signal reaches the ranks themselves; this process waits for them, ends the others when one is lost, and removes
    what they leave: processes, and temporary files, which all are in its own folder.
    """
    temporary = tempfile.TemporaryDirectory(prefix="burnish-ranks-", ignore_cleanup_errors=True)
    with temporary as place, _signals_pass_by() as received:
        folder = Path(place)
        first = node.number * world if node is not None else 0
        begun = folder / RUN  # the run has a folder: before that there is nothing to resume
        started = [_start(words, rank, world, folder, node, gpus) for rank in range(world)]
        launched = Launched(
            started,
            folder,
            first,
            node is not None and node.count > 1,
            lambda: elastic and not received and begun.is_file(),
        )
        try:
            return launched.wait(received), launched.lost, begun.read_text() if begun.is_file() else ""
        finally:
            launched.close()


def _without(gpus: list[str], lost: int) -> list[str]:
    """The GPUs that this process sees, by their names in CUDA_VISIBLE_DEVICES, without that of a lost rank."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    seen = gpus or (named.split(",") if named else [str(index) for index in range(torch.cuda.device_count())])
    return [gpu for index, gpu in enumerate(seen) if index != lost]


def _start(
    words: list[str], rank: int, world: int, folder: Path, node: Node | None, gpus: list[str]
) -> subprocess.Popen[bytes]:
    """Start one rank of this machine; all but its first write into a file. gpus: those that it may take, if not all."""
    before, everywhere = (node.number * world, node.count * world) if node is not None else (0, world)
    named = {"RANK": before + rank, "LOCAL_RANK": rank, "WORLD_SIZE": everywhere, "LOCAL_WORLD_SIZE": world}
    temporary = folder / f"tmp{rank}"
    temporary.mkdir()
    own = {name: str(value) for name, value in named.items()} | (LOCAL if node is None else node.variables(words))
    own |= {MEETING: str(folder / MET), LAUNCHER: str(os.getpid()), "TMPDIR": str(temporary)}
    own |= {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
    command = [sys.executable, "-m", "burnish", "train", *words]
    if not rank:
        return subprocess.Popen(command, env={**os.environ, **own})
    with open(log_of(folder, rank), "wb") as log:
        return subprocess.Popen(
            command, env={**os.environ, **own}, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )


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
