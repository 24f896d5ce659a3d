"""Tools: schemas of annotations, arguments that are checked and coerced, async, parallel and stateful tools, limits."""

from __future__ import annotations

import asyncio
import enum
import json
import threading
from typing import Annotated, Any, Literal, Optional

import pydantic
import pytest

from burnish.envs.guarded import GuardedEnv
from burnish.envs.named_tools import read_tools
from burnish.envs.tool_schema import argument_notes, coerced, described, schema_of
from burnish.envs.tools import MOST_CALLS, Tool, ToolEnv


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(pydantic.BaseModel):
    """A place."""

    city: str
    days: int = 1


def book(
    place: Place,
    kind: Literal["single", "double"],
    colour: Colour = Colour.RED,
    nights: int | None = None,
    tags: list[str] | None = None,
    prices: dict[str, float] | None = None,
    near: Annotated[bool, "Close to the station."] = False,
) -> str:
    """Book a room.

    Args:
        place: Where,
            and for how long.
        kind (str): The room.
        nights: How many.

    Returns:
        What was booked.
    """
    return f"{place.city} {place.days} {kind} {colour.name} {nights} {tags} {prices} {near}"


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def answers(env: ToolEnv, *calls: str) -> list[str]:
    observed = env.step("".join(calls)).observation
    assert isinstance(observed, tuple)
    return [message["content"] for message in observed]


def test_a_schema_says_what_the_annotations_say() -> None:
    schema = Tool.of(book).schema["function"]
    assert schema["description"] == "Book a room.\n\nReturns:\n    What was booked."
    parameters = schema["parameters"]
    assert parameters["required"] == ["place", "kind"]
    properties = parameters["properties"]
    assert properties["kind"] == {"enum": ["single", "double"], "type": "string", "description": "The room."}
    assert properties["colour"] == {"enum": ["red", "blue"], "type": "string"}
    assert properties["nights"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "How many."}
    assert properties["tags"] == {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}
    assert properties["prices"]["anyOf"][0] == {"type": "object", "additionalProperties": {"type": "number"}}
    assert properties["near"] == {"type": "boolean", "description": "Close to the station.", "default": False}
    place = properties["place"]
    assert place["description"] == "Where, and for how long." and place["required"] == ["city"]
    assert place["properties"]["days"]["type"] == "integer"
    json.dumps(schema)


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (Literal[1, 2], {"enum": [1, 2], "type": "integer"}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (dict, {"type": "object"}),
        (dict[str, Any], {"type": "object"}),
        (list[list[float]], {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}),
        (Any, {}),
        (object(), {"type": "string"}),
    ],
)
def test_schemas_of_annotations(annotation: object, schema: dict[str, object]) -> None:
    assert schema_of(annotation) == schema


@pytest.mark.parametrize(
    ("value", "schema", "found"),
    [
        ("3", {"type": "integer"}, 3),
        (3.0, {"type": "integer"}, 3),
        ("2.5", {"type": "number"}, 2.5),
        ("True", {"type": "boolean"}, True),
        (75001, {"type": "string"}, "75001"),
        ("[1, \"2\"]", {"type": "array", "items": {"type": "integer"}}, [1, 2]),
        ('{"a": "1"}', {"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1}),
        ("Blue", {"enum": ["red", "blue"]}, "blue"),
        ("2", {"enum": [1, 2]}, 2),
        ("null", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ("7", {"type": ["integer", "null"]}, 7),
        ("7", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "7"),  # a text that fits stays one
        ({"x": "1"}, {"$ref": "#/$defs/P", "$defs": {"P": {"properties": {"x": {"type": "integer"}}}}}, {"x": 1}),
    ],
)  # fmt: skip
def test_values_that_a_schema_makes_plain_are_coerced(value: object, schema: dict[str, object], found: object) -> None:
    read = coerced(value, schema, "x")
    assert read == found and type(read) is type(found)


@pytest.mark.parametrize(
    ("value", "schema", "why"),
    [
        ("x", {"type": "integer"}, 'x is "x", but must be an integer'),
        (True, {"type": "integer"}, "x is true, but must be an integer"),
        (1.5, {"type": "integer"}, "must be an integer"),
        ("nan", {"type": "number"}, "must be a number"),
        ({"a": 1}, {"type": "string"}, "must be a text"),
        ("x", {"enum": ["a", "b"]}, 'must be one of "a", "b"'),
        ([1, "y"], {"type": "array", "items": {"type": "integer"}}, 'x[1] is "y", but must be an integer'),
        ({}, {"type": "object", "required": ["a"]}, "x lacks 'a'"),
        ({"b": 1}, {"type": "object", "properties": {"a": {}}, "additionalProperties": False}, "x has no 'b'"),
        ("x", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "must be an integer or null"),
        (11, {"type": "integer", "maximum": 10}, "must be at most 10"),
    ],
)
def test_values_that_fit_no_schema_are_refused_in_a_sentence(value: object, schema: Any, why: str) -> None:
    with pytest.raises(ValueError) as error:
        coerced(value, schema, "x")
    assert why in str(error.value)


def test_a_tool_gets_python_values_and_the_model_reads_what_is_wrong() -> None:
    env = ToolEnv([Tool.of(book)])
    right = call("book", place={"city": "Paris", "days": "2"}, kind="single", colour="blue", nights="3")
    assert answers(env, right) == ["Paris 2 single BLUE 3 None None False"]
    for arguments, why in (
        ({"place": {"days": 1}, "kind": "single"}, "lacks 'city'"),
        ({"place": {"city": "x"}, "kind": "triple"}, 'book: kind is "triple", but must be one of "single", "double"'),
        ({"place": {"city": "x"}}, "book needs the argument 'kind'"),
        ({"place": {"city": "x"}, "kind": "single", "who": 1}, "book has no argument 'who'"),
    ):
        [answer] = answers(env, call("book", **arguments))
        assert answer.startswith("error: ") and why in answer
    assert env.failed == 4 and env.made == 5


def test_docstrings_in_the_style_of_sphinx_are_read() -> None:
    text = "Search.\n\n:param query: What to\n:param int most: How many"
    assert argument_notes(text) == {"query": "What to", "most": "How many"} and described(text) == "Search."


def test_calls_of_one_reply_run_at_the_same_time_and_async_tools_are_awaited() -> None:
    """Each call waits for the other: one after the other, neither would end."""
    both = threading.Barrier(2, timeout=20)

    def first(a: int) -> int:
        """Wait."""
        both.wait()
        return a

    async def second(a: int) -> int:
        """Wait."""
        await asyncio.to_thread(both.wait)
        return a

    env = ToolEnv([Tool.of(first), Tool.of(second)])
    assert answers(env, call("first", a=1), call("second", a=2)) == ["1", "2"]
    assert answers(env, *[call("second", b=1)] * 2) == ["error: second has no argument 'b'; it has a"] * 2


def test_a_tool_that_does_not_answer_is_told_and_the_others_are_not_lost() -> None:
    stop = threading.Event()

    def slow() -> str:
        """Wait."""
        stop.wait(20)
        return "late"

    def quick() -> str:
        """Answer."""
        return "done"

    class Shell:
        def hang(self) -> str:
            """Wait."""
            return slow()

        def look(self) -> str:
            """Look."""
            return "there"

    env = ToolEnv([Tool.of(slow), Tool.of(quick), *Tool.all_of(Shell)], seconds=0.05)
    env.reset()
    assert answers(env, call("slow"), call("quick")) == ["error: slow had not answered after 0.05 s", "done"]
    assert answers(env, call("look"), call("hang"), call("look")) == [
        "there", "error: hang had not answered after 0.05 s",
        "error: look cannot be called: an earlier call has not ended",
    ]  # fmt: skip
    stop.set()


class Notebook:
    """Lines that an episode writes."""

    closed = 0

    def __init__(self, task: dict[str, Any]) -> None:
        self.lines: list[str] = [task["first"]]

    def write(self, text: str) -> int:
        """Write a line.

        Args:
            text: The line.
        """
        self.lines.append(text)
        return len(self.lines)

    async def read(self) -> list[str]:
        """Read all lines."""
        return self.lines

    def helper(self) -> None: ...

    def close(self) -> None:
        """End."""
        type(self).closed += 1


def test_a_class_of_tools_has_a_state_for_each_episode_and_is_played_again_for_branches() -> None:
    tools = read_tools(f"{__name__}:Notebook")
    assert [tool.name for tool in tools] == ["write", "read"]
    assert tools[0].schema["function"]["parameters"]["properties"] == {
        "text": {"type": "string", "description": "The line."}
    }
    row = {"first": "a"}
    one, other = (GuardedEnv(lambda: ToolEnv(tools, None, row)) for _ in range(2))
    for env, text in ((one, "b"), (other, "c")):
        env.observed(env.begin_reset(None, 0))
        env.outcome(env.begin_step(call("write", text=text) + call("write", text="!")))
    branch = one.at(1)
    for env, lines in ((one, '["a", "b", "!"]'), (other, '["a", "c", "!"]'), (branch, '["a", "b", "!"]')):
        observed = env.outcome(env.begin_step(call("read"))).observation
        assert isinstance(observed, tuple) and observed[0]["content"] == lines
    before = Notebook.closed
    one.env.close()
    assert Notebook.closed == before + 1


def test_a_class_without_tools_and_a_reply_with_too_many_calls_are_refused() -> None:
    class Empty:
        pass

    with pytest.raises(ValueError, match="'Empty' has no method with a docstring"):
        Tool.all_of(Empty)
    env = ToolEnv([Tool.of(argument_free)])
    found = answers(env, *[call("argument_free")] * (MOST_CALLS + 2))
    assert found[MOST_CALLS - 1] == "ok" and found[MOST_CALLS:] == [f"error: a reply may make {MOST_CALLS} calls"] * 2


def argument_free() -> str:
    """Answer."""
    return "ok"


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), KeyboardInterrupt(), GeneratorExit()])
def test_no_exception_of_a_tool_gets_out(error: BaseException) -> None:
    def breaks() -> str:
        """Break."""
        raise error

    env = ToolEnv([Tool.of(breaks)], seconds=20)
    assert [answer.partition(":")[0] for answer in answers(env, call("breaks"))] == ["error"]
