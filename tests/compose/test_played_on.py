"""Episodes that outlive a step: all are learned from once, slow and long ones too; versions; resuming."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast

from burnish.compose.passes import Additions, composed
from burnish.compose.played_on import PlayedOn, waiting_in
from burnish.compose.seats import read_opponent
from burnish.core.method import Method
from burnish.core.state import State
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group
from burnish.methods.table import find
from burnish.models.build import Models
from burnish.models.known_models import TINY
from burnish.tasks.environment import EnvSource
from burnish.tasks.table import source
from burnish.tasks.task_set import with_opponent

STEPS = 6
LATE = 0.06  # seconds of a step of a slow episode


class Talk:
    """Half of the tasks have long, slow episodes: 4 turns with a wait in each. The others have one turn."""

    late = LATE

    def reset(self, task: Any, seed: int) -> str:
        self.long, self.turn = seed % 2 == 0, 0
        return f"{'long' if self.long else 'short'} {seed}"

    def step(self, action: str) -> tuple[str, float, bool]:
        self.turn += 1
        if self.long:
            time.sleep(self.late)
        return f"on {self.turn}", 1.0, self.turn == (4 if self.long else 1)


class Prompt(Talk):
    """The same without waiting."""

    late = 0.0


def run(kind: type, settings: Settings, steps: int = STEPS, seed: int = 0) -> tuple[list[list[Group]], Models, Method]:
    """The groups of each step; each step's weights have a version of their own."""
    tasks = EnvSource(kind, "talk")  # of one name, so that the two kinds have the same tasks
    asked = Additions("grpo", tasks, chunk=settings.chunk, waits=settings.train_when is not None)
    method = composed(find("grpo").build(tasks, n=2), asked)
    models = build_cast(method, TINY)
    models["policy"].chat.stops = (-1,)  # type: ignore[misc]  # no reply ends before its limit
    found = [one_step(method, models, settings, i, steps) for i in range(steps)]
    return found, models, method


def one_step(method: Method, models: Models, settings: Settings, i: int, steps: int = STEPS) -> list[Group]:
    models["policy"].version = i
    step = Step(Clock(i, steps), models, settings)
    [phase] = method.phases
    return phase.rollout.call(phase.draw.call(step), step)


def lengths(groups: list[Group]) -> Counter[int]:
    return Counter(sum(turn.author == "policy" for turn in group.traces[0].turns) for group in groups)


def test_slow_long_episodes_are_learned_from_as_often_as_they_are_drawn() -> None:
    """Steps end when half of the open groups are done, which the short ones are first. A rule that learns from those
    alone and drops the others would hardly see a long one: the first steps, counted alone, show it.
    """
    settings = replace(SMALL, prompts=6, max_new_tokens=4, train_when=0.5)
    found, _, method = run(Talk, settings)
    drawn, _, _ = run(Prompt, replace(settings, train_when=None))
    every = [group for groups in found for group in groups]
    assert sorted(group.task.key for group in every) == sorted(group.task.key for groups in drawn for group in groups)
    assert lengths(every) == lengths([group for groups in drawn for group in groups])
    first, share = lengths(found[0]), lengths([group for groups in drawn for group in groups])
    assert first[4] / first.total() < share[4] / share.total()  # the bias that dropping the rest would have
    assert len(found[0]) < 6 and len(found[-1]) >= 6  # the last step plays all to their end
    assert not waiting_in(method.phases[0])[0].groups
    for group in every:
        assert all(trace.scores["reward"] == next(iter(lengths([group]))) for trace in group.traces)


def test_a_chunk_lets_long_episodes_wait_and_each_token_has_its_version() -> None:
    """4 tokens a turn, 8 a step: an episode of 4 turns takes two steps, with 2 turns by the weights of each."""
    settings = replace(SMALL, prompts=4, max_new_tokens=4, chunk=8)
    found, _, _ = run(Prompt, settings, steps=3)
    again, _, _ = run(Prompt, settings, steps=3)
    for groups, twin in zip(found, again, strict=True):  # no clock on the wall decides anything
        assert [[t.tokens.tolist() for x in g.traces for t in x.turns] for g in groups] == [
            [t.tokens.tolist() for x in g.traces for t in x.turns] for g in twin
        ]
    seen = Counter[tuple[int, ...]]()
    for groups in found[:-1]:
        for trace in (trace for group in groups for trace in group.traces):
            said = [turn for turn in trace.turns if turn.author == "policy"]
            assert all(turn.versions is not None and len(set(turn.versions.tolist())) == 1 for turn in said)
            assert all(turn.logp is not None and len(turn.logp) == len(turn) for turn in said)
            seen[tuple(int(turn.versions[0]) for turn in said if turn.versions is not None)] += 1
    assert (0,) in seen and all(len(one) in (1, 4) for one in seen)
    assert (0, 0, 1, 1) in seen
    whole, _, _ = run(Prompt, replace(settings, chunk=None), steps=3)
    assert sum(map(len, whole)) == sum(map(len, found))


def test_weights_that_do_not_move_give_the_same_episodes_in_other_steps() -> None:
    settings = replace(SMALL, prompts=4, max_new_tokens=4, chunk=4)
    found, _, _ = run(Prompt, settings, steps=3)
    whole, _, _ = run(Prompt, replace(settings, chunk=None), steps=3)

    def told(steps: list[list[Group]]) -> dict[str, list[list[int]]]:
        groups = [group for groups in steps for group in groups]
        return {g.task.key: [torch.cat([t.tokens for t in x.turns]).tolist() for x in g.traces] for g in groups}

    assert told(found) == told(whole)


def test_a_resumed_run_plays_its_open_episodes_up_to_their_place_and_on() -> None:
    settings = replace(SMALL, prompts=4, max_new_tokens=4, chunk=4)
    straight, models, _ = run(Prompt, settings, steps=3)
    tasks = EnvSource(Prompt, "talk")
    asked = Additions("grpo", tasks, chunk=4)
    methods = [composed(find("grpo").build(tasks, n=2), asked) for _ in range(2)]
    first = one_step(methods[0], models, settings, 0, 3)
    state = json.loads(json.dumps(memory(methods[0]).state_dict()))  # what a checkpoint holds
    assert len(state["groups"]) == 4 - len(first) > 0
    memory(methods[1]).load_state_dict(state)
    resumed = [first, *(one_step(methods[1], models, settings, i, 3) for i in (1, 2))]
    for groups, twin in zip(straight, resumed, strict=True):
        assert [group.task.key for group in groups] == [group.task.key for group in twin]
        for one, other in zip(groups, twin, strict=True):
            for mine, its in zip(one.traces, other.traces, strict=True):
                assert mine.scores == its.scores and mine.note == its.note
                assert [t.tokens.tolist() for t in mine.turns] == [t.tokens.tolist() for t in its.turns]


def test_an_environment_that_does_not_repeat_itself_fails_its_episode_alone() -> None:
    class Moody(Prompt):
        """Says something else every time."""

        made = 0

        def reset(self, task: Any, seed: int) -> str:
            Moody.made += 1
            return super().reset(task, seed) + f" {Moody.made if self.long else ''}"

    settings = replace(SMALL, prompts=6, max_new_tokens=4, chunk=4)
    tasks = EnvSource(Moody)
    asked = Additions("grpo", tasks, chunk=4)
    methods = [composed(find("grpo").build(tasks, n=2), asked) for _ in range(2)]
    models = build_cast(methods[0], TINY)
    one_step(methods[0], models, settings, 0, 2)
    state: State = memory(methods[0]).state_dict()
    assert state["groups"]
    memory(methods[1]).load_state_dict(state)
    groups = one_step(methods[1], models, settings, 1, 2)
    failed = [trace for group in groups for trace in group.traces if trace.note["stopped"] == "failed"]
    assert failed and all("make reset(task, seed) repeat itself" in str(trace.note) for trace in failed)


def test_a_deadline_ends_a_step_and_the_episodes_go_on() -> None:
    class Slow(Talk):
        late = 0.4

    settings = replace(SMALL, prompts=4, max_new_tokens=4, step_deadline=0.2)
    tasks = EnvSource(Slow)
    method = composed(find("grpo").build(tasks, n=2), Additions("grpo", tasks, waits=True))
    models = build_cast(method, TINY)
    begun = time.monotonic()
    early = one_step(method, models, settings, 0, 2)
    assert time.monotonic() - begun < 1.2 and lengths(early).keys() <= {1}
    late = one_step(method, models, settings, 1, 2)
    assert len(early) + len(late) == 8 and 4 in lengths(late)


def test_episodes_of_two_models_wait_as_those_of_one_do() -> None:
    """With an opponent, too: all are learned from once, and weights that do not move give the same episodes."""

    class Turns(Prompt):
        seats = ("left", "right")

        def seat(self) -> str:
            return self.seats[self.turn % 2]

    def played(chunk: int | None) -> tuple[dict[str, list[list[int]]], int]:
        who = read_opponent("start")
        tasks = with_opponent(EnvSource(Turns, "talk"), who.train, who.heldout)
        method = composed(find("grpo").build(tasks, n=2), Additions("grpo", tasks, who, chunk=chunk))
        models = build_cast(method, TINY)
        found = [
            one_step(method, models, replace(SMALL, prompts=4, max_new_tokens=4, chunk=chunk), i, 3) for i in range(3)
        ]
        said = {g.task.key: [t.tokens.tolist() for x in g.traces for t in x.turns] for some in found for g in some}
        return said, len(found[0])

    whole, parts = played(None), played(4)
    assert whole[0] == parts[0] and len(whole[0]) == 12 and parts[1] < 4 == whole[1]


def test_what_cannot_wait_is_refused_in_a_sentence() -> None:
    for name, task in (("grpo", source("add")), ("sft", source("maze"))):
        with pytest.raises(ValueError, match="plays no episodes that could outlive a step"):
            composed(find(name).build(task), Additions(name, task, waits=True))


def memory(method: Method) -> PlayedOn:
    [found] = waiting_in(method.phases[0])
    return found
