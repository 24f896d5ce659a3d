"""Environments and tools: conventions, failures, episodes as traces, and any method on them."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast, make_model

from burnish.compose.multi_turn import played
from burnish.compose.rewards import with_scorers
from burnish.core.loop import loop
from burnish.core.method import Method
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Trace
from burnish.envs import Failure, GuardedEnv, Outcome, Tool, ToolEnv, parse_calls
from burnish.envs.named_tools import read_tools
from burnish.envs.protocol import read_observation, read_outcome
from burnish.methods.table import find
from burnish.models.load import load_chat
from burnish.models.template import Style
from burnish.rewards.read import named_shapes
from burnish.rollout.play import play
from burnish.tasks.environment import EnvSource
from burnish.tasks.resolve import resolve_task
from burnish.tasks.table import source
from burnish.tasks.task_set import with_tools


class Count:
    """Says how many steps there were; pays 1 for each, ends after three."""

    def reset(self, task: Any, seed: int) -> str:
        self.steps, self.seed = 0, seed
        return f"seed {seed % 100}"

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return f"step {self.steps}", 1.0, self.steps == 3, False, {}

    def key(self) -> str:
        return f"{self.seed}/{self.steps}"


def groups_of(method: Method, model: Path, steps: int = 1) -> tuple[dict[str, float], list[Group]]:
    report = next(loop(method, build_cast(method, model), replace(SMALL, max_new_tokens=4), steps=steps))
    return report.metrics, report.groups["main"]


def test_a_step_may_answer_in_any_convention() -> None:
    assert read_outcome(("o", 1, True)) == Outcome("o", 1.0, True)
    assert read_outcome(("o", 0.5, False, {"a": 1})) == Outcome("o", 0.5, info={"a": 1})
    assert read_outcome(("o", None, False, True, {})) == Outcome("o", None, truncated=True)
    assert read_observation(("o", {})) == "o"
    message = {"role": "tool", "content": "4"}
    assert read_observation(message) == (message,) == read_observation([message])
    for nonsense in (("o", float("nan"), False), ("o", "much", False), (3, 1.0, False), "o", ("o", 1.0), None):
        with pytest.raises(ValueError, match="must"):
            read_outcome(nonsense)


def test_what_raises_hangs_or_talks_nonsense_fails_with_its_reason() -> None:
    class Odd:
        def __init__(self, kind: str) -> None:
            self.kind = kind

        def reset(self) -> str:
            return "x"

        def step(self, action: str) -> Any:
            if self.kind == "raises":
                raise RuntimeError("no such room")
            if self.kind == "exits":
                raise SystemExit(0)
            if self.kind == "hangs":
                time.sleep(5)
            return {"nonsense": 1}

    for kind, why in (
        ("raises", r"step\(\) of the environment raised RuntimeError: no such room at [\w.]+, line \d+"),
        ("exits", "raised RuntimeError: SystemExit"),
        ("hangs", "had not answered after 0.2 s"),
        ("talks", "step returned"),
    ):
        env = GuardedEnv(lambda kind=kind: Odd(kind), seconds=0.2)  # type: ignore[misc]
        assert env.observed(env.begin_reset(None, 0)) == "x"
        with pytest.raises(Failure, match=why):
            env.outcome(env.begin_step("?"))


def test_async_environments_and_long_observations() -> None:
    class Slow:
        async def reset(self, seed: int) -> str:
            return "begin"

        async def step(self, action: str) -> tuple[str, float, bool]:
            return "x" * 50_000, 1.0, False

    env = GuardedEnv(Slow)
    assert env.observed(env.begin_reset(None, 0)) == "begin"
    outcome = env.outcome(env.begin_step("a"))
    assert isinstance(outcome.observation, str) and outcome.observation.endswith("[30000 more characters]")
    assert env.cut == 30_000


def test_an_episode_is_a_trace_of_turns(small_model: Path) -> None:
    method = played(find("grpo").build(EnvSource(Count), n=2), EnvSource(Count))
    metrics, groups = groups_of(method, small_model)
    assert metrics["reward"] == 3.0 and metrics["turns"] == 3.0 and metrics["episode_ended"] == 1.0
    first, second = groups[0].traces
    assert [turn.author for turn in first.turns] == ["task", "policy", "env", "policy", "env", "policy"]
    assert first.turn_scores["reward"][1::2] == [1.0, 1.0, 1.0] and first.scores["reward"] == 3.0
    assert first.note["keys"] == second.note["keys"] and len(first.note["keys"]) == 3  # one seed for the group
    assert groups[1].traces[0].note["keys"] != first.note["keys"]


def test_tokens_of_the_environment_are_not_trained_on(small_model: Path) -> None:
    class Uneven(Count):
        def step(self, action: str) -> Any:
            observation, _, done, cut, info = super().step(action)
            return observation, float(len(action) % 5), done, cut, info

    source_ = EnvSource(Uneven)
    _, groups = groups_of(played(find("grpo").build(source_, n=4), source_), small_model)
    assert any(float(t.streams["adv"][t.by("policy")].abs().sum()) > 0 for group in groups for t in group.traces)
    for trace in (trace for group in groups for trace in group.traces):
        claimed = trace.streams.get("claim:pg", trace.by("policy"))
        assert not bool((claimed & trace.by("env", "task")).any())


def test_failures_are_counted_and_all_of_them_end_the_run(small_model: Path) -> None:
    made: list[int] = []

    class Every(Count):
        def __init__(self) -> None:
            made.append(1)
            self.bad = len(made) % 2 == 0

        def step(self, action: str) -> Any:
            if self.bad:
                raise RuntimeError("broken")
            return super().step(action)

    models = build_cast(find("grpo").build(source("sort"), n=2), small_model)
    tasks = [EnvSource(Every).task("train", 0)]
    step = Step(Clock(0, 1), models, replace(SMALL, max_new_tokens=4))
    [group] = play(4).call(tasks, step)
    failed = [trace for trace in group.traces if "failed" in trace.note]
    assert len(failed) == 2 and step.notes.values()["env_failures"] == 2
    assert failed[0].note["why"].endswith("RuntimeError: broken at test_environments.py, line 147")

    class Never(Count):
        def step(self, action: str) -> Any:
            raise RuntimeError("broken")

    with pytest.raises(ValueError, match="every environment failed; the first: step"):
        play(2).call([EnvSource(Never).task("train", 0)], step)


def test_a_class_in_a_file_is_a_task(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "class Env:\n"
        '    """My corridor."""\n'
        "    @staticmethod\n"
        "    def tasks(split):\n"
        "        return [{'goal': i} for i in range(3 if split == 'train' else 1)]\n"
        "    def reset(self, task, seed):\n"
        "        self.goal = task['goal']\n"
        "        return f'goal {self.goal}'\n"
        "    def step(self, action):\n"
        "        return 'ok', 0.0, True\n"
    )
    found = resolve_task(f"{file}:Env")
    assert (found.name, found.summary, found.size("train"), found.size("heldout")) == ("Env", "My corridor.", 3, 1)
    assert found.task("train", 2).prompt == ({"role": "user", "content": "goal 2"},)
    with pytest.raises(ValueError, match=r"environment '.*:Room'.*has no function 'Room'; it has Env"):
        resolve_task(f"{file}:Room")


def test_a_shape_follows_what_environments_pay(small_model: Path) -> None:
    source_ = EnvSource(Count)
    method = played(find("grpo").build(source_, n=2), source_)
    metrics, _ = groups_of(with_scorers(method, [], named_shapes("overlong(1.0)", source_)), small_model)
    assert metrics["reward/overlong"] < 0 and metrics["reward"] == pytest.approx(3 + metrics["reward/overlong"])


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def test_a_tool_has_the_schema_of_its_signature() -> None:
    schema = Tool.of(add).schema["function"]
    assert schema["name"] == "add" and schema["description"] == "Add two numbers."
    assert schema["parameters"] == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 1}},
        "required": ["a"],
    }


def test_calls_are_parsed_in_the_formats_of_the_families() -> None:
    call = '{"name": "add", "arguments": {"a": 1}}'
    for text in (
        f"I will add.<tool_call>\n{call}\n</tool_call>",
        f"[TOOL_CALLS] [{call}]",
        f"<|python_tag|>{call}",
        call.replace("arguments", "parameters"),
        '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>',
    ):
        assert [(c.name, c.arguments, c.problem) for c in parse_calls(text)] == [("add", {"a": 1}, "")], text
    assert parse_calls("The answer is 4.") == [] and parse_calls('{"a": 1}') == []
    assert len(parse_calls(f"<tool_call>{call}</tool_call><tool_call>{call}</tool_call>")) == 2
    for broken in ("<tool_call>{</tool_call>", "<tool_call>[1]</tool_call>", "<tool_call>", "[TOOL_CALLS] [{]"):
        assert [bool(c.problem) for c in parse_calls(broken)] == [True], broken
    assert parse_calls("<tool_call>" + "[" * 100_000 + "</tool_call>")[0].problem


def test_tools_answer_and_mistakes_are_told() -> None:
    env = ToolEnv([Tool.of(add)])
    said = env.step('<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>')
    [answer] = said.observation  # type: ignore[misc]
    assert {**answer, "tool_call_id": ""} == {"role": "tool", "name": "add", "tool_call_id": "", "content": "3"}
    assert len(answer["tool_call_id"]) == 9 and not said.over
    for arguments, why in (
        ('{"c": 1}', "has no argument 'c'"),
        ("{}", "needs the argument 'a'"),
        ('{"a": "x"}', 'add: a is "x", but must be an integer'),
    ):
        [answer] = env.step(f'<tool_call>{{"name": "add", "arguments": {arguments}}}</tool_call>').observation  # type: ignore[misc]
        assert answer["content"].startswith("error") and why in answer["content"]
    assert env.step("It is 3.").terminated and env.failed == 3


def test_a_verifier_judges_the_last_reply_of_an_episode_with_tools(small_model: Path) -> None:
    tooled = with_tools(source("sort"), [Tool.of(add)])
    method = played(find("grpo").build(tooled, n=2), tooled)
    assert [atom.name for phase in method.phases for atom in phase.score] == ["verify(sort)"]
    _, groups = groups_of(method, small_model)
    for trace in groups[0].traces:
        assert trace.tags == {"tools"} and "correct" in trace.scores and trace.turns[-1].author == "policy"
    assert groups[0].task.given["tools"][0]["function"]["name"] == "add"


WITH_TOOLS = (
    "{% if tools %}<|user|>{% for t in tools %}{{ t | tojson }}{% endfor %}<|end|>{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}<|user|><tool_response>{{ m.content }}</tool_response><|end|>"
    "{% else %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def test_a_tools_output_continues_the_tokens_of_the_whole_conversation(tmp_path: Path) -> None:
    """Prompt, sampled reply and observation are, token by token, what the template makes of the conversation."""
    chat = load_chat(make_model(tmp_path), Style(WITH_TOOLS))
    asked = [{"role": "user", "content": "1 + 2?"}]
    answered = [{"role": "tool", "content": "3"}]
    reply = "<tool_call>{}</tool_call>"
    mine = torch.cat([chat._conversation(asked), chat.reply(reply), chat.observation(answered)])
    whole = chat._conversation([*asked, {"role": "assistant", "content": reply}, *answered])
    assert mine.tolist() == whole.tolist()


def test_read_tools_names_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("def one(x: str) -> str:\n    return x\n")
    assert [tool.name for tool in read_tools(f"{tmp_path}/t.py:one")] == ["one"]
    with pytest.raises(ValueError, match="tool '.*:two'.*has no function 'two'; it has one"):
        read_tools(f"{tmp_path}/t.py:two")


def test_traces_of_play_keep_their_types(small_model: Path) -> None:
    models = build_cast(find("grpo").build(source("sort"), n=2), small_model)
    step = Step(Clock(0, 1), models, replace(SMALL, max_new_tokens=4, turns=2))
    [group] = play(1).call([EnvSource(Count).task("train", 0)], step)
    [trace] = group.traces
    assert isinstance(trace, Trace) and trace.note["stopped"] == "turns" and not trace.note["done"]


def test_async_environments_wait_together_without_threads_of_their_own() -> None:
    """All of them reach the same place before any goes on: side by side, in the one loop; no call holds a thread."""
    waiting: list[asyncio.Event] = []

    class Meets:
        async def reset(self, seed: int) -> str:
            waiting.append(asyncio.Event())
            if len(waiting) == 200:
                for event in waiting:
                    event.set()
            await waiting[-1].wait()
            return "met"

    before = threading.active_count()
    envs = [GuardedEnv(Meets, 20.0) for _ in range(200)]
    calls = [env.begin_reset(None, 0) for env in envs]
    assert [env.observed(call) for env, call in zip(envs, calls, strict=True)] == ["met"] * 200
    assert threading.active_count() < before + 8
