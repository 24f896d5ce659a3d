"""Odd values from files and functions of the user: each is one sentence that names it, never a traceback."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from burnish.core.rejected import NotFinite
from burnish.envs.named_tools import read_tools
from burnish.envs.of_mcp import read_command
from burnish.envs.tools import Tool
from burnish.methods.table import entry_of, find
from burnish.migrate.translate import translate
from burnish.recipes.state import FILE, STEPS, State
from burnish.reward_functions.call import call_reward
from burnish.reward_functions.timed import TimedReward
from burnish.tasks.table import source
from burnish.util.failures import MEMORY, said, sentence, shown

REWARDS = """
class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")

class Shy:
    def __repr__(self):
        raise RuntimeError("no words")

def huge(completions):
    return [10**400 for _ in completions]

def mute(completions):
    raise Mute

def shy(completions):
    return [Shy() for _ in completions]

def leaves(completions):
    raise SystemExit(Shy())

class Leaving(Exception):
    def __str__(self):
        raise SystemExit(3)

def leaving(completions):
    raise Leaving

def endless(completions):
    raise ValueError("x" * 100000)
"""
SAYS = {
    "huge": "returned 1000000000",
    "mute": "raised Mute: its message cannot be read: RuntimeError",
    "shy": "returned a Shy that cannot be printed at index 0",
    "leaves": "called sys.exit(a Shy that cannot be printed)",
    "leaving": "raised Leaving: its message cannot be read: SystemExit",
    "endless": "xxx ... (100,000 characters)",
}


@pytest.mark.parametrize("name", SAYS)
def test_a_reward_whose_values_cannot_be_written(name: str) -> None:
    space: dict[str, Any] = {}
    exec(REWARDS, space)
    with pytest.raises(ValueError) as caught:
        call_reward(space[name], ["p"], ["c"], {})
    assert SAYS[name] in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 1500
    assert isinstance(caught.value, NotFinite) == (name == "huge")


def test_they_do_not_end_the_process_of_a_reward(tmp_path: Path) -> None:
    chosen = "\ndef named(completions):\n    return globals()[completions[0]](['c'])\n"
    (tmp_path / "mine.py").write_text(REWARDS + chosen)
    reward = TimedReward(f"{tmp_path / 'mine.py'}:named", 20.0)
    for name in ("mute", "shy"):
        (verdict,) = reward(["p"], [name], {})
        assert SAYS[name] in verdict.reason, "the process died"
    with pytest.raises(NotFinite, match="returned 1000000"):
        reward(["p"], ["huge"], {})


def test_what_cannot_be_printed_is_named_by_its_type() -> None:
    assert shown(10**5000).startswith("a int that cannot be printed") and shown("x" * 99, 3) == "'xx..."
    assert said(ValueError("a")) == "a"


# --------------------------------------------------------------------------------------------------------- methods


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("method.txt", "", "is no Python file to take the method 'x' from"),
        ("method.py", "def x(task):\n    return list(task)\n", "x raised TypeError: .* at method.py, line 2; fix it"),
        ("method.py", "def x(task):\n    return 5\n", "x gives a int where a Method is wanted"),
        ("method.py", "import sys\nsys.exit(3)\n", "raised SystemExit: 3 at method.py, line 2; fix it"),
        ("method.py", "x = 5", "has no function 'x'"),
    ],
)
def test_a_method_that_is_none(name: str, text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=words):
        find(f"{tmp_path / name}:x").build(source("sort"))
    with pytest.raises(ValueError, match="there is no file '/path' to take the method 'x' from"):
        find("/path:x")


def test_what_a_method_of_a_program_raises_is_raised() -> None:
    def mine(task: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        entry_of(mine).build(source("sort"))


# --------------------------------------------------------------------------------------------------- state of recipes

WHOLE = {"name": "a", "what": "sft", "same": {}, "done": True}


@pytest.mark.parametrize(
    "state",
    [
        [],
        {"a": 1},
        {"a": None},
        {"a": {"name": "a"}},
        {"a": {**WHOLE, "other": 1}},
        *({"a": {**WHOLE, key: 1}} for key in ("name", "what", "same", "done", "product", "numbers", "before")),
        *({"a": {**WHOLE, key: "1"}} for key in ("seconds", "tokens", "after")),
    ],
    ids=str,
)
def test_a_damaged_state_of_a_recipe_is_a_sentence(state: Any, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(state))
    with pytest.raises(
        ValueError, match=r"state\.json is damaged, it holds no list of stages .*; restore it from a copy"
    ):
        State(tmp_path)
    (tmp_path / FILE).write_text(json.dumps({"a": WHOLE}))
    assert State(tmp_path).stages["a"].done


def test_a_damaged_line_of_steps_counts_nothing(tmp_path: Path) -> None:
    line = {"stage": "a", "session": "s", "done": 1, "tokens": 5, "seconds": 1.5}
    lines = [
        json.dumps(line),
        "1}",
        "{}",
        "[]}",
        "[" * 5000 + "}",
        json.dumps({**line, "done": []}),
        json.dumps(line)[:9],
    ]
    (tmp_path / STEPS).write_text("\n".join(lines))
    state = State(tmp_path)
    assert state.spent("a") == (1.5, 5)
    state.forget("a")
    assert (tmp_path / STEPS).read_text() == ""


# ------------------------------------------------------------------------------------ configurations of other libraries

VERL = {"algorithm.adv_estimator": "gae", "data.train_batch_size": 8, "actor_rollout_ref.actor.ppo_mini_batch_size": 4}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({**VERL, "actor_rollout_ref.actor.ppo_mini_batch_size": 0}, "ppo_mini_batch_size is 0; it must be a whole"),
        ({**VERL, "data.train_batch_size": 0}, "data.train_batch_size is 0; it must be a whole number of at least 1"),
        ({**VERL, "data.train_batch_size": "x"}, "data.train_batch_size is 'x'"),
        ({"num_generations": 0}, "the number of replies to a prompt is 0"),
        ({"num_generations": float("inf")}, "the number of replies to a prompt is inf"),
        ({"num_generations": 8, "per_device_train_batch_size": [8]}, r"per_device_train_batch_size is \[8\]"),
        ({"num_generations": 8, "gradient_accumulation_steps": 0}, "gradient_accumulation_steps is 0"),
        ({"num_generations": 8, "generation_batch_size": "x"}, "generation_batch_size is 'x'"),
        ({"num_generations": 8, "save_steps": "x"}, "save_steps is 'x'"),
        ({"num_generations": 8, "max_prompt_length": 9, "max_completion_length": "x"}, "longest reply is 'x'"),
        ({"num_generations": 8, "reward_funcs": ["a.py:f"], "reward_weights": 5}, "cannot be translated"),
    ],
    ids=str,
)
def test_numbers_that_nothing_can_be_computed_from(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        translate(given)
    assert translate(VERL).options["minibatches"] == 2 and translate(VERL).options["prompts"] == 8


# -------------------------------------------------------------------------------------------------------------- tools


def odd(a: [1], b: "Nowhere", c: "int", d: int | None = None, e: list[int] = (), f: 5 = 1, g=2) -> str:  # type: ignore # noqa
    """Odd annotations."""
    return ""


def test_odd_annotations_of_tools_are_strings() -> None:
    properties = Tool.of(odd).schema["function"]["parameters"]["properties"]
    kinds = {name: one.get("type", "any") for name, one in properties.items()}
    assert all(kinds[name] in ("string", "any") for name in "abfg") and kinds["c"] == "integer"
    assert Tool.of(partial(odd, 1)).name == "partial"

    def given(x: int | None, y: dict[str, int], z: bytes) -> str:
        return ""

    kinds = {
        name: one.get("type", "any")
        for name, one in Tool.of(given).schema["function"]["parameters"]["properties"].items()
    }
    assert kinds == {"x": "any", "y": "object", "z": "string"}  # x: anyOf integer and null


@pytest.mark.parametrize(("function", "words"), [(dict, "does not say its parameters"), (abs, "by its place only")])
def test_a_function_that_cannot_be_called_by_names_is_no_tool(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Tool.of(function)


def test_an_mcp_server_gets_no_keys_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "secret")
    words, environment = read_command("python server.py --key=1")
    assert words == ["python", "server.py", "--key=1"] and "PATH" in environment
    assert "secret" not in environment.values()
    words, environment = read_command("KEY=$MY_API_KEY MODE='a b' python server.py")
    assert words == ["python", "server.py"] and environment["KEY"] == "secret" and environment["MODE"] == "a b"
    for wrong in ("", "KEY=1"):
        with pytest.raises(ValueError, match="names no command"):
            read_command(wrong)
    with pytest.raises(ValueError, match="close its quotation marks"):
        read_command("python 'server.py")


SERVER = """
import os
try:
    from mcp.server.mcpserver import MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import FastMCP as Server

server = Server("odd")

@server.tool(name=os.environ.get("TOOL", "keys"))
def keys() -> str:
    "What it was given."
    return ",".join(sorted(os.environ))

server.run(transport="stdio")
"""


def test_a_server_neither_sees_keys_nor_shadows_a_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mcp")
    monkeypatch.setenv("MY_API_KEY", "secret")
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "mine.py").write_text("def keys(a: int) -> str:\n    'Mine.'\n    return ''\n")
    server = f"{sys.executable} {tmp_path / 'server.py'}"
    (tool,) = read_tools(f"mcp:GIVEN=1 {server}")
    assert "MY_API_KEY" not in tool.function() and "GIVEN" in tool.function()
    with pytest.raises(ValueError, match=r"two tools are called 'KEYS', one of .*mine\.py:keys and one of mcp:"):
        read_tools(f"{tmp_path / 'mine.py'}:keys,mcp:TOOL=KEYS {server}")
    with pytest.raises(ValueError, match="calls a tool 'two words'; names are letters"):
        read_tools(f"mcp:TOOL='two words' {server}")


@pytest.mark.parametrize(
    "text", ["error return without exception set", "<f> returned NULL without setting an exception"]
)
def test_a_library_that_does_not_look_at_malloc_is_out_of_memory(text: str) -> None:
    """As numpy did under ulimit -v 900000."""
    assert sentence(SystemError(text)) == MEMORY and sentence(SystemError("bad argument")) is None
