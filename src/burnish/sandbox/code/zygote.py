"""The zygote: `python -m burnish.sandbox.code.zygote`, a warm Python that forks a confined process for each program.

It enters its namespaces and its root once. Requests are lines of JSON on standard input, a socket, with descriptors:
{"children": [{"role": ..., "descriptors": 2}, ...], "limits": {...}} starts processes, {"kill": true} ends them. When
the first of them has ended, the others are killed, and {"exits": [...]} answers the request. The zygote never reads a
program or a test: its children do, from the descriptors, so that nothing of one run is left in the memory of the next.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, TypedDict

from burnish.sandbox.code import kernel, namespaces, root
from burnish.sandbox.code.child import CHANNELS, forget_ourselves, preload, start
from burnish.sandbox.code.confine import Plan, confine, landlock_rules
from burnish.sandbox.code.limits import Limits
from burnish.sandbox.guard import fork_guard, scratch_folder

_CONTROL = 0
_MOST_DESCRIPTORS = 16


def main() -> None:
    """Answer requests until standard input ends."""
    home = scratch_folder("burnish-code-")
    why = ""
    try:
        namespaces.enter()
    except (OSError, AttributeError) as error:
        why = str(error)
    fork_guard(scratch=home)
    limits = Limits(**json.loads(sys.argv[1]))
    preload()
    plan, spaces = _prepare(home, limits, why, sys.argv[2] == "required", sys.argv[3] == "programs")
    sys.argv[1:] = []
    ours = forget_ourselves()
    gc.collect()
    gc.freeze()
    control = socket.socket(fileno=_CONTROL)
    report = {"namespaces": spaces, **_probe(plan, limits)}
    os.dup2(1, 2)  # to nowhere: what it wrote while it started was kept for a message
    _send(control, {"isolation": report})
    Zygote(control, plan, limits, ours).serve()


def _prepare(home: str, limits: Limits, why: str, required: bool, programs: bool) -> tuple[Plan, str]:
    """Build the root, and the rules for the children."""
    by_root = os.getuid() == 0 and _maps_nobody()
    user = namespaces.PROGRAM_USER if by_root else None
    spaces = "yes: its own user, process, network, IPC, host-name and mount namespaces"
    own_root = False
    if not why:
        try:
            kernel.unshare(kernel.NEW_MOUNTS)
            root.build(home, _scratch_options(limits, user), root.programs() if programs else [])
            own_root = True
        except OSError as error:
            why = str(error)
    if why:
        spaces = f"no: {why}"
    folder = root.SCRATCH if own_root else "/"
    sys.path[:] = [place for place in sys.path if place.startswith(sys.base_prefix)]
    os.environ.clear()
    os.environ.update({"HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8", "PATH": ""})
    tempfile.tempdir = None  # it remembers a folder that programs do not see
    rules = landlock_rules(own_root, programs)
    return Plan(own_root, rules, user if own_root else None, folder, required, programs), spaces


def _maps_nobody() -> bool:
    """Whether this namespace has the user PROGRAM_USER."""
    try:
        with open("/proc/self/uid_map") as lines:
            return any(line.split()[0] == str(namespaces.PROGRAM_USER) for line in lines)
    except OSError:
        return False


def _scratch_options(limits: Limits, user: int | None) -> str:
    owner = f",uid={user},gid={user}" if user is not None else ""
    return f"size={limits.scratch},nr_inodes={limits.files},mode=0700{owner}"


def _probe(plan: Plan, limits: Limits) -> dict[str, str]:
    """The measures that a child could take, tried in one."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException):
            os.write(writer, json.dumps(confine(plan, limits)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as lines:
        measures = lines.read()
    os.waitpid(pid, 0)
    return dict(json.loads(measures)) if measures else {"limits": "no: a process with these limits died"}


class ChildRequest(TypedDict):
    """A process to start."""

    role: str


class Request(TypedDict, total=False):
    """A line from the box: processes to start with these limits, or an order to kill."""

    children: list[ChildRequest]
    limits: dict[str, Any]
    kill: bool


class Zygote:
    """Starts the children of one request at a time."""

    def __init__(self, control: socket.socket, plan: Plan, limits: Limits, ours: list[ModuleType]) -> None:
        self.control, self.plan, self.ours = control, plan, ours
        self.scratch = _scratch_options(limits, plan.user)
        self.unread = b""
        self.descriptors: list[int] = []
        self.wake_reader, self.wake_writer = os.pipe()
        os.set_blocking(self.wake_reader, False)
        os.set_blocking(self.wake_writer, False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a program of the same user could send it, and end this process
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self.wake_writer, warn_on_full_buffer=False)

    def serve(self) -> None:
        while True:
            request = self._receive()
            if "children" in request:
                self._run(request)

    def _run(self, request: Request) -> None:
        limits = Limits(**request["limits"])
        pids: list[int] = []
        for child in request["children"]:
            own = [self.descriptors.pop(0) for _ in range(CHANNELS[child["role"]])]
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                start(child["role"], own, self.plan, limits)
            pids.append(pid)
            for descriptor in own:
                os.close(descriptor)
        exits = self._wait(pids)
        if self.plan.programs and self.plan.own_root:
            _end_all()
        if self.plan.own_root and root.clean_scratch(self.scratch):
            self._renew_rules()
        _send(self.control, {"exits": exits})

    def _renew_rules(self) -> None:
        """Landlock's rules for the working folder name the one that was there."""
        if self.plan.rules >= 0:
            os.close(self.plan.rules)
        self.plan = replace(self.plan, rules=landlock_rules(True, self.plan.programs))

    def _wait(self, pids: list[int]) -> list[list[float]]:
        """Status, CPU seconds and largest memory in KiB of each, when all have ended."""
        ended: dict[int, list[float]] = {}
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.wake_reader, select.POLLIN)
        while len(ended) < len(pids):
            self._reap(pids, ended)
            if pids[0] in ended:
                _kill(pid for pid in pids if pid not in ended)
            if len(ended) == len(pids):
                break
            for descriptor, _ in poll.poll():
                if descriptor == self.wake_reader:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self.wake_reader, 512)
                else:
                    self._receive()  # a request to kill
                    _kill(pid for pid in pids if pid not in ended)
        return [ended[pid] for pid in pids]

    def _reap(self, pids: list[int], ended: dict[int, list[float]]) -> None:
        for pid in pids:
            if pid not in ended:
                has_ended, status, used = os.wait4(pid, os.WNOHANG)
                if has_ended:
                    ended[pid] = [status, used.ru_utime + used.ru_stime, used.ru_maxrss]

    def _receive(self) -> Request:
        """The next request, with its descriptors; ends this process if the run is gone."""
        while b"\n" not in self.unread:
            piece, descriptors, _, _ = socket.recv_fds(self.control, 1 << 16, _MOST_DESCRIPTORS)
            if not piece:
                os._exit(0)
            self.unread += piece
            self.descriptors += descriptors
        line, _, self.unread = self.unread.partition(b"\n")
        request: Request = json.loads(line)
        return request


def _end_all() -> None:
    """Kill and reap every process but this one, the first of its namespace: what a shell has left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _send(control: socket.socket, what: Mapping[str, object]) -> None:
    control.sendall(json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    main()
