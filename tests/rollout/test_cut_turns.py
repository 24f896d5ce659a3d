"""Episodes whose replies are cut at the longest length: the turn is closed by the environment, or ends the episode."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL, build_cast

from burnish.core.step import Step
from burnish.core.types import Clock, Task, Trace
from burnish.methods.table import find
from burnish.rollout import play
from burnish.rollout.hosted import hosted
from burnish.tasks.table import source

openai = pytest.importorskip("openai", reason="the client of the OpenAI protocol: pip install openai")
LONGEST = 2  # tokens of a reply: a random model of 300 tokens hardly ever ends one by then


class Asks:
    """It asks three times, pays 1 for each reply, and keeps what it heard."""

    heard: list[str] = []

    def reset(self) -> str:
        self.left = 3
        return "say something"

    def step(self, action: str) -> tuple[str, float, bool]:
        self.heard.append(action)
        self.left -= 1
        return "again", 1.0, not self.left


def step_with(model: Path, **more: Any) -> Step:
    models = build_cast(find("grpo").build(source("sort"), n=2), model)
    settings = {"max_new_tokens": LONGEST, "turns": 4, "env_timeout": 20.0, **more}
    return Step(Clock(0, 1), models, replace(SMALL, **settings))


def episode(model: Path, **more: Any) -> tuple[Trace, Step]:
    step = step_with(model, **more)
    task = Task("question", ({"role": "user", "content": "say something"},), {"env": Asks}, "k")
    [group] = play(1).call([task], step)
    return group.traces[0], step


def test_a_cut_turn_is_closed_by_the_environment(small_model: Path) -> None:
    trace, step = episode(small_model)
    chat = step.models["policy"].chat
    replies = [turn for turn in trace.turns if turn.author == "policy"]
    cut = [int(turn.tokens[-1]) not in chat.stops for turn in replies]
    assert len(replies) == 3 and any(cut[:-1]), "this seed must cut a turn that is followed"
    assert trace.note["cut"] == sum(cut) and step.notes.values()["cut_turns"] == sum(cut) / 3
    observed = chat.observation("again").tolist()
    following = [turn.tokens.tolist() for turn in trace.turns if turn.author == "env"]
    assert following == [(chat.closing.tolist() if was else []) + observed for was in cut[:-1]]
    for i, turn in enumerate(trace.turns):
        if turn.author == "policy" and i:
            assert turn.logp is not None and len(turn.logp) == len(turn) <= LONGEST


def test_or_it_ends_the_episode_once_it_was_answered(small_model: Path) -> None:
    trace, step = episode(small_model, cut_turn="end")
    replies = [turn for turn in trace.turns if turn.author == "policy"]
    assert trace.turns[-1] is replies[-1]
    assert trace.note["stopped"] == "cut" and not trace.note["done"] and trace.note["cut"] == 1
    assert trace.scores["reward"] == len(replies) < 3


def twice(task: dict[str, Any], base_url: str, api_key: str) -> float:
    client = openai.OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
    messages = [{"role": "user", "content": "say something"}]
    for _ in range(2):
        said = client.chat.completions.create(model="m", messages=messages)
        messages += [{"role": "assistant", "content": said.choices[0].message.content}]
        messages += [{"role": "user", "content": "again"}]
    return 1.0


def test_an_agent_of_its_own_reads_a_closed_turn(small_model: Path) -> None:
    step = step_with(small_model)
    chat = step.models["policy"].chat
    [group] = hosted(twice, 1).call([Task("question", "say", {}, "k")], step)
    [trace] = group.traces
    assert int(trace.turns[1].tokens[-1]) not in chat.stops, "this seed must cut the first turn"
    assert trace.turns[2].tokens.tolist() == chat.closing.tolist() + chat.observation("again").tolist()
    assert trace.note["cut"] >= 1 and step.notes.values()["cut_turns"] > 0


def test_or_is_told_that_its_conversation_has_ended(small_model: Path) -> None:
    why = []

    def refused(task: dict[str, Any], base_url: str, api_key: str) -> float:
        with pytest.raises(openai.BadRequestError) as caught:
            twice(task, base_url, api_key)
        why.append(str(caught.value))
        return 1.0

    [group] = hosted(refused, 1).call([Task("question", "say", {}, "k")], step_with(small_model, cut_turn="end"))
    assert "was cut at its longest length" in why[0] and len(group.traces[0].turns) == 2
