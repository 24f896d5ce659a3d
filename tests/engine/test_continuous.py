"""Requests that arrive while others are decoded, and episodes that go on while other environments think."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL

from burnish.compare.meter import Meter, _CountedEngine
from burnish.core.roles import roles
from burnish.core.step import Step
from burnish.core.types import Clock, Group
from burnish.engine.feed import Ahead
from burnish.engine.local import Request, Sample
from burnish.engine.protocol import GenerateOptions
from burnish.engine.scheduler import PATIENCE
from burnish.engine.transformers_engine import TransformersEngine
from burnish.forward.accelerate import kernels
from burnish.models.build import build
from burnish.models.known_models import TINY
from burnish.rollout.play import play
from burnish.tasks.environment import EnvSource

LENGTHS = (3, 70, 12, 90, 5)
PROMPTS = [torch.randint(4, 200, (n,), generator=torch.Generator().manual_seed(n)) for n in LENGTHS]


@pytest.fixture(scope="module")
def policy(small_model: Path):
    return build(roles(), small_model, SMALL, device="cpu")["policy"]


class Trickle:
    """Hands out requests a few at a time: `sizes` of them at each call, 0 where nothing has arrived."""

    def __init__(self, requests: list[Request], sizes: list[int], rows: int = 4) -> None:
        self.left, self.sizes, self.rows, self.waited = list(requests), list(sizes), rows, 0

    def take(self, wait: bool) -> list[Request]:
        self.waited += wait
        size = self.sizes.pop(0) if self.sizes else len(self.left)
        if wait and self.left:
            size = max(1, size)
        new, self.left = self.left[:size], self.left[size:]
        return new


def requests(n: int = 20) -> list[Request]:
    return [Request(PROMPTS[k % 5], k, 1 + (k * 7) % 12, top_k=5 * (k == 13)) for k in range(n)]


@pytest.mark.parametrize("sizes", [[1, 0, 2, 0, 0, 3, 1], [5, 0, 5], [1] * 30], ids=str)
@pytest.mark.parametrize("engine", ["local", "transformers"])
def test_a_sample_does_not_depend_on_when_its_request_arrives(policy, sizes: list[int], engine: str) -> None:
    """Also where a prompt is longer than what was planned for, or one samples from a part of the vocabulary."""
    alone = [policy.generate([request])[0] for request in requests()]
    heard: dict[int, Sample] = {}
    used = policy.engine if engine == "local" else TransformersEngine(policy.engine.runner, policy.chat, policy.context)
    feed = Trickle(requests(), sizes)
    found = used.generate([], GenerateOptions(on_sample=lambda i, sample: heard.update({i: sample}), feed=feed))
    assert len(found) == 20 and sorted(heard) == list(range(20)) and feed.waited and not feed.left
    for i, (one, other) in enumerate(zip(found, alone, strict=True)):
        assert one.tokens.tolist() == other.tokens.tolist() == heard[i].tokens.tolist(), i
        assert torch.allclose(one.logp, other.logp, atol=1e-5) and one.stopped == other.stopped


def test_a_request_that_arrives_alone_waits_for_a_few_steps_only(policy) -> None:
    long, late = [Request(PROMPTS[0], k, 60) for k in range(20)], Request(PROMPTS[2], 99, 2)
    order: list[int] = []
    found = policy.generate([], on_sample=lambda i, _: order.append(i), feed=Trickle([*long, late], [20, 1], 24))
    shortest = min(len(sample.tokens) for sample in found[:20])
    assert shortest > PATIENCE + 2, "or the test says nothing"
    assert order[0] == 20


def test_requests_of_the_call_come_before_those_of_the_feed(policy) -> None:
    every = requests()
    found = policy.generate(every[:6], feed=Trickle(every[6:], [1, 1, 0, 2]))
    alone = [policy.generate([request])[0] for request in every]
    assert [s.tokens.tolist() for s in found] == [s.tokens.tolist() for s in alone]
    assert policy.generate([], feed=Trickle([], [])) == []


def test_room_is_planned_for_twice_the_prompt_within_the_context() -> None:
    one = [Request(torch.zeros(10, dtype=torch.long), 0, 8), Request(torch.zeros(4, dtype=torch.long), 1, 3)]
    assert Ahead.of(one, 5, 100) == Ahead(5, 28, 8)
    assert Ahead.of(one, 1, 20) == Ahead(2, 19, 8)


def test_a_meter_counts_what_arrives(policy) -> None:
    meter = Meter()
    counted = _CountedEngine(policy.engine, meter, 1)
    samples = counted.generate([], GenerateOptions(feed=Trickle(requests(6), [2, 1])))
    assert meter.spent.samples == 6 and meter.spent.sampled == sum(len(sample.tokens) for sample in samples)


class Sleepy:
    """Sleeps for a random time at each step; what it says and pays depends on the action alone."""

    longest = 0.0

    def reset(self, task: Any, seed: int) -> str:
        self.steps = 0
        return f"Say a number. Round {seed % 100}."

    def step(self, action: str) -> tuple[str, float, bool]:
        self.steps += 1
        time.sleep(self.longest * random.random())
        return f"{len(action)} letters: {action[:20]}", float(len(action) % 3), self.steps > 2 + len(action) % 3


def episodes(models: Any, env: type, tasks: int, n: int, **settings: Any) -> list[Group]:
    source = EnvSource(env)
    step = Step(Clock(0, 1), models, replace(SMALL, max_new_tokens=6, **settings))
    return play(n).call([source.task("train", i) for i in range(tasks)], step)


def said(groups: list[Group]) -> list[Any]:
    return [
        (
            trace.index,
            trace.scores,
            str(trace.turn_scores),
            trace.note,
            [(turn.author, turn.tokens.tolist(), None if turn.logp is None else turn.logp.tolist()) for turn in turns],
        )
        for group in groups
        for trace in group.traces
        for turns in [trace.turns]
    ]


@pytest.mark.skipif(kernels() is None, reason="plain torch rounds by the shape of a batch")
def test_traces_do_not_depend_on_how_long_environments_think(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, log-probs included: on the kernels that the embedded model runs in."""
    models = build(roles(), TINY, SMALL, device="cpu")
    found = []
    for longest in (0.0, 0.03):
        monkeypatch.setattr(Sleepy, "longest", longest)
        found.append(said(episodes(models, Sleepy, 3, 4)))
    assert found[0] == found[1]
    assert len({trace[3]["turns"] for trace in found[0]}) > 1  # episodes of different lengths


def test_an_episode_goes_on_while_another_environment_thinks(policy, small_model: Path) -> None:
    """The first environment answers its first step only when another episode has ended."""
    made: list[int] = []
    ended = threading.Event()

    class Waits:
        def __init__(self) -> None:
            made.append(1)
            self.number, self.steps = len(made), 0

        def reset(self, task: Any, seed: int) -> str:
            return "begin"

        def step(self, action: str) -> tuple[str, float, bool]:
            self.steps += 1
            if self.number % 2 and self.steps == 1 and not ended.wait(20):
                raise RuntimeError("nobody else went on")
            if self.steps == 4:
                ended.set()
            return "more", 0.0, self.steps == 4

    models = build(roles(), small_model, SMALL, device="cpu")
    [group] = episodes(models, Waits, 1, 4)
    assert [trace.note["stopped"] for trace in group.traces] == ["done"] * 4


def test_256_episodes_at_once(policy, small_model: Path) -> None:
    running: set[int] = set()
    most = [0]
    gate = threading.Barrier(256)

    class Counts:
        def reset(self, task: Any, seed: int) -> str:
            self.steps = 0
            return f"seed {seed % 10}"

        def step(self, action: str) -> tuple[str, float, bool]:
            self.steps += 1
            if self.steps == 1:
                running.add(id(self))
                most[0] = max(most[0], len(running))
                gate.wait(60)  # nobody answers before all have been asked
            return "more", 1.0, self.steps == 2

    models = build(roles(), small_model, SMALL, device="cpu")
    groups = episodes(models, Counts, 32, 8)
    assert most[0] == 256
    assert all(trace.scores["reward"] == 2.0 for group in groups for trace in group.traces)


def test_an_environment_that_hangs_ends_its_own_episode(small_model: Path) -> None:
    made: list[int] = []
    closed: list[int] = []
    free = threading.Event()

    class Hangs:
        def __init__(self) -> None:
            made.append(1)
            self.number, self.steps = len(made), 0

        def reset(self, task: Any, seed: int) -> str:
            if self.number == 2:
                free.wait(30)
            return "begin"

        def step(self, action: str) -> tuple[str, float, bool]:
            self.steps += 1
            if self.number == 3:
                free.wait(30)
            return "more", 1.0, self.steps == 3

        def close(self) -> None:
            closed.append(self.number)

    models = build(roles(), small_model, SMALL, device="cpu")
    [group] = episodes(models, Hangs, 1, 5, env_timeout=2.0)  # instance 1 made the prompt
    free.set()
    why = sorted(trace.note.get("why", "") for trace in group.traces)
    assert why == [
        "",
        "",
        "",
        *(f"{what}() of the environment had not answered after 2 s" for what in ("reset", "step")),
    ]
    assert sum(trace.scores["reward"] for trace in group.traces) == 9.0
    for _ in range(100):
        if len(closed) == len(made):
            break
        time.sleep(0.05)
    assert sorted(closed) == list(range(1, len(made) + 1))  # each once, the hung ones too
