"""The verifiers of burnish's own sources, rebuilt from JSON-able specs in the verifier process.

A spec is a JSON-able dict with a "kind"; the facts are the data of one task that a scorer needs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Required, TypedDict, TypeVar

from burnish.core.task import Verdict

if TYPE_CHECKING:
    from burnish.verifiers.table import Check, Row

Facts = TypeVar("Facts", contravariant=True)


class BadRow(ValueError):
    """The data of a task, not the reply, is wrong: the run stops with this sentence."""


class ReplyCheck(Protocol[Facts]):
    """Scores a reply by the facts of its task; raises BadRow where the facts are wrong."""

    def verdict(self, facts: Facts, reply: str) -> Verdict: ...


class Spec(TypedDict, total=False):
    """kind: builtin, verifier, gym, answers or mathematics; the rest is for one of these kinds."""

    kind: Required[str]
    source: str
    name: str
    level: int
    call: str
    seed: int
    size: int
    options: dict[str, object]


class _Answers:
    """Compares the final answer of a reply with the right one (the facts)."""

    def __init__(self, spec: Spec) -> None:
        from burnish.verifiers.mathematics import same_mathematics

        same_mathematics("x+1", "1+x")  # imports its libraries now, outside the time limit of a reply

    def verdict(self, facts: str, reply: str) -> Verdict:
        from burnish.verifiers.final_answer import judge_answer
        from burnish.verifiers.mathematics import same_mathematics

        return judge_answer(facts, reply, same_mathematics)


class _Mathematics:
    """Whether the whole reply equals the facts as mathematics."""

    def __init__(self, spec: Spec) -> None:
        _Answers(spec)

    def verdict(self, facts: str, reply: str) -> Verdict:
        from burnish.verifiers.mathematics import same_mathematics

        return Verdict(1.0, True) if same_mathematics(reply, facts) else Verdict(0.0, False)


class _Named:
    """A verifier of the table, by its call: f1(minimum=0.5). The facts are the row of the reply."""

    def __init__(self, spec: Spec) -> None:
        from burnish.core.call_syntax import read_call
        from burnish.verifiers.table import build_check

        call = read_call(spec["call"])
        assert call is not None, spec
        self.check: Check = build_check(call)

    def verdict(self, facts: Row, reply: str) -> Verdict:
        return self.check(facts, reply)


def make(spec: Spec) -> ReplyCheck[Any]:
    """The scorer that a spec describes."""
    if spec["kind"] == "builtin":
        source = getattr(importlib.import_module(spec["source"]), spec["name"])  # one of burnish's own classes
        return source(level=spec["level"])  # type: ignore[no-any-return]
    if spec["kind"] == "verifier":
        return _Named(spec)
    if spec["kind"] == "gym":
        from burnish.verifiers.gym import GymScorer

        return GymScorer(spec)
    kinds: dict[str, Callable[[Spec], ReplyCheck[Any]]] = {"answers": _Answers, "mathematics": _Mathematics}
    return kinds[spec["kind"]](spec)
