"""The process of an environment's file: `python -m burnish.envs.host FILE.py:CLASS OPTIONS DESCRIPTOR`.

It loads the file once and then forks a process for each episode that runs at the same time; one that has ended plays
the next episode. Requests and answers are lines of JSON (channel.py): here {"row": [split, index]} and {"child": true}
with the descriptor of a channel; in an episode's process {"do": "reset", ...}. SIGUSR1 writes the stack of a process to
DESCRIPTOR. All have a guard (sandbox/guard.py): when the run ends, so do they. No torch here.
"""

from __future__ import annotations

import faulthandler
import gc
import inspect
import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from burnish.envs.channel import Channel
from burnish.envs.guarded import Failure, in_loop, read_answer, said
from burnish.envs.protocol import Observed, Outcome, offers, read_observation, read_outcome, reset_arguments
from burnish.reward_functions.load import load_function
from burnish.sandbox.codec import decode, encode
from burnish.sandbox.guard import fork_guard
from burnish.util.failures import place_of

OPTIONAL = ("key", "fork", "expert", "tools", "seat")  # methods that an environment may have, besides close()
ROW = "kept"  # in an answer: a row that JSON cannot hold, as text; it is asked for by its place


def main(spec: str, options: str, stack: str) -> None:
    """Answer requests until the run is gone."""
    fork_guard()
    control = Channel.of(os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.set_inheritable(int(stack), False)
    faulthandler.register(signal.SIGUSR1, file=int(stack), all_threads=False)
    try:
        factory = load_function(spec, "environment")
        rows = {split: _listed(factory, split) for split in _splits(factory)}
    except (ValueError, KeyboardInterrupt) as error:
        control.send({"error": str(error) or f"environment {spec!r}: loading it raised KeyboardInterrupt; fix it"})
        return
    given = decode(json.loads(options))
    has = [name for name in (*OPTIONAL, "close") if offers(factory, name)]
    sizes = {split: len(own) for split, own in rows.items()}
    control.send({"doc": str(factory.__doc__ or ""), "has": has, "sizes": sizes, "made": inspect.isclass(factory)})
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # episodes that have ended leave no zombies
    gc.collect()
    gc.freeze()
    _host(control, partial(factory, **given) if given else factory, rows)


def _splits(factory: object) -> tuple[str, ...]:
    return ("train", "heldout") if callable(getattr(factory, "tasks", None)) else ()


def _listed(factory: Any, split: str) -> list[Any]:
    try:
        return list(factory.tasks(split))
    except BaseException as error:
        raise ValueError(
            f"{factory.__name__}.tasks({split!r}) gives no list of rows ({said(error)}); correct it"
        ) from error


def _host(control: Channel, make: Callable[..., object], rows: dict[str, list[object]]) -> None:
    while True:
        try:
            request = control.receive()
        except (EOFError, ValueError):
            os._exit(0)
        if "row" in request:
            split, index = request["row"]
            control.send({"row": _told(rows[split][index])})
            continue
        channel = control.descriptors.pop(0)
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.end_here()
            Episodes(Channel.of(channel), make, rows).serve()
        os.close(channel)
        control.send({"child": True})


def _told(row: object) -> object:
    """A row as the run gets it; as text where JSON cannot hold it."""
    told = encode(row)
    try:
        same = bool(decode(json.loads(json.dumps(told, allow_nan=False))) == row)
    except Exception:  # noqa: BLE001 - what a comparison of the user's objects raises
        same = False
    return {"value": told} if same else {ROW: str(row)[:1000]}


class Episodes:
    """The process of an episode, and of others after it."""

    def __init__(self, channel: Channel, make: Callable[..., Any], rows: dict[str, list[Any]]) -> None:
        self.channel, self.make, self.rows = channel, make, rows
        self.env: Any = None

    def serve(self) -> None:
        """Answer requests until the run cuts the connection; never returns."""
        try:
            self._begin()
            while True:
                request = self.channel.receive()
                self.channel.send(self._answer(request))
        except BaseException:  # noqa: BLE001 - the run is gone, or this process is of no use
            os._exit(0)

    def _begin(self) -> None:
        """A session of its own, so that what the episode starts can be ended with it, and random numbers of its own."""
        os.setsid()
        random.seed()
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()
        self.channel.send({"pid": os.getpid()})

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        what = request["do"]
        try:
            return {"value": self._done(what, request)}
        except Failure as failure:
            return {"failed": str(failure)}
        except BaseException as error:  # noqa: BLE001 - SystemExit too
            return {"failed": f"{what}() of the environment raised {said(error)}{place_of(error)}"}

    def _done(self, what: str, request: dict[str, object]) -> object:
        if what == "make":
            self.env = self.make()
            return self._described()
        if what == "reset":
            return self._reset(request)
        if what == "step":
            return _outcome(read_answer("step", _waited(self.env.step(request["action"])), read_outcome))
        if what == "fork":
            return self._fork()
        if what == "end":
            return self._end()
        found = _waited(getattr(self.env, what)())
        return read_answer("tools", found, list) if what == "tools" else str(found)

    def _reset(self, request: dict[str, Any]) -> Any:
        if self.env is None:
            self.env = self.make()
        if "row" in request:
            split, index = request["row"]
            task = self.rows[split][index]
        else:
            task = decode(request["task"])
        arguments = reset_arguments(self.env.reset, task, request["seed"], request["seated"])
        seen: Observed = read_answer("reset", _waited(self.env.reset(**arguments)), read_observation)
        return {"seen": seen, **self._described()}

    def _described(self) -> dict[str, object]:
        seats = [str(seat) for seat in getattr(self.env, "seats", ()) or ()]
        return {"has": [name for name in OPTIONAL if offers(self.env, name)], "seats": seats}

    def _fork(self) -> object:
        """A process for the copy, which is a copy of this one: it answers by the channel that came with the request."""
        descriptor = self.channel.descriptors.pop(0)
        try:
            copy = _waited(self.env.fork())
            sys.stdout.flush()
            sys.stderr.flush()
            if not os.fork():
                self.channel.end_here()
                other = Episodes(Channel.of(descriptor), self.make, self.rows)
                other.env = copy
                other.serve()
        finally:
            os.close(descriptor)
        return self._described()

    def _end(self) -> bool:
        """Close the environment; whether this process can play another episode."""
        env, self.env = self.env, None
        if env is not None and offers(env, "close"):
            _waited(env.close())
        del env
        return threading.active_count() == 1


def _waited(found: object) -> object:
    return in_loop(found) if inspect.iscoroutine(found) else found


def _outcome(found: Outcome) -> dict[str, object]:
    """What of an outcome a run reads."""
    info = {"metrics": found.metrics(), "valid": found.valid, "outcome": str(found.info.get("outcome", ""))}
    return {
        "observation": found.observation,
        "reward": found.reward,
        "terminated": found.terminated,
        "truncated": found.truncated,
        "info": {name: value for name, value in info.items() if value not in (None, "", {})},
        "rewards": dict(found.rewards),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
