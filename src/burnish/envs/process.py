"""Environments of a user's file in processes of their own: `--task my_env.py:Env`.

What an environment does there costs at most its own episode: a step that holds the interpreter's lock is killed after
its time limit, one that ends its process has failed. It looks like any other environment: `Remote` makes instances, an
instance has the methods that the one in its process has.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

from burnish.envs.channel import Channel
from burnish.envs.guarded import Failure
from burnish.envs.host import OPTIONAL, ROW
from burnish.envs.protocol import Observed, Outcome
from burnish.sandbox.codec import decode, encode
from burnish.sandbox.process import line_of
from burnish.util.processes import kill_group, obituary

START = 60.0  # seconds in which the file must be loaded, and a process must begin to answer
CLOSE = 60.0  # seconds in which an environment must be closed
TERMINATE = 3.0  # seconds in which the guard kills its processes


class Kept(str):
    """A row that JSON cannot hold, as text; the process has the row itself at this place."""

    place: tuple[str, int]


class Rows(Sequence[Any]):
    """The rows of a split, which are in the process."""

    def __init__(self, host: Host, split: str, size: int) -> None:
        self._host, self._split, self._size = host, split, size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        if not -self._size <= index < self._size:
            raise IndexError(index)
        told = self._host.asked({"row": [self._split, index % self._size]})["row"]
        if ROW not in told:
            return decode(told["value"])
        row = Kept(told[ROW])
        row.place = self._split, index % self._size
        return row


class Remote:
    """The class of an environment, whose instances are in processes. Raises ValueError if it cannot be loaded."""

    def __init__(self, spec: str, **options: object) -> None:
        self.host = Host(spec, options)
        self.__name__ = spec.rpartition(":")[2]
        self.__doc__ = self.host.told["doc"] or None
        self.expert = "expert" in self.host.told["has"] and self.instance
        self.tasks = self.rows if self.host.told["sizes"] else None

    def __call__(self) -> RemoteEnv:
        return RemoteEnv(self.host)

    def __deepcopy__(self, memo: dict[int, object]) -> Remote:
        return self

    instance = __call__

    def rows(self, split: str) -> Rows:
        return Rows(self.host, split, self.host.told["sizes"][split])


class RemoteEnv:
    """An instance of an environment in a process, which it gets when it is first asked for something."""

    foreign = True  # not burnish's own: its calls may take long

    def __init__(self, host: Host) -> None:
        self._host = host
        self._child: Child | None = None
        self._has: list[str] = host.told["has"]
        self._known = bool(host.told["made"])  # whether the class says what the instance has
        self.seats: tuple[str, ...] = ()

    def reset(self, task: Any = None, seed: int = 0, seated: bool = False) -> Observed:
        """What the environment says at the beginning."""
        row = {"row": task.place} if isinstance(task, Kept) else {"task": encode(task)}
        found = self._asked("reset", seed=seed, seated=seated, **row)
        self._describe(found)
        seen: Any = found["seen"]
        return seen if isinstance(seen, str) else tuple(seen)

    def step(self, action: str) -> Outcome:
        """What the environment answers to an action."""
        return Outcome(**self._asked("step", action=action))

    def __getattr__(self, name: str) -> object:
        if name in OPTIONAL:
            if not self._known:
                self._describe(self._asked("make"))
            if name in self._has:
                return self._fork if name == "fork" else partial(self._asked, name)
        raise AttributeError(name)

    def close(self) -> None:
        """Close the environment; its process plays another episode."""
        child, self._child = self._child, None
        if child is not None:
            self._host.free(child)

    def abandon(self) -> str:
        """Kill the process, which does not answer; the line that it is at, as ", at file.py:12 in step"."""
        child, self._child = self._child, None
        return "" if child is None else child.killed()

    def _fork(self) -> RemoteEnv:
        found = RemoteEnv(self._host)
        assert self._child is not None, "an environment is reset before it is copied"
        ours, theirs = Channel.pair()
        try:
            told = self._child.asked("fork", (theirs,))
        finally:
            os.close(theirs)
        found._child = Child(ours, self._host)
        found._describe(told)
        return found

    def _describe(self, told: dict[str, Any]) -> None:
        self._has, self._known = list(map(str, told["has"])), True
        self.seats = tuple(map(str, told["seats"]))

    def _asked(self, what: str, **request: Any) -> Any:
        if self._child is None:
            self._child = self._host.child()
        return self._child.asked(what, **request)


class Child:
    """A process that plays an episode."""

    def __init__(self, channel: Channel, host: Host) -> None:
        self._channel, self._host = channel, host
        self._end = weakref.finalize(self, channel.end)  # its process ends then
        try:
            self.pid = int(channel.receive(START)["pid"])
        except (EOFError, ValueError, KeyError, TimeoutError):
            self._end()
            raise Failure("the process of the environment did not start; is there enough memory for it?") from None

    def asked(self, what: str, descriptors: Sequence[int] = (), **request: Any) -> Any:
        """What the environment answers; raises Failure where it has failed."""
        try:
            self._channel.send({"do": what, **request}, descriptors)
            told = self._channel.receive()
        except ValueError as error:
            self.kill()
            raise Failure(f"{what}() of the environment gave what cannot be read: {error}") from None
        except EOFError:
            self.kill()
            raise Failure(f"the process of the environment ended during {what}()") from None
        if "failed" in told:
            raise Failure(str(told["failed"]))
        return told.get("value")

    def ended(self) -> bool:
        """Close the environment; whether the process can play another episode."""
        try:
            self._channel.send({"do": "end"})
            return self._channel.receive(CLOSE).get("value") is True
        except (EOFError, ValueError, TimeoutError):
            return False

    def killed(self) -> str:
        """Kill the process; the line that it was at."""
        where = self._host.stack_of(self.pid)
        self.kill()
        return where

    def kill(self) -> None:
        """Kill the process and what it has started. It is there as long as its end of the channel is open."""
        if self._end.alive:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGKILL)
        self._end()


class Host:
    """The process that has loaded a file, and the processes that it forks. told: what it says of the class."""

    def __init__(self, spec: str, options: dict[str, Any]) -> None:
        self.spec, self.options = spec, options
        self._lock = threading.Lock()
        self._free: list[Child] = []
        self.told: dict[str, Any] = {}
        self._begin()

    def asked(self, request: dict[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        """The answer of the process that has loaded the file; it is started again if it is gone."""
        with self._lock:
            for again in (True, False):
                try:
                    self._control.send(request, descriptors)
                    return self._control.receive(START)
                except (EOFError, TimeoutError, ValueError):
                    self._end()
                    if not again:
                        break
                    self._begin()
        raise Failure(f"the process that has loaded {self.spec} ended")

    def child(self) -> Child:
        """A process for an episode: one that has played another, or a new one."""
        with contextlib.suppress(IndexError):
            return self._free.pop()
        try:
            ours, theirs = Channel.pair()
        except OSError as error:
            raise Failure(f"no process for the environment can be started ({error.strerror})") from None
        try:
            self.asked({"child": True}, (theirs,))
        finally:
            os.close(theirs)
        return Child(ours, self)

    def free(self, child: Child) -> None:
        """Close the environment in a process, and keep the process for another episode."""
        if child.ended():
            self._free.append(child)
        else:
            child.kill()

    def stack_of(self, pid: int) -> str:
        """The line that a process is at, as ", at file.py:12 in step"; empty if unknown."""
        with self._lock, selectors.DefaultSelector() as selector, contextlib.suppress(OSError):
            with contextlib.suppress(BlockingIOError):
                os.read(self._stacks, 1 << 20)  # what an earlier one wrote too late
            os.kill(pid, signal.SIGUSR1)
            selector.register(self._stacks, selectors.EVENT_READ)
            stack, due = b"", time.monotonic() + 0.4
            while not (where := line_of(stack.rpartition(b"\n")[0])) and selector.select(due - time.monotonic()):
                stack += os.read(self._stacks, 1 << 16)
            return where
        return ""

    def _begin(self) -> None:
        self._control, theirs = Channel.pair()
        self._stacks, writer = os.pipe()
        os.set_blocking(self._stacks, False)
        words = [sys.executable, "-m", "burnish.envs.host", self.spec, json.dumps(encode(self.options)), str(writer)]
        try:
            popen = subprocess.Popen(
                words,
                stdin=theirs,
                stdout=2,
                start_new_session=True,  # so that Ctrl-C does not reach it
                pass_fds=[writer],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
            )
        except OSError as error:
            os.close(self._stacks)
            raise ValueError(
                f"the process of the environment {self.spec} cannot be started ({error.strerror}); check for a limit "
                "on processes or memory"
            ) from error
        finally:
            os.close(theirs)
            os.close(writer)
        self._popen = popen
        self._end = weakref.finalize(self, _end, popen, self._control, self._stacks)
        self.told = self._loaded()

    def _loaded(self) -> dict[str, object]:
        why = f"the process of the environment {self.spec}"
        try:
            told = self._control.receive(START)
        except TimeoutError:
            why += f" did not start within {START:g} s; does loading it, or tasks(), wait for something?"
        except (EOFError, ValueError):
            why += f" {obituary(self._popen)} while it was loaded; does loading it, or tasks(), end Python?"
        else:
            if "error" not in told:
                return told
            why = str(told["error"])
        self._end()
        raise ValueError(why)


def _end(popen: subprocess.Popen[bytes], control: Channel, stacks: int) -> None:
    """End the process: its guard kills all that it has started."""
    control.end()
    with contextlib.suppress(OSError):
        os.close(stacks)
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        popen.terminate()
        popen.wait(TERMINATE)
    if popen.returncode is None:
        kill_group(popen)
