"""Threads in place of processes, and a pipe in place of a pair of sockets, for programs that may start neither.

A right answer with multiprocessing, concurrent.futures or asyncio is a right answer, and the isolation stays as it is:
no system call is allowed for it. What the threads of a program share, processes would not; that is the one difference.
"""

from __future__ import annotations

import _sitebuiltins
import asyncio.selector_events
import builtins
import concurrent.futures.process
import importlib
import multiprocessing
import multiprocessing.context
import multiprocessing.dummy as dummy
import multiprocessing.dummy.connection
import multiprocessing.pool
import os
import queue
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

MOST_WORKERS = 8  # of a pool: with threads of its own it stays within Limits.threads


def install() -> None:
    """Give this process's modules the substitutes; the programs are children of it."""
    threads = Threads()
    for name in multiprocessing.__all__:
        if hasattr(threads, name):
            setattr(multiprocessing, name, getattr(threads, name))
    for module in (multiprocessing, multiprocessing.context, multiprocessing.pool):
        setattr(module, "get_context", threads.get_context)  # noqa: B010 - names of modules, which mypy takes as fixed
    setattr(multiprocessing.context, "_default_context", threads)  # noqa: B010
    plain = concurrent.futures.ThreadPoolExecutor.__init__

    def few(self: Any, max_workers: int | None = None, *given: Any, **named: Any) -> None:
        plain(self, min(max_workers or MOST_WORKERS, MOST_WORKERS), *given, **named)

    setattr(concurrent.futures.ThreadPoolExecutor, "__init__", few)  # noqa: B010
    setattr(concurrent.futures, "ProcessPoolExecutor", Executor)  # noqa: B010
    setattr(concurrent.futures.process, "ProcessPoolExecutor", Executor)  # noqa: B010
    setattr(asyncio.selector_events.BaseSelectorEventLoop, "_make_self_pipe", _make_self_pipe)  # noqa: B010
    for name in ("exit", "quit"):  # site adds them, which is not imported here
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D (i.e. EOF)"))


class Process(dummy.DummyProcess):
    """A thread with the methods of a process. It cannot be ended from outside."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Any = (),
        kwargs: Mapping[str, object] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        super().__init__(group, target, name, args, dict(kwargs or {}))
        self._code = 0
        self._run = self.run
        setattr(self, "run", self._noting)  # noqa: B010 - a subclass may have a run of its own
        if daemon is not None:
            self.daemon = daemon

    def _noting(self) -> None:
        try:
            self._run()
        except SystemExit as stop:
            self._code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        except BaseException:  # noqa: BLE001 - as a process: it ends, and its parent goes on
            traceback.print_exc()
            self._code = 1

    @property
    def exitcode(self) -> int | None:  # type: ignore[override]
        return self._code if vars(self)["_start_called"] and not self.is_alive() else None

    @property
    def pid(self) -> int | None:
        return self.native_id

    def terminate(self) -> None:
        """It goes on."""

    kill = close = terminate


class Queue(queue.Queue[object]):
    """A queue between threads with the methods of one between processes."""

    def close(self) -> None:
        """Nothing is to be flushed."""

    join_thread = cancel_join_thread = close


class Manager:
    """What a manager gives: the objects themselves."""

    dict, list, Namespace = dict, list, dummy.Namespace
    Lock, RLock, Condition, Event, Barrier = (
        threading.Lock,
        threading.RLock,
        threading.Condition,
        threading.Event,
        threading.Barrier,
    )
    Semaphore, BoundedSemaphore = threading.Semaphore, threading.BoundedSemaphore
    Queue = JoinableQueue = Queue
    Value, Array = staticmethod(dummy.Value), staticmethod(dummy.Array)

    def __enter__(self) -> Manager:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def start(self, *_: object) -> None:
        """There is no server to start."""

    def shutdown(self) -> None:
        """Nor one to end."""


class Threads(multiprocessing.context.BaseContext):
    """The context of multiprocessing in which processes are threads, and what they share is the objects themselves."""

    _name = "fork"

    def get_context(self, method: str | None = None) -> Any:
        """Itself, for every start method."""
        if method not in (None, *self.get_all_start_methods()):
            raise ValueError(f"cannot find context for {method!r}")
        return self

    def get_all_start_methods(self) -> list[str]:
        return ["fork", "spawn", "forkserver"]

    def get_start_method(self, allow_none: bool = False) -> str:
        return self._name

    def set_start_method(self, method: str | None, force: bool = False) -> None:
        """All are threads."""

    def cpu_count(self) -> int:
        return min(os.cpu_count() or 1, MOST_WORKERS)

    def Pool(  # noqa: N802 - as multiprocessing calls it
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Any = (),
        maxtasksperchild: int | None = None,
    ) -> Any:
        several = min(processes if processes is not None else MOST_WORKERS, MOST_WORKERS)
        return multiprocessing.pool.ThreadPool(several, initializer, initargs)

    def RawValue(self, typecode_or_type: object, *args: object) -> Any:  # noqa: N802
        return _ctype(typecode_or_type)(*args)

    def RawArray(self, typecode_or_type: Any, size_or_initializer: Any) -> Any:  # noqa: N802
        kind = _ctype(typecode_or_type)
        if isinstance(size_or_initializer, int):
            return (kind * size_or_initializer)()
        items = list(size_or_initializer)
        return (kind * len(items))(*items)

    def Value(self, typecode_or_type: object, *args: object, lock: object = True) -> Any:  # noqa: N802
        return _locked(self.RawValue(typecode_or_type, *args), lock)

    def Array(self, typecode_or_type: object, size_or_initializer: object, *, lock: object = True) -> Any:  # noqa: N802
        return _locked(self.RawArray(typecode_or_type, size_or_initializer), lock)


_SHARED: dict[str, Any] = {
    "Process": Process,
    "Queue": Queue,
    "JoinableQueue": Queue,
    "Lock": threading.Lock,
    "RLock": threading.RLock,
    "Condition": threading.Condition,
    "Event": threading.Event,
    "Semaphore": threading.Semaphore,
    "BoundedSemaphore": threading.BoundedSemaphore,
    "Barrier": threading.Barrier,
    "Manager": Manager,
    "Pipe": multiprocessing.dummy.connection.Pipe,
    "current_process": dummy.current_process,
    "active_children": dummy.active_children,
    "freeze_support": dummy.freeze_support,
}
for _called, _made in _SHARED.items():
    setattr(Threads, _called, staticmethod(_made))


def _ctype(code: object) -> Any:
    kinds: Any = vars(importlib.import_module("multiprocessing.sharedctypes"))["typecode_to_type"]
    return kinds.get(code, code)


def _locked(value: Any, lock: object) -> Any:
    from multiprocessing.sharedctypes import synchronized

    guard: Any = threading.RLock() if lock is True else lock
    return value if lock is False else synchronized(value, guard)


class Executor(concurrent.futures.ThreadPoolExecutor):
    """ProcessPoolExecutor with threads."""

    def __init__(
        self,
        max_workers: int | None = None,
        mp_context: object = None,
        initializer: Callable[..., Any] | None = None,
        initargs: Any = (),
        *,
        max_tasks_per_child: int | None = None,
    ) -> None:
        super().__init__(max_workers, "process", initializer, initargs)


class _End:
    """One end of a pipe, with the methods of a socket that an event loop calls to wake itself."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def fileno(self) -> int:
        return self.descriptor

    def setblocking(self, blocking: bool) -> None:
        os.set_blocking(self.descriptor, blocking)

    def recv(self, count: int) -> bytes:
        return os.read(self.descriptor, count)

    def send(self, data: bytes) -> int:
        return os.write(self.descriptor, data)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1


def _make_self_pipe(loop: Any) -> None:
    """What asyncio does with socket.socketpair(), which is refused."""
    reader, writer = os.pipe()
    loop._ssock, loop._csock = _End(reader), _End(writer)
    for end in (loop._ssock, loop._csock):
        end.setblocking(False)
    loop._internal_fds += 1
    loop._add_reader(reader, loop._read_from_self)
