"""The verifiers of burnish's own sources, rebuilt from JSON-able specs in the verifier process.

A spec is a JSON-able dict with a "kind"; the facts are the data of one task that a scorer needs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from burnish.core.task import Verdict

if TYPE_CHECKING:
    from burnish.verifiers.table import Check


class BadRow(ValueError):
    """The data of a task, not the reply, is wrong: the run stops with this sentence."""


class ReplyCheck(Protocol):
    """Scores a reply by the facts of its task; raises BadRow where the facts are wrong."""

    def verdict(self, facts: Any, reply: str) -> Verdict: ...


class _Answers:
    """Compares the final answer of a reply with the right one (the facts)."""

    def __init__(self, spec: dict[str, Any]) -> None:
        from burnish.verifiers.mathematics import same_mathematics

        same_mathematics("x+1", "1+x")  # imports its libraries now, outside the time limit of a reply

    def verdict(self, facts: Any, reply: str) -> Verdict:
        from burnish.verifiers.final_answer import judge_answer
        from burnish.verifiers.mathematics import same_mathematics

        return judge_answer(facts, reply, same_mathematics)


class _Mathematics:
    """Whether the whole reply equals the facts as mathematics."""

    def __init__(self, spec: dict[str, Any]) -> None:
        _Answers(spec)

    def verdict(self, facts: Any, reply: str) -> Verdict:
        from burnish.verifiers.mathematics import same_mathematics

        return Verdict(1.0, True) if same_mathematics(reply, facts) else Verdict(0.0, False)


class _Named:
    """A verifier of the table, by its call: f1(minimum=0.5). The facts are the row of the reply."""

    def __init__(self, spec: dict[str, Any]) -> None:
        from burnish.core.call_syntax import read_call
        from burnish.verifiers.table import build_check

        call = read_call(spec["call"])
        assert call is not None, spec
        self.check: Check = build_check(call)

    def verdict(self, facts: Any, reply: str) -> Verdict:
        return self.check(facts, reply)


def make(spec: dict[str, Any]) -> ReplyCheck:
    """The scorer that a spec describes."""
    if spec["kind"] == "builtin":
        source = getattr(importlib.import_module(spec["source"]), spec["name"])  # one of burnish's own classes
        return source(level=spec["level"])  # type: ignore[no-any-return]
    if spec["kind"] == "verifier":
        return _Named(spec)
    if spec["kind"] == "gym":
        from burnish.verifiers.gym import GymScorer

        return GymScorer(spec)
    kinds: dict[str, Callable[[dict[str, Any]], ReplyCheck]] = {"answers": _Answers, "mathematics": _Mathematics}
    return kinds[spec["kind"]](spec)
