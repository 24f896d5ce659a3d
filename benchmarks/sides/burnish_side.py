"""burnish: its engine, its learner, and whole steps through its loop."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from worker import Turns

from burnish.core.loop import loop
from burnish.core.method import Method, method
from burnish.core.parts import chain
from burnish.core.randomness import key_of, rng
from burnish.core.roles import roles
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.credit.group import group_relative
from burnish.credit.streams import behaviour
from burnish.draw.tasks import prompts
from burnish.engine.local import LocalEngine, Request
from burnish.learn.learn import Learn, learn
from burnish.learn.mismatch import NAME as MISMATCH
from burnish.learn.norms import seq_mean
from burnish.learn.terms import pg_clip
from burnish.models.build import Models, build
from burnish.models.lora import Lora
from burnish.rollout.sample import sample
from burnish.score.verify import verify
from burnish.tasks.source import Source
from sides.problems import source_of

NEVER = -1  # no token has this id: no reply stops before its length


def cast_of(work: dict[str, Any], settings: Settings) -> Models:
    """The policy, with the optimiser that would train it."""
    lora = Lora(work["lora"]) if work.get("lora") else None
    return build(roles(), Path(work["model"]), settings, device=work["device"], lora=lora)


def settings_of(work: dict[str, Any]) -> Settings:
    """The run's own settings, and whatever the part sets about speed."""
    shared = {"prompts": work.get("prompts_a_step", 1), "max_new_tokens": work.get("max_new", 1), "lr": 1e-6}
    return Settings(**{**shared, **work.get("settings", {})})


def _engine(work: dict[str, Any]) -> LocalEngine:
    """The policy's engine, with no token that ends a reply."""
    policy = cast_of(work, settings_of(work))["policy"]
    policy.chat.stops = (NEVER,)  # type: ignore[misc]
    policy.working.weights()
    assert isinstance(policy.engine, LocalEngine)
    policy.engine.remembers = False  # these samples are not trained on
    return policy.engine


def _requests(prompts: list[list[int]], group: int, lengths: list[int]) -> list[Request]:
    texts = [torch.tensor(ids) for ids in prompts]
    return [Request(texts[row // group], key_of("benchmark", row), length) for row, length in enumerate(lengths)]


def generation(work: dict[str, Any], turns: Turns) -> None:
    """Sample replies of given lengths."""
    engine, requests = _engine(work), _requests(work["prompts"], work["group"], work["lengths"])
    while turns.begin():
        samples = engine.generate(requests)
        turns.end(samples=len(samples), sampled_tokens=sum(len(found.tokens) for found in samples))


def sweep(work: dict[str, Any], turns: Turns) -> None:
    """Many batches, one after the other in every turn, each with its own seconds."""
    engine = _engine(work)
    batches = [_requests(at["prompts"], at["group"], at["lengths"]) for at in work["points"]]
    while turns.begin():
        seconds, tokens = [], 0
        for requests in batches:
            start = turns.lap()
            tokens += sum(len(found.tokens) for found in engine.generate(requests))
            seconds.append(turns.lap() - start)
        turns.end(sampled_tokens=tokens, points=seconds)


def grpo(source: Source, group: int) -> Method:
    """GRPO without the penalty: the policy alone, as the peer's default is."""
    return method(
        draw=prompts(source),
        rollout=sample(group),
        score=verify(source),
        credit=chain(group_relative(), behaviour()),
        learn=Learn(pg_clip(0.2, norm=seq_mean)),
        models=roles(),
    )


def step(work: dict[str, Any], turns: Turns) -> None:
    """Whole GRPO steps: draw, sample, score, credit, learn."""
    settings = settings_of(work)
    reports = loop(grpo(source_of(work), work["group"]), cast_of(work, settings), settings, steps=1 << 20)
    while turns.begin():
        some = [next(reports) for _ in range(work["steps_a_turn"])]
        seconds = turns.lap()
        traces = [t for report in some for groups in report.groups.values() for group in groups for t in group.traces]
        rooms = {name: round(sum(report.seconds[name] for report in some), 6) for name in some[0].seconds}
        turns.end(
            seconds,
            mismatch=max(report.metrics[MISMATCH] for report in some),
            samples=len(traces),
            prompt_tokens=sum(len(trace.turns[0]) for trace in traces),
            sampled_tokens=sum(len(trace.turns[-1]) for trace in traces),
            trained_tokens=sum(int(trace.streams["claim:pg"].sum()) for trace in traces),
            rewarded=sum(trace.scores["reward"] for trace in traces) / len(traces),
            rooms=rooms,
        )


def _given(work: dict[str, Any]) -> list[Group]:
    """Groups whose replies are given: random tokens of the asked lengths, credited so that every one
    teaches something.
    """
    dice = rng("benchmark", "replies")
    usual = -math.log(work["vocabulary"])  # the log-prob of a token that a model with random weights samples
    groups = []
    for g, ids in enumerate(work["prompts"]):
        start = Turn(torch.tensor(ids), "task")
        traces = []
        for i in range(work["group"]):
            length = work["lengths"][g * work["group"] + i]
            tokens = torch.tensor([dice.randrange(2, work["vocabulary"]) for _ in range(length)])
            trace = Trace((start, Turn(tokens, "policy", torch.full((length,), usual), parent=start)), i)
            said = trace.by("policy")
            trace.streams["claim:pg"] = said
            trace.streams["adv"] = torch.where(said, 1.0 if (g + i) % 2 else -1.0, float("nan"))
            trace.streams["old"] = torch.where(said, usual, float("nan"))
            traces.append(trace)
        groups.append(Group(Task("question", "", {}, f"given-{g}"), traces))
    return groups


def training(work: dict[str, Any], turns: Turns) -> None:
    """The learner alone: one policy-gradient update on given replies."""
    settings = settings_of(work)
    models, groups, plan = cast_of(work, settings), _given(work), Learn(pg_clip(0.2, norm=seq_mean))
    tokens = sum(len(trace) for group in groups for trace in group.traces)
    number = 0
    while turns.begin():
        learn(groups, plan, Step(Clock(number, 1 << 20), models, settings))
        number += 1
        turns.end(samples=len(work["lengths"]), processed_tokens=tokens)
