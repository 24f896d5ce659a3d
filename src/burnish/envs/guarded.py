"""Calls of an environment with a time limit each. What raises, hangs or answers nonsense is a Failure with its reason.

Environments of the user run in threads of their own: a thread that hangs is left behind, and its episode has failed.
Those of burnish are called directly.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as OutOfTime
from dataclasses import replace
from functools import cache
from typing import Any

from burnish.envs.protocol import Observed, Outcome, read_observation, read_outcome, reset_arguments

SECONDS = 60.0  # default time limit of one call
LONGEST = 20_000  # characters of an observation that are kept


class Failure(Exception):
    """An environment gave no answer: why, in one sentence."""


class GuardedEnv:
    """One episode of an environment. make: makes the instance, inside the time limit of `reset`."""

    def __init__(self, make: Callable[[], Any], seconds: float = SECONDS) -> None:
        self._make, self.seconds = make, seconds
        self.env: Any = None
        self.cut = 0  # characters that were cut off observations

    def begin_reset(self, task: Any, seed: int, seated: bool = False) -> Future[Any]:
        """Start making and resetting the environment. seated: models play the seats besides the policy's."""

        def call() -> Any:
            self.env = self._make()
            return self.env.reset(**reset_arguments(self.env.reset, task, seed, seated))

        return _begun(call, trusted=False)

    def begin_step(self, action: str) -> Future[Any]:
        """Start a step."""
        return _begun(lambda: self.env.step(action), trusted=_is_ours(self.env))

    def observed(self, call: Future[Any]) -> Observed:
        """What a reset that was begun says; raises Failure."""
        return self._cut(_read("reset", self._wait(call, "reset"), read_observation))

    def outcome(self, call: Future[Any]) -> Outcome:
        """What a step that was begun gives; raises Failure."""
        found: Outcome = _read("step", self._wait(call, "step"), read_outcome)
        return replace(found, observation=self._cut(found.observation))

    def key(self) -> str | None:
        """The name of the state; None where the environment gives none."""
        return self._asked("key") if hasattr(self.env, "key") else None

    def expert(self) -> str:
        """A good action in this state."""
        return self._asked("expert")

    def seat(self) -> str:
        """The player whose turn it is; "" where there is one player."""
        return self._asked("seat") if hasattr(self.env, "seat") else ""

    def seats(self) -> tuple[str, ...]:
        """The names of all players, the policy's first; "" where there is one player."""
        return tuple(getattr(self.env, "seats", ())) or ("",)

    def tools(self) -> list[dict[str, Any]]:
        """The JSON schemas of its tools; none where it has none."""
        return list(self.env.tools()) if hasattr(self.env, "tools") else []

    def close(self) -> None:
        """End the episode; what goes wrong then does not matter to it."""
        if self.env is not None and hasattr(self.env, "close"):
            _begun(self.env.close, trusted=False)

    def _asked(self, what: str) -> str:
        try:
            return str(getattr(self.env, what)())
        except Exception as error:
            raise Failure(f"{what}() of the environment raised {_said(error)}") from error

    def _wait(self, call: Future[Any], what: str) -> Any:
        try:
            return call.result(self.seconds)
        except OutOfTime:
            raise Failure(f"{what}() of the environment had not answered after {self.seconds:g} s") from None
        except Exception as error:
            raise Failure(f"{what}() of the environment raised {_said(error)}") from error

    def _cut(self, seen: Observed) -> Observed:
        if isinstance(seen, str):
            if len(seen) > LONGEST:
                self.cut += len(seen) - LONGEST
                return seen[:LONGEST] + f"\n[{len(seen) - LONGEST} more characters]"
            return seen
        return tuple(
            {**message, "content": self._cut(message["content"])} if isinstance(message["content"], str) else message
            for message in seen
        )


def _begun(call: Callable[[], Any], trusted: bool) -> Future[Any]:
    """Run a call: at once where it is trusted, else in a thread; a coroutine runs in the loop of this process."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            found = call()
            if inspect.iscoroutine(found):
                found = asyncio.run_coroutine_threadsafe(_awaited(found), _loop()).result()
            future.set_result(found)
        except BaseException as error:  # noqa: BLE001 - SystemExit too: an environment must not end the run
            future.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    if trusted:
        run()
    else:
        threading.Thread(target=run, daemon=True, name="environment").start()
    return future


async def _awaited(call: Coroutine[Any, Any, Any]) -> Any:
    return await call


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One event loop for all async environments, in a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="environments").start()
    return loop


def _is_ours(env: Any) -> bool:
    return type(env).__module__.startswith("burnish.")


def _read(what: str, given: Any, read: Callable[[Any], Any]) -> Any:
    try:
        return read(given)
    except ValueError as error:
        raise Failure(f"{what}() of the environment: {error}") from error


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}".rstrip(": ")
