"""The table of verifiers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from burnish.core.call_syntax import Call, bound
from burnish.core.task import Verdict
from burnish.papers import Paper
from burnish.verifiers.code.outcome import Outcome

Row = Mapping[str, object]
Check = Callable[[Row, str], Verdict]
Value = Callable[[Row, Outcome], float]  # the reward of a program, from the outcome of its tests
Runs = Literal["worker", "programs", "rows", "lean"]  # where it is computed
_F = TypeVar("_F", bound=Callable[..., object])
_G = TypeVar("_G", bound=Callable[..., Value])


@dataclass(frozen=True)
class VerifierEntry:
    """One row of the table. needs: the columns without which it cannot score; kinds: the kinds of tasks it is for.

    runs: "worker", where `build` gives a Check; "programs", where replies are programs, which run in boxes of their own
    (coded.py of reward_functions), and it gives a Value; "rows", where it gives a function of a row that names its
    verifier (by_row.py); "lean", where it gives settings (proved.py)
    call: how it is written in the example, where it has options without a default; task: that of the example, where one
    in the box has the columns that it needs
    """

    name: str
    build: Callable[..., Any]
    needs: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    papers: tuple[Paper, ...] = ()
    summary: str = ""
    when: str = ""
    runs: Runs = "worker"
    call: str = ""
    task: str = "data.jsonl"

    @property
    def example(self) -> str:
        """A command that uses it."""
        return f"burnish train grpo --task {self.task} --reward {self.call or self.name}"


VERIFIERS: dict[str, VerifierEntry] = {}


def verifier(
    *papers: Paper,
    needs: tuple[str, ...] = (),
    kinds: tuple[str, ...] = (),
    summary: str,
    when: str = "",
    runs: Runs = "worker",
    call: str = "",
    task: str = "data.jsonl",
) -> Callable[[_F], _F]:
    """Put a function(**options) -> Check into the table under its own name."""

    def mark(function: _F) -> _F:
        name = function.__name__
        VERIFIERS[name] = VerifierEntry(name, function, needs, kinds, papers, summary, when, runs, call, task)
        return function

    return mark


def program_reward(*papers: Paper, summary: str, when: str = "") -> Callable[[_G], _G]:
    """Put a function(**options) -> Value into the table under its own name; rows need tests (code/tests.py)."""

    def mark(function: _G) -> _G:
        name = function.__name__
        VERIFIERS[name] = VerifierEntry(name, function, (), ("code",), papers, summary, when, "programs")
        return function

    return mark


def load_verifiers() -> dict[str, VerifierEntry]:
    """Import every family and return the whole table."""
    import burnish.verifiers.families  # noqa: F401

    return VERIFIERS


def build_check(call: Call) -> Any:
    """The check that a call such as f1(minimum=0.5) names; raises ValueError for options that it does not take.

    Of a reward of programs it is a Value.
    """
    entry = load_verifiers()[call.name]
    arguments = bound(call, entry.build)
    return entry.build(**arguments)
