"""Environments of the user as a task: `--task my_env.py:Env`, an entry point `burnish.tasks`, or a class in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from burnish.core.seeds import key_of
from burnish.core.task import Task
from burnish.envs.expert import expert_episode
from burnish.envs.guarded import SECONDS, Failure, GuardedEnv
from burnish.envs.played import Played, demonstration_of
from burnish.envs.process import Rows
from burnish.util.failures import said


class CannotStart(ValueError):
    """The environment of a task gave no prompt. task: one in its place, whose episodes fail with the reason."""

    def __init__(self, name: str, key: str, why: str) -> None:
        super().__init__(f"task {name!r} cannot be started: {why}")
        self.task = Task("game", f"[{why}]", {"env": partial(_refuse, why)}, key)


def _refuse(why: str) -> None:
    raise Failure(why)


class EnvSource(Played):
    """An environment class as a source of tasks.

    Where the class has `tasks(split)` (a list of rows, static or class method), each row is a task, passed to
    reset(task=...). Without it there are endless tasks, which differ by their seed. The prompt of a task is what
    `reset` says; every episode is reset again with the same row and seed. Where the class has `expert()`, each task
    demonstrates an episode that the expert plays: `sft` trains on it. seconds: the time limit of each call; a draw
    sets the run's (--env-timeout).
    """

    def __init__(self, factory: Callable[..., Any], name: str | None = None, **options: Any) -> None:
        self.factory, self.seconds = partial(factory, **options) if options else factory, SECONDS
        self.name = name or str(getattr(factory, "__name__", "environment"))
        first_line = (getattr(factory, "__doc__", None) or "an environment").strip().splitlines()[0]
        self.summary = first_line
        self.demonstrates = callable(getattr(factory, "expert", None))
        self.gives = frozenset({"env", "demo", "messages"} if self.demonstrates else {"env"})
        rows = getattr(factory, "tasks", None)
        self._rows: dict[str, Sequence[Any]] = {}
        if callable(rows):
            self._rows = {split: self._listed(rows, split) for split in ("train", "heldout")}
            if not self._rows["train"]:
                raise ValueError(f"{self.name}.tasks('train') gives no rows; return a list of at least one")

    def _listed(self, rows: Callable[[str], Any], split: str) -> Sequence[Any]:
        """The rows that the user's function gives."""
        try:
            found = rows(split)
            return found if isinstance(found, Rows) else list(found)
        except Exception as error:
            why = f"{type(error).__name__}: {said(error)}"
            raise ValueError(f"{self.name}.tasks({split!r}) gives no list of rows ({why}); correct it") from error

    def size(self, split: str) -> int | None:
        return len(self._rows[split]) if self._rows else None

    def task(self, split: str, index: int) -> Task:
        row = self._rows[split][index] if self._rows else None
        key = f"{self.name} {split} {index}"
        seed = key_of("environment", key) & 0x7FFFFFFF
        env = GuardedEnv(self.factory, self.seconds)
        try:
            seen = env.observed(env.begin_reset(row, seed))
            tools = env.tools()
            given: dict[str, Any] = {"env": self.factory, "task": row, "seed": seed}
            if self.demonstrates:
                given |= demonstration_of(expert_episode(GuardedEnv(self.factory, self.seconds), row, seed))
        except Failure as failure:
            raise CannotStart(self.name, key, str(failure)) from failure
        finally:
            env.close()
        prompt = ({"role": "user", "content": seen},) if isinstance(seen, str) else seen
        return Task("game", prompt, {**given, "tools": tools} if tools else given, key)
