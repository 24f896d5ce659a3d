"""`calls`: answer a request by calls of functions from a store of schemas; graded by names, arguments and values."""

from __future__ import annotations

import json
import random
from typing import Any, ClassVar

from burnish.core.seeds import rng
from burnish.core.splits import ByLevel
from burnish.core.task import Task, Verdict
from burnish.tasks.functions_store import EASY, STORE, Function
from burnish.verifiers.answer_line import LONGEST_REPLY
from burnish.verifiers.tool_calls import calls_of, calls_score, read_calls

_SHAPE = {1: (2, 1, 0.0), 2: (4, 1, 0.0), 3: (6, 2, 0.1), 4: (8, 3, 0.15)}  # functions, calls, share without a call

Call = dict[str, Any]  # {"name": ..., "arguments": {...}}
Problem = tuple[str, list[Call]]  # the request, the right calls


def write_calls(thought: str, calls: list[Call]) -> str:
    """A reply in ToolRL's format: a thought, then the calls, one in each line; or a response where there is no call."""
    lines = [json.dumps(call) for call in calls]
    said = "\n".join(["<tool_call>", *lines, "</tool_call>"]) if calls else "<response>none</response>"
    return f"<think>{thought}</think>\n{said}"


class Calls(ByLevel):
    """2, 4, 6 or 8 functions and 1, 1, 2 or 3 calls by level; from level 3 on, no function fits some requests.

    Level 1 has functions of one number, in words that the embedded model's tokenizer has.
    """

    name: ClassVar[str] = "calls"
    summary: ClassVar[str] = "answer requests by function calls over a store of schemas, graded"
    gives: ClassVar[frozenset[str]] = frozenset({"answer", "demo", "mistake", "schemas"})

    def task(self, split: str, index: int) -> Task:
        shown, request, calls = self.drawn(split, index, self._draw, lambda drawn: f"{self.name} {drawn[1]}")
        key = f"{self.name} {request}"
        asked = "\n".join([*(one.signature if self.level > 1 else one.name for one in shown), f"Do: {request}"])
        given = {
            "answer": calls,
            "demo": self.solve(calls),
            "mistake": self.mistake(calls, shown, rng(key, "mistake")),
            "schemas": [one.schema for one in shown],
            "problem": (request, calls),
        }
        return Task("question", ({"role": "user", "content": asked},), given, key)

    def _draw(self, dice: random.Random) -> tuple[list[Function], str, list[Call]]:
        """The functions of the prompt, the request, and the right calls in its order."""
        many, most, without = _SHAPE[self.level]
        store = EASY if self.level == 1 else STORE
        wanted = dice.sample(store, dice.randint(1, most))
        others = [one for one in store if one not in wanted]
        arguments = [one.arguments(dice) for one in wanted]
        request = ", then ".join(one.request(given) for one, given in zip(wanted, arguments, strict=True))
        calls = [{"name": one.name, "arguments": given} for one, given in zip(wanted, arguments, strict=True)]
        if dice.random() < without:
            return dice.sample(others, min(many, len(others))), request, []
        shown = [*wanted, *dice.sample(others, many - len(wanted))]
        return dice.sample(shown, len(shown)), request, calls

    def solve(self, calls: list[Call]) -> str:
        """The right reply."""
        return write_calls(", ".join(call["name"] for call in calls) or "no function fits", calls)

    def mistake(self, calls: list[Call], shown: list[Function], dice: random.Random) -> str:
        """A reply with one thing wrong: another function, a changed value, a call too many or too few."""
        if not calls:
            extra = shown[0]
            return self.solve([{"name": extra.name, "arguments": extra.arguments(dice)}])
        changed = [{"name": call["name"], "arguments": dict(call["arguments"])} for call in calls]
        one = dice.choice(changed)
        kind = dice.choice(("name", "value", "value", "missing"))
        others = [function.name for function in shown if function.name != one["name"]]
        if kind == "name" and others:
            one["name"] = dice.choice(others)
        elif kind == "missing" and len(changed) > 1:
            changed.remove(one)
        else:
            key = dice.choice(list(one["arguments"]))
            one["arguments"][key] = _other(one["arguments"][key], dice)
        return self.solve(changed)

    def facts(self, task: Task) -> Problem:
        """The request and the right calls."""
        found: Problem = task.given["problem"]
        return found

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdict(self.facts(task), reply)

    def verdict(self, problem: Problem, reply: str) -> Verdict:
        """The graded share of the right calls (verifiers/tool_calls.py); correct where it is the whole."""
        try:
            said = read_calls(reply[-LONGEST_REPLY:])
        except ValueError as error:
            return Verdict(0.0, False, f"the calls cannot be read: {str(error)[:200]}")
        share = calls_score(said, calls_of(problem[1]))
        if share >= 1 - 1e-12:
            return Verdict(1.0, True)
        return Verdict(share, False, f"{share:.2f} of the credit for {len(problem[1])} calls")


def _other(value: object, dice: random.Random) -> object:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + dice.choice((-1, 1, 10))
    return f"{value}s"
