"""Environments of the package verifiers with tools, of both generations. Skipped where it is not installed."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL, build_cast

from burnish.compose.multi_turn import played
from burnish.core.loop import loop
from burnish.core.types import Turn
from burnish.methods.table import find
from burnish.models.known_models import TINY
from burnish.models.load import load_chat
from burnish.models.template import Style
from burnish.serve import ChatServer
from burnish.serve.asked import Answered
from burnish.serve.conversation import Conversations
from burnish.tasks.resolve import resolve_task
from burnish.tasks.source import Source
from burnish.tasks.task_set import task_set

TEMPLATE = (
    "{% if tools %}<|user|>{{ tools | length }} tools<|end|>{% endif %}{% for m in messages %}{% if m.role == 'tool' %}"
    "<|user|><tool_response>{{ m.content }}</tool_response><|end|>{% else %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c | tojson }}</tool_call>{% endfor %}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

V1 = """
import verifiers.v1 as vf
from verifiers.v1.mcp import SharedToolsetConfig, Toolset, ToolsetConfig

class Box(vf.State):
    opened: list[int] = []

class Data(vf.TaskData):
    secret: int = 0

class Boxes(Toolset[ToolsetConfig, Box]):
    async def setup_task(self, task):
        self.secret = task.secret

    @vf.tool
    async def open(self, number: int) -> str:
        \"\"\"Open a box.\"\"\"
        if number > 9:
            raise ValueError("there are ten boxes")
        self.state.opened = [*self.state.opened, number]
        return "gold" if number == self.secret else "empty"

class Signs(Toolset[SharedToolsetConfig, Box]):
    TOOL_PREFIX = None

    async def setup(self):
        self.greeting = "look in a box"

    @vf.tool
    def read(self, where: str = "door") -> str:
        \"\"\"Read a sign.\"\"\"
        return f"{where}: {self.greeting}, {len(self.state.opened)} opened"

class Find(vf.Task[Data, vf.TaskConfig, Box]):
    @classmethod
    def toolsets(cls, config):
        return [Boxes(ToolsetConfig())]

    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == str(self.data.secret))

    @vf.reward(weight=0.5)
    async def looked(self, trace: vf.Trace) -> float:
        return float(self.data.secret in trace.state.opened and len(trace.tool_messages) > 0)

    @vf.metric
    async def opened(self, trace: vf.Trace) -> float:
        return float(len(trace.state.opened))

    @vf.stop
    async def too_many(self, trace: vf.Trace) -> bool:
        return len(trace.state.opened) >= 3

class Hunt(vf.Taskset[Find, vf.TasksetConfig]):
    \"\"\"Find the gold.\"\"\"
    def load(self):
        for n in range(40):
            yield Find(Data(prompt=f"Hunt {n}: which box has gold?", secret=n % 10), self.config.task)

    @classmethod
    def toolsets(cls, config):
        return [Signs(SharedToolsetConfig())]

__all__ = ["Hunt"]
"""


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


@pytest.fixture
def hunt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    """A taskset of v1 with a toolset of its tasks and one that they share."""
    pytest.importorskip("verifiers.v1.mcp.toolset")
    (tmp_path / "hunt_for_tests.py").write_text(V1)
    monkeypatch.syspath_prepend(str(tmp_path))
    return resolve_task("verifiers:hunt_for_tests")


def test_the_tools_of_a_taskset_have_the_schemas_of_its_servers(hunt: Source) -> None:
    task = hunt.task("train", 0)
    described = {tool["function"]["name"]: tool["function"] for tool in task.given["tools"]}
    assert set(described) == {"read", "boxes_open"}  # verifiers' harnesses put the name of the server before it
    assert described["boxes_open"]["description"] == "Open a box."
    assert described["boxes_open"]["parameters"]["properties"]["number"]["type"] == "integer"
    assert described["boxes_open"]["parameters"]["required"] == ["number"]
    assert described["read"]["parameters"]["required"] == []


def test_episodes_call_the_tools_and_the_rewards_of_the_task_pay(hunt: Source) -> None:
    task = hunt.task("train", 0)
    secret = task.given["verifiers_task"].data.secret
    one, other = task.given["env"](), task.given["env"]()
    one.reset(), other.reset()
    [sign] = one.step(call("read", where="wall")).observation
    assert sign["content"] == "wall: look in a box, 0 opened"
    [empty, gold] = one.step(
        call("boxes_open", number=(secret + 1) % 10) + call("boxes_open", number=secret)
    ).observation
    assert (empty["content"], gold["content"]) == ("empty", "gold")
    assert other.step(call("read")).observation[0]["content"] == "door: look in a box, 0 opened"  # a state of its own
    assert one.step(call("read")).observation[0]["content"] == "door: look in a box, 2 opened"
    end = one.step(str(secret))
    assert end.terminated and end.reward == 1.5 and end.metrics() == {"opened": 2.0}
    assert other.step(str(secret)).reward == 1.0  # it never looked
    one.close(), other.close()


def test_errors_of_tools_are_answers_and_a_stop_ends_the_episode(hunt: Source) -> None:
    env = hunt.task("train", 0).given["env"]()
    env.reset()
    said = [
        env.step(text).observation[0]["content"]
        for text in (call("boxes_open", number=10), call("boxes_open"), call("boxes_open", number="x"), call("shut"))
    ]
    assert "there are ten boxes" in said[0] and all(text.startswith("error: ") for text in said)
    assert not env.step(call("boxes_open", number=7)).over
    end = env.step(call("boxes_open", number=8) + call("boxes_open", number=9))
    assert end.terminated and end.reward is not None


def test_grpo_plays_a_taskset_with_tools(hunt: Source, small_model: Path) -> None:
    method = played(find("grpo").build(hunt, n=2), hunt)
    settings = replace(SMALL, max_new_tokens=4, turns=2, env_timeout=30.0)
    report = next(loop(method, build_cast(method, small_model), settings, steps=1))
    assert report.metrics["reward"] >= 0 and "env_failures" not in report.metrics


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("Boxes(ToolsetConfig())", "Boxes(ToolsetConfig(url='http://127.0.0.1:9/mcp'))", "is a server at a URL"),
        ("    @vf.metric", "    async def setup(self, trace, runtime): ...\n\n    @vf.metric", "needs a sandbox"),
        ("self, trace: vf.Trace) -> bool", "self, asked: vf.Request) -> bool", "reads a request"),
    ],
)
def test_what_needs_a_harness_of_verifiers_is_refused(
    old: str, new: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("verifiers.v1.mcp.toolset")
    assert old in V1
    name = f"refused_{why.replace(' ', '_').lower()}"
    (tmp_path / f"{name}.py").write_text(V1.replace(old, new))
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match=why):
        resolve_task(f"verifiers:{name}")


V0 = """
import verifiers as vf
from datasets import Dataset

def add(a: int, b: int) -> int:
    \"\"\"Add two numbers.\"\"\"
    return a + b

def load_environment():
    rows = [{"question": f"{a} + {a}?", "answer": str(2 * a)} for a in range(20)]
    right = lambda completion, answer, **more: float(answer in str(completion[-1]["content"]))
    return vf.ToolEnv(tools=[add], dataset=Dataset.from_list(rows), rubric=vf.Rubric(funcs=[right]), max_turns=4)
"""


@pytest.mark.extras
def test_an_environment_before_v1_calls_its_tools_through_the_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replies are given here, in a model's place: two calls, then the answer. Everything else is verifiers'."""
    root = pytest.importorskip("verifiers")
    if not hasattr(root, "load_environment"):
        pytest.skip("this version of verifiers has v1 alone")
    (tmp_path / "adding_for_tests.py").write_text(V0)
    monkeypatch.syspath_prepend(str(tmp_path))
    source = task_set(resolve_task("verifiers:adding_for_tests"))
    assert source.agent is not None
    chat = load_chat(TINY, Style(TEMPLATE))
    talk, server = Conversations(chat), ChatServer()
    row: Mapping[str, Any] = source.task("train", 0).given
    answer = row["row"]["answer"]
    texts = [call("add", a=1, b=2), call("add", a=int(answer), b=0), f"It is {answer}."]

    def reply() -> None:
        for text in texts:
            question = server.questions.get(timeout=60)
            conversation = talk.at(question.asked)
            tokens = chat.reply(text)
            conversation.turns.append(Turn(tokens, "policy", parent=conversation.turns[-1]))
            question.answer.put(Answered(text, "stop", tokens.tolist(), [0.0] * len(tokens), [], []))

    thread = threading.Thread(target=reply)
    thread.start()
    paid = asyncio.run(source.agent.call(row, server.base_url(server.open()), server.token))  # type: ignore[operator]
    thread.join(60)
    server.end()
    assert paid == 1.0
    asked = [chat.tokenizer.decode(turn.tokens) for one in talk.all for turn in one.turns if turn.author == "env"]
    said = " ".join([*asked, *(chat.tokenizer.decode(one.turns[0].tokens) for one in talk.all)])
    assert "<tool_response>3</tool_response>" in said and f"<tool_response>{answer}</tool_response>" in said
