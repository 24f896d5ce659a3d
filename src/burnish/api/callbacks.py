"""Callbacks of a run: functions and objects of the user's, as observers.

    train(..., callbacks=[print_reward])             a function(report), called after each step
    train(..., callbacks=[Mine()])                   an object with some of the methods below, or an Observer

    on_start(run)   on_step(report)   on_evaluate(when, outcome)   on_save(path)   on_warning(text)   on_end(result)

A method that takes fewer arguments gets the first ones; on_step may take (report, heldout, seconds). One that returns
"stop" ends the run after this step: it is saved, and can be resumed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

from burnish.core.loop import Report
from burnish.evals.heldout import Outcome
from burnish.run.observed import ObservedRun
from burnish.run.observers import Observer, Observers
from burnish.run.train import Result
from burnish.store.control import order

STOP = "stop"
HOOKS = ("on_start", "on_step", "on_evaluate", "on_save", "on_warning", "on_end")


def observers(callbacks: object, observer: Observer | None = None) -> Observers:
    """Callbacks in the order given, then the observer."""
    several = list(callbacks) if isinstance(callbacks, list | tuple) else [callbacks]
    return Observers(*map(_observer, several), *([observer] if observer is not None else []))


def _observer(callback: object) -> Observer:
    if isinstance(callback, Observer):
        return callback
    if not any(callable(getattr(callback, hook, None)) for hook in HOOKS) and not callable(callback):
        raise ValueError(
            f"a callback is a function of a step's report, or an object with one of {', '.join(HOOKS)}, not "
            f"{callback!r:.80}"
        )
    return Callback(callback)


class Callback(Observer):
    """One callback as an observer."""

    def __init__(self, what: object) -> None:
        self.what = what
        self.folder: Path | None = None
        hooks = {hook: getattr(what, hook, None) for hook in HOOKS}
        if not any(map(callable, hooks.values())):
            hooks["on_step"] = what
        self.hooks: dict[str, Callable[..., object]] = {hook: f for hook, f in hooks.items() if callable(f)}

    def started(self, run: ObservedRun) -> None:
        self.folder = run.folder.path
        self._call("on_start", run)

    def evaluated(self, when: str, outcome: Outcome) -> None:
        self._call("on_evaluate", when, outcome)

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        self._call("on_step", report, heldout, seconds)

    def saved(self, path: Path) -> None:
        self._call("on_save", path)

    def warned(self, said: str) -> None:
        self._call("on_warning", said)

    def finished(self, result: Result) -> None:
        self._call("on_end", result)

    def _call(self, hook: str, *arguments: object) -> None:
        function = self.hooks.get(hook)
        if function is None:
            return
        answer = function(*arguments[: _room(function, len(arguments))])
        if isinstance(answer, str) and answer == STOP and self.folder is not None:
            order(self.folder, STOP)


def _room(function: Callable[..., object], most: int) -> int:
    """How many of the arguments a function takes."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-ins have no signature
        return 1
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return most
    return min(most, sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters))
