"""Calls of an environment with a time limit each. What raises, hangs or answers nonsense is a Failure with its reason.

Environments of the user run in another thread (util/lane.py), those of a file in a process besides (process.py). One
that hangs is left behind, its process killed: its episode has failed. Those of burnish are called directly, unless they
say `foreign = True`: they call other people's code.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import cache
from typing import Any

from burnish.envs.protocol import Observed, Outcome, offers, read_observation, read_outcome, reset_arguments, shortened
from burnish.tool_calls import Reader
from burnish.util.failures import place_of
from burnish.util.failures import said as text_of_error
from burnish.util.lane import in_lane
from burnish.util.pending import Pending

SECONDS = 60.0  # default time limit of one call
LONGEST = 20_000  # characters of an observation that are kept


class Failure(Exception):
    """An environment gave no answer: why, in one sentence."""


class GuardedEnv:
    """One episode of an environment. make: makes the instance, inside the time limit of `reset`."""

    def __init__(self, make: Callable[[], Any], seconds: float = SECONDS) -> None:
        self._make, self.seconds = make, seconds
        self.env: Any = None
        self.due = math.inf  # when the call that runs runs out of time
        self.cut = 0  # characters that were cut off observations
        self.closed = False
        self._origin: tuple[Any, int, bool, Reader | None] = (None, 0, False, None)  # the arguments of the reset
        self.said: list[str] = []  # the actions so far
        self.seen: list[Observed | Outcome] = []  # what reset said, then what each step gave
        self._kept: dict[int, Any] = {}  # copies of the environment by the number of steps

    def begin_reset(self, task: object, seed: int, seated: bool = False, reader: Reader | None = None) -> Pending:
        """Start making and resetting the environment. seated: models play the seats besides the policy's.

        reader: of the tool calls in the policy's replies
        """
        self._origin, self.said, self.seen, self._kept = (task, seed, seated, reader), [], [], {}

        def call() -> object:
            self.env = self._make()
            if self.closed:  # the episode has ended while the instance was being made
                self.closed = False
                self.close()
            return self.env.reset(**reset_arguments(self.env.reset, task, seed, seated, reader))

        self.due = time.monotonic() + self.seconds
        return _begun(call, trusted=False)

    def begin_step(self, action: str) -> Pending:
        """Start a step."""
        self.said.append(action)
        self.due = time.monotonic() + self.seconds
        return _begun(lambda: self.env.step(action), trusted=_is_ours(self.env))

    def observed(self, call: Pending) -> Observed:
        """What a reset that was begun says; raises Failure."""
        found = self._cut(read_answer("reset", self._wait(call, "reset"), read_observation))
        self.seen.append(found)
        return found

    def outcome(self, call: Pending) -> Outcome:
        """What a step that was begun gives; raises Failure."""
        found: Outcome = read_answer("step", self._wait(call, "step"), read_outcome)
        cut = self._cut(found.observation)
        found = found if cut is found.observation else replace(found, observation=cut)
        self.seen.append(found)
        return found

    def keep(self) -> None:
        """Keep a copy of the state for `at`, where the environment has fork()."""
        if offers(self.env, "fork"):
            self._kept[len(self.said)] = self._fork(self.env)

    def copies(self, k: int) -> bool:
        """Whether `at(k)` copies a state by fork(), rather than playing up to it again."""
        source = self._kept.get(k, self.env if k == len(self.said) else None)
        return source is not None and offers(source, "fork")

    def at(self, k: int) -> GuardedEnv:
        """An episode of its own in the state after k steps of this one, which goes on unchanged.

        The newest state, and those that `keep` kept, are copied by fork() where the environment has it. Any other is
        reached by a fresh instance: the same reset, then the same k actions. Every observation, reward and end must
        be the same as before, which is checked. Raises Failure where a state cannot be reached again.
        """
        assert 0 <= k < len(self.seen), f"step {k} of an episode of which {len(self.seen) - 1} steps are known"
        found = GuardedEnv(self._make, self.seconds)
        found._origin, found.cut = self._origin, self.cut
        source = self._kept.get(k, self.env if k == len(self.said) else None)
        if self.copies(k):
            found.env = self._fork(source)
            found.said, found.seen = self.said[:k], self.seen[: k + 1]
            return found
        _same(0, found.observed(found.begin_reset(*self._origin)), self.seen[0])
        for j, action in enumerate(self.said[:k], 1):
            _same(j, found.outcome(found.begin_step(action)), self.seen[j])
        return found

    def key(self) -> str | None:
        """The name of the state; None where the environment gives none."""
        return str(self._asked("key")) if offers(self.env, "key") else None

    def expert(self) -> str:
        """A good action in this state."""
        return str(self._asked("expert"))

    def seat(self) -> str:
        """The player whose turn it is; "" where there is one player."""
        return str(self._asked("seat")) if offers(self.env, "seat") else ""

    def seats(self) -> tuple[str, ...]:
        """The names of all players, the policy's first; "" where there is one player."""
        return tuple(getattr(self.env, "seats", ())) or ("",)

    def tools(self) -> list[dict[str, object]]:
        """The JSON schemas of its tools; none where it has none."""
        return read_answer("tools", self._asked("tools"), list) if offers(self.env, "tools") else []

    def close(self) -> None:
        """End the episode, once; what goes wrong then does not matter to it."""
        closed, self.closed = self.closed, True
        if not closed and self.env is not None and offers(self.env, "close"):
            _begun(self.env.close, trusted=False)

    def _asked(self, what: str) -> object:
        return self._called(self.env, what)

    def _fork(self, env: object) -> object:
        return self._called(env, "fork")

    def _called(self, env: object, what: str) -> object:
        """What a method without arguments gives, within the time limit; raises Failure."""
        self.due = time.monotonic() + self.seconds
        return self._wait(_begun(getattr(env, what), trusted=_is_ours(env)), what)

    def _wait(self, call: Pending, what: str) -> object:
        try:
            return call.result(max(0.0, self.due - time.monotonic()))
        except Failure:
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and not call.done:
                where = _abandoned(self.env)
                raise Failure(f"{what}() of the environment had not answered after {self.seconds:g} s{where}") from None
            raise Failure(f"{what}() of the environment raised {said(error)}{place_of(error)}") from error

    def _cut(self, seen: Observed) -> Observed:
        """The first LONGEST characters of an observation, over all its messages and their parts."""
        found, cut = shortened(seen, LONGEST)
        self.cut += cut
        return found


def _begun(call: Callable[[], object], trusted: bool) -> Pending:
    """Run a call: at once where it is trusted, else in a thread; a coroutine goes on in the loop of this process.

    So thousands of async environments need no thread of their own.
    """
    pending = Pending()

    def run() -> None:
        try:
            found = call()
            if inspect.iscoroutine(found):
                later = asyncio.run_coroutine_threadsafe(_awaited(found), _loop())
                later.add_done_callback(lambda done: _finish(pending, done.result))
                return
        except BaseException as error:  # noqa: BLE001 - SystemExit too: an environment must not end the run
            pending.finish(error=_harmless(error))
        else:
            pending.finish(found)

    if trusted:
        run()
    else:
        in_lane(run)
    return pending


def _finish(pending: Pending, result: Callable[[], object]) -> None:
    try:
        found = result()
    except BaseException as error:  # noqa: BLE001 - as above
        pending.finish(error=_harmless(error))
    else:
        pending.finish(found)


def _harmless(error: BaseException) -> Exception:
    """The error; one that would end the process as one that does not."""
    return error if isinstance(error, Exception) else RuntimeError(f"{error!r}, which would end the run")


def in_loop(call: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine gives in the loop of this process; not to be called from that loop."""
    return asyncio.run_coroutine_threadsafe(_awaited(call), _loop()).result()


async def _awaited(call: Coroutine[object, object, object]) -> object:
    return await call


def _loop() -> asyncio.AbstractEventLoop:
    """One event loop for all async environments, in a thread of its own."""
    with _making:  # two threads that come first must not make one each: what environments share belongs to one loop
        return _one_loop()


@cache
def _one_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="environments").start()
    return loop


_making = threading.Lock()


def _forked() -> None:
    """A child process has none of its parent's threads; another thread of the parent may have held the lock."""
    global _making
    _making = threading.Lock()
    _one_loop.cache_clear()


os.register_at_fork(after_in_child=_forked)


def _abandoned(env: object) -> str:
    """End the process of an environment that does not answer, where it has one (process.py); where it hung."""
    while env is not None:
        abandon = getattr(type(env), "abandon", None)
        if callable(abandon):
            return str(abandon(env))
        env = vars(env).get("inner") if hasattr(env, "__dict__") else None
    return ""


def _is_ours(env: object) -> bool:
    """Whether it is burnish's own, and so is the environment that it wraps (`inner`), if it wraps one."""
    inner = vars(env).get("inner") if hasattr(env, "__dict__") else None
    ours = type(env).__module__.startswith("burnish.") and not getattr(env, "foreign", False)
    return ours and (inner is None or _is_ours(inner))


def read_answer(what: str, given: Any, read: Callable[[Any], Any]) -> Any:
    """What an environment gave, as `read` reads it. It may be anything: a number too large, an array in its place."""
    try:
        return read(given)
    except ValueError as error:
        raise Failure(f"{what}() of the environment: {error}") from error
    except Exception as error:
        raise Failure(f"{what}() of the environment gave what cannot be read: {said(error)}") from error


def _same(step: int, now: Observed | Outcome, before: Observed | Outcome) -> None:
    """Raise Failure where a replayed step gave something else than the first time; `info` may differ."""
    for part in ("observation", "reward", "terminated", "truncated") if isinstance(before, Outcome) else ("",):
        new, old = (getattr(now, part), getattr(before, part)) if part else (now, before)
        if new != old:
            raise Failure(
                f"a replay of the episode differs in the {part or 'observation'} of "
                f"{f'step {step}' if step else 'reset'}: {str(new)[:60]!r}, before {str(old)[:60]!r}; give the "
                "environment fork(), or make reset(task, seed) repeat itself"
            )


def said(error: BaseException) -> str:
    return f"{type(error).__name__}: {text_of_error(error)[:200]}".rstrip(": ")
