"""A zygote seen from the run: start it, have it run processes, collect what they report, every wait with a limit."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypedDict

import burnish
from burnish.sandbox.code.confine import missing
from burnish.sandbox.code.limits import Limits
from burnish.sandbox.code.together import EVERY, Watch
from burnish.util.processes import Words, kill_group, obituary

START = 60.0  # seconds for a zygote to start
KILL = 5.0  # seconds for killed processes to be gone
_PIECE = 1 << 16
_LINKS = ("requests", "replies")  # pipes between a `tests` process and a `served` one


Role = Literal["program", "calls", "served", "tests", "command"]


class NotIsolated(ValueError):
    """This machine cannot isolate model-written code."""


@dataclass(frozen=True)
class Child:
    """A process to start: its role (child.py), its data, and its standard input if it is a script."""

    role: Role
    data: Mapping[str, object]
    entered: str = ""


@dataclass
class Ran:
    """What became of one process.

    report   the lines of JSON that it reported, as bytes, not to be trusted
    printed  its standard output
    status   as of os.wait; -1 if it is unknown
    """

    report: bytes = b""
    printed: bytes = b""
    status: int = -1
    cpu: float = 0.0
    memory: int = 0


@dataclass
class Run:
    """What became of the processes of one request.

    late   they were killed at the time limit
    much   they were killed because they wrote too much
    large  they were killed because they used too much memory together
    """

    children: list[Ran] = field(default_factory=list)
    seconds: float = 0.0
    late: bool = False
    much: bool = False
    large: bool = False


class Answer(TypedDict, total=False):
    """A line of the zygote. exits: status, CPU seconds and memory of each process."""

    isolation: dict[str, str]
    exits: list[list[float]]


class Box:
    """A zygote, which runs one request at a time. Not thread-safe.

    isolated: refuse to run anything without isolation; else run anyway
    programs: whether processes may start programs of the system (the role "command")
    """

    def __init__(self, limits: Limits, *, isolated: bool = True, programs: bool = False) -> None:
        self.limits = limits
        self._words = Words()
        ours, child_end = socket.socketpair()
        required = "required" if isolated else "optional"
        self._popen = subprocess.Popen(
            [
                *(sys.executable, "-S", "-B", "-P", "-m", "burnish.sandbox.code.zygote"),
                *(json.dumps(asdict(limits)), required, "programs" if programs else "none"),
            ],
            stdin=child_end.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=self._words.file,
            start_new_session=True,  # so that Ctrl-C does not reach it
            env={
                **{name: os.environ[name] for name in ("TMPDIR", "LD_LIBRARY_PATH") if name in os.environ},
                "PYTHONPATH": str(Path(burnish.__file__).parents[1]),
                "PYTHONHASHSEED": "0",
                "LANG": "C.UTF-8",
            },
        )
        child_end.close()
        ours.setblocking(False)
        self._control, self._unread = ours, b""
        self.end = weakref.finalize(self, _end, self._popen, ours)
        self.isolation: dict[str, str] = {}
        self._isolated, self._programs = isolated, programs

    def ready(self) -> None:
        """Wait for the zygote; raise NotIsolated if it cannot isolate programs."""
        if self.isolation:
            return
        try:
            self.isolation = self._answer(time.monotonic() + START)["isolation"]
        except (TimeoutError, EOFError) as error:
            late = isinstance(error, TimeoutError)
            ended = "" if late else f"{obituary(self._popen, self._words)} while it started"
            self.end()
            raise ValueError(
                f"the process that runs code {ended or f'did not start within {START:g} s'}; check for a limit on "
                "memory or processes"
            ) from None
        if self.lacking and self._isolated:
            self.end()
            raise NotIsolated(
                f"this machine cannot isolate model-written code, it lacks: {self.lacking}; use Linux 5.13 or later "
                "with user namespaces or Landlock, or run the code unprotected by the task's option unsafe_code=yes"
            )

    @property
    def lacking(self) -> str:
        """The measures that are not in force; empty if programs are isolated."""
        return missing({name: measure for name, measure in self.isolation.items() if name != "namespaces"})

    def run(self, children: Sequence[Child], limits: Limits) -> Run:
        """Start processes together, and wait until the first has ended; then the others are killed."""
        self.ready()
        started = time.monotonic()
        run = Run([Ran() for _ in children])
        with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
            links = {name: os.pipe() for name in _LINKS} if len(children) > 1 else {}
            ends: list[int] = []
            for number, child in enumerate(children):
                for name, ours, child_end in _descriptors(child, links, stack):
                    ends.append(child_end)
                    if ours is not None:
                        selector.register(ours, selectors.EVENT_READ, (number, name))
            self._request({"children": [{"role": child.role} for child in children], "limits": asdict(limits)}, ends)
            selector.register(self._control, selectors.EVENT_READ, None)
            self._collect(run, selector, limits, started + limits.seconds)
        run.seconds = time.monotonic() - started
        return run

    def _request(self, request: Mapping[str, object], descriptors: list[int]) -> None:
        """Send a request with descriptors, and close them here."""
        self._control.setblocking(True)
        try:
            socket.send_fds(self._control, [json.dumps(request).encode() + b"\n"], descriptors)
        finally:
            self._control.setblocking(False)
            for descriptor in descriptors:
                os.close(descriptor)

    def _collect(self, run: Run, selector: selectors.BaseSelector, limits: Limits, deadline: float) -> None:
        """Read until the processes have ended and all that they wrote is read."""
        exits: list[list[float]] | None = None
        killed = False
        watch = Watch(self._popen.pid, limits.together) if self._programs else None
        while exits is None or len(selector.get_map()) > 1:
            wait = deadline - time.monotonic()
            if wait <= 0 or (run.much or run.large) and not killed:
                if killed or exits is not None:
                    if exits is None:
                        self.end()  # the zygote does not answer; the next run needs another
                        return
                    break
                run.late = not run.much and not run.large
                killed, deadline = True, time.monotonic() + KILL
                with contextlib.suppress(OSError):
                    self._control.sendall(b'{"kill": true}\n')
                continue
            events = selector.select(min(wait, EVERY) if watch else wait)
            run.large = run.large or (watch is not None and exits is None and watch.over())
            for key, _ in events:
                if key.data is not None:
                    _read(key, run, selector, limits.output)
                elif exits is None:
                    try:
                        exits = self._answer(time.monotonic() + KILL)["exits"]
                    except (EOFError, TimeoutError):
                        self.end()
                        return
                    deadline = min(deadline, time.monotonic() + KILL)
        for ran, (status, cpu, memory) in zip(run.children, exits or [], strict=True):
            ran.status, ran.cpu, ran.memory = int(status), cpu, int(memory)

    @property
    def ended(self) -> bool:
        return not self.end.alive

    def _answer(self, deadline: float) -> Answer:
        """The next line of the zygote."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                wait = deadline - time.monotonic()
                if wait <= 0 or not selector.select(wait):
                    raise TimeoutError
                try:
                    piece = self._control.recv(_PIECE)
                except BlockingIOError:
                    continue
                except OSError:
                    raise EOFError from None
                if not piece:
                    raise EOFError
                self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        answer: Answer = json.loads(line)
        return answer


def _read(key: selectors.SelectorKey, run: Run, selector: selectors.BaseSelector, most: int) -> None:
    number, name = key.data
    piece = os.read(key.fd, _PIECE)
    if not piece:
        selector.unregister(key.fd)
        return
    ran = run.children[number]
    written = getattr(ran, name)
    if len(written) + len(piece) > most:
        run.much = True
    setattr(ran, name, (written + piece)[:most])


def _descriptors(
    child: Child, links: dict[str, tuple[int, int]], stack: contextlib.ExitStack
) -> Iterator[tuple[str, int | None, int]]:
    """(name, our end, the child's end) of a child's descriptors, in the order of its role."""
    yield "data", None, _file(json.dumps(child.data).encode())
    yield "report", *_pipe(stack)
    if child.role == "program":
        yield "entered", None, _file(child.entered.encode("utf-8", "replace"))
        yield "printed", *_pipe(stack)
    elif child.role == "command":
        yield "printed", *_pipe(stack)
    elif child.role == "served":
        yield "requests", None, links["requests"][0]
        yield "replies", None, links["replies"][1]
    elif child.role == "tests":
        yield "replies", None, links["replies"][0]
        yield "requests", None, links["requests"][1]


def _pipe(stack: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe whose reading end is closed at the end."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    stack.callback(os.close, reader)
    return reader, writer


def _file(content: bytes) -> int:
    """A descriptor of a nameless file with this content."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("burnish", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _end(popen: subprocess.Popen[bytes], control: socket.socket) -> None:
    """Close the connection, at which the guard kills all processes; if it does not end, kill its process group."""
    control.close()
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        popen.terminate()
        popen.wait(KILL)
    if popen.returncode is None:
        kill_group(popen)
