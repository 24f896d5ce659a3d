"""Law: nothing that a model may say raises an error out of a parser, a tool, an environment, a verifier or a reward.

Replies are made with a fixed seed: of the marks of all formats of tool calls, of JSON and Python that is broken in
any place, of deep nesting and of odd characters. The rewards of programs get every class of outcome.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from test_tools import Notebook, book
from test_verifiers_hostile import CASES, check_of

from burnish.envs.games.table import GAMES
from burnish.envs.guess import Guess
from burnish.envs.protocol import read_outcome
from burnish.envs.search import Search
from burnish.envs.tools import Tool, ToolEnv
from burnish.serve.protocol import Answered, Asked, assistant_message
from burnish.tasks.source import Source
from burnish.tasks.table import BUILTIN, source
from burnish.tool_calls import FORMATS, Reader
from burnish.verifiers.code.outcome import Class, Outcome
from burnish.verifiers.table import load_verifiers

PIECES = (
    *sorted({mark for format in FORMATS for mark in (*format.marks, *(format.thoughts or ()))}),
    *("<function=", "</function>", "<parameter=", ">", '<invoke name="', "<｜DSML｜function_calls>", "to=functions."),
    *("```json", "```", "Action:", "functools[", "function", ".call(", "[", "]", "{", "}", "(", ")", '"', "'", ","),
    *('{"name": "book", "arguments": {', '{"name": "add", "arguments": {"a": 1}}', '"parameters"', "book", "add", "a="),
    *("1", "-1", "1e999", "NaN", "null", "true", "b'x'", "lambda: 0", "\\", "\\u0000", "\ud800", "\u202e", "\0", "\n"),
    *("not ", "-", "~", "*", "**", "=", ";", "answer: ", "<search>", "</search>", "#### ", "\\boxed{", "9" * 5000, "é"),
)  # fmt: skip
LONG = (
    "[" * 5000,
    "{" * 5000,
    "(" * 300,
    "-" * 3000,
    "[add(a=" * 100,
    "<tool_call>" * 2000,
    "<think>" * 2000,
    '{"a":' * 900,
)


def replies(dice: random.Random, count: int) -> Iterator[str]:
    """So many replies."""
    yield from LONG
    for _ in range(count):
        pieces = dice.choices(PIECES, k=dice.randrange(1, 30))
        yield "".join(pieces)
        whole = '{"name": "book", "arguments": {"place": {"city": "x"}, "kind": "single", "nights": "2"}}'
        at = dice.randrange(len(whole))
        broken = whole[:at] + dice.choice(PIECES) + whole[at + dice.randrange(3) :]
        yield dice.choice(("<tool_call>%s</tool_call>", "%s", "[TOOL_CALLS] [%s]", "<|python_tag|>%s")).replace(
            "%s", broken
        )


def add(a: int, b: float = 1.0) -> float:
    """Add."""
    return a + b


@pytest.mark.parametrize("reader", [Reader(), *map(Reader, FORMATS)], ids=lambda reader: reader.format.name)
def test_no_reply_raises_out_of_a_parser_or_an_endpoint(reader: Reader) -> None:
    asked = Asked(
        ({"role": "user", "content": "?"},), (dict(Tool.of(book).schema), {"type": "function"}, {"function": 3})
    )
    for reply in replies(random.Random(reader.format.name), 150):
        read = reader.read(reply)
        assert all(isinstance(call.name, str) for call in read.calls)
        message, reason = assistant_message(Answered(reply, "stop", [], [], [], [], reader), asked)
        json.dumps(message)
        assert reason in ("stop", "tool_calls") and isinstance(message["content"], str | None)


def test_no_reply_raises_out_of_tools() -> None:
    env = ToolEnv([Tool.of(book), Tool.of(add), *Tool.all_of(Notebook)], row={"first": ""})
    env.reset()
    for reply in replies(random.Random("tools"), 400):
        read_outcome(env.step(reply))
    assert env.failed > 300


ENVIRONMENTS: dict[str, Source] = {
    name: family() for name, family in {**GAMES, "guess": Guess, "search": Search}.items()
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_no_reply_raises_out_of_a_game(name: str) -> None:
    dice = random.Random(name)
    for i, reply in enumerate(replies(dice, 30)):
        task = ENVIRONMENTS[name].task("train", i % 3)
        env = task.given["env"]()
        env.reset(**({"task": task.given["task"], "seed": i} if "task" in task.given else {}))
        for said in (reply, reply[::-1]):
            if read_outcome(env.step(said)).over:
                break


@pytest.mark.parametrize("name", CASES)
def test_no_reply_raises_out_of_a_verifier(name: str) -> None:
    call, row, _ = CASES[name]
    check = check_of(call)
    for reply in replies(random.Random(name), 20):
        check({"prompt": "", **row}, reply)


@pytest.mark.parametrize("name", BUILTIN)
def test_no_reply_raises_out_of_the_judge_of_a_task(name: str) -> None:
    tasks = source(name)
    task = tasks.task("train", 0)
    for reply in (
        [*LONG, *replies(random.Random(name), 12)][:20] if name not in PROGRAMS else ["", "```python\ndef f(:\n```"]
    ):
        tasks.verify(task, reply)


PROGRAMS = {"functions", "edit", "slips", "countdown"}  # their replies are run, each in a process
ROW = {"test_levels": [0, 1], "test_rates": [1.0, 0.5], "difficulty": 1.0, "tests": [], "prompt": "?"}
PROGRAM_REWARDS = [name for name, entry in load_verifiers().items() if entry.runs == "programs"]


@pytest.mark.parametrize("name", PROGRAM_REWARDS)
def test_no_outcome_of_a_program_raises_out_of_its_reward(name: str) -> None:
    value = load_verifiers()[name].build()
    for kind in Class:
        for total, marks in ((0, ()), (1, (False,)), (2, (True, False)), (2, (True, True))):
            if kind is Class.PASSED and (total != 2 or marks != (True, True)):
                continue
            if kind is Class.WRONG and total != 2:
                continue
            outcome = Outcome(kind, sum(marks), total, "why", 1, (0, 1), marks=marks)
            assert isinstance(value(ROW, outcome), float | int)
