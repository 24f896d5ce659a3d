"""Particle filtering: weights by hand, replies that pause after a step, and the limits."""

from __future__ import annotations

import math
import shutil

import pytest
import torch
from conftest import SMALL, build_cast, scoring_model

from burnish.core.method import Method
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Sampling, Turn
from burnish.models.build import Models
from burnish.models.known_models import resolve
from burnish.rollout.particles import delimiter
from burnish.rollout.starts import Open, Reply, Start, sample_key, write_on
from burnish.tasks.table import source
from burnish.zoo.particle_filtering import _resample, odds, particle_filter
from burnish.zoo.particle_filtering import particles as rollout_of

TASK = source("add")


def head(chance: float) -> float:
    return math.log(chance / (1 - chance))


def test_weights_by_hand() -> None:
    """Chances .8 and .5: odds of 4 and 1, so .8 and .2; at spread 2 their roots, 2 and 1."""
    assert odds([head(0.8), head(0.5)], 1.0) == pytest.approx([0.8, 0.2])
    assert odds([head(0.8), head(0.5)], 2.0) == pytest.approx([2 / 3, 1 / 3])
    assert odds([3.0, -50.0, 1.0], 1e9) == pytest.approx([1 / 3] * 3)
    assert odds([3.0, -50.0, 1.0], 1e-3) == pytest.approx([1.0, 0.0, 0.0])
    assert odds([0.0, math.nan, 0.0], 1.0) == pytest.approx([1 / 3] * 3), "no number counts as the lowest"
    assert odds([math.nan] * 2, 1.0) == [0.5, 0.5]


def test_steps_are_named() -> None:
    assert [delimiter(steps) for steps in ("lines", "paragraphs", "after:;\\n")] == ["\n", "\n\n", ";\n"]
    with pytest.raises(ValueError, match="particles grow by lines, paragraphs or after:TEXT"):
        delimiter("sentences")


@pytest.fixture(scope="module")
def cast(tmp_path_factory: pytest.TempPathFactory) -> tuple[Method, Models]:
    start = tmp_path_factory.mktemp("tiny") / "tiny"
    shutil.copytree(resolve("tiny"), start)
    built = particle_filter(TASK, prm=str(scoring_model(start)), n=4)
    return built, build_cast(built, start)


def step_of(built: Method, models: Models) -> Step:
    return Step(Clock(0, 1), models, SMALL, phase=built.phases[0].name, product=built.product)


def grown(built: Method, models: Models, **how: float) -> list[Group]:
    step = step_of(built, models)
    rollout = rollout_of(**{"n": 4, **how})  # type: ignore[arg-type]
    return rollout.call(built.phases[0].draw.call(step), step)


def test_a_reply_pauses_after_a_step_and_goes_on_as_it_would_have(cast: tuple[Method, Models]) -> None:
    built, models = cast
    step = step_of(built, models)
    task = built.phases[0].draw.call(step)[0]
    start = Start(task, (Turn(models["policy"].chat.prompt(task), "task"),), 0, 7, settings=Sampling(0.8))
    whole, paused = Reply(start), Reply(start, until=("\n",))
    write_on([whole], step)
    texts = []
    while not paused.stopped:
        write_on([paused], step)
        assert paused.said is not None
        texts.append(models["policy"].chat.text(paused.said.tokens))
    assert len(texts) > 1 and all(text.endswith("\n") for text in texts[:-1])
    assert [text.count("\n") for text in texts[:-1]] == list(range(1, len(texts)))
    assert whole.said is not None and paused.said is not None
    assert torch.equal(paused.said.tokens, whole.said.tokens) and paused.stopped == whole.stopped


def test_one_particle_is_a_plain_sample(cast: tuple[Method, Models]) -> None:
    built, models = cast
    step = step_of(built, models)
    tasks = built.phases[0].draw.call(step)
    for task, group in zip(tasks, grown(built, models, n=1), strict=True):
        turns = (Turn(models["policy"].chat.prompt(task), "task"),)
        alone = Reply(Start(task, turns, 0, sample_key(step.clock, task, 0, "particle"), settings=Sampling(0.8)))
        write_on([alone], step)
        assert torch.equal(group.traces[0].tokens, alone.tokens())


def test_the_likeliest_beginning_takes_over(cast: tuple[Method, Models]) -> None:
    """With weights that see only the best, all particles descend from one first line; with equal ones they do not."""
    built, models = cast

    def first_lines(spread: float) -> list[int]:
        chat = models["policy"].chat
        found = grown(built, models, n=6, spread=spread, temperature=1.5)
        return [len({chat.text(t.turns[1].tokens).split("\n")[0] for t in group.traces}) for group in found]

    assert max(first_lines(1e-6)) == 1 and max(first_lines(1e6)) > 1


def test_copies_of_a_particle_go_on_differently(cast: tuple[Method, Models]) -> None:
    """Of four copies of the best, the first keeps its noise and the others get their own; so do copies made later."""
    built, models = cast
    step = step_of(built, models)
    task = built.phases[0].draw.call(step)[0]
    prompt = (Turn(models["policy"].chat.prompt(task), "task"),)
    starts = [Start(task, prompt, i, 100 + i, settings=Sampling(3.0)) for i in range(4)]
    group = Open(task, [Reply(start) for start in starts])
    keys: set[int] = set()
    for time in (0, 1):
        assert _resample(group, [0.0, 0.0, 9.0, 0.0], 1e-3, time, step) == [9.0] * 4
        found = [reply.start.key for reply in group.replies]
        assert len(set(found)) == 4 and [reply.start.index for reply in group.replies] == [0, 1, 2, 3]
        assert time or found[0] == 102
        assert len(keys & set(found)) <= 1, "the first copy alone has a key that was there before"
        keys |= set(found)
    write_on(group.replies, step)
    assert len({tuple(reply.tokens().tolist()) for reply in group.replies}) > 1


def test_particles_have_their_last_scores_and_the_answer_the_highest(cast: tuple[Method, Models]) -> None:
    built, models = cast
    groups = grown(built, models)
    assert all(len(group.traces) == 4 and [t.index for t in group.traces] == list(range(4)) for group in groups)
    best = [max(trace.scores["prm"] for trace in group.traces) for group in groups]
    step = step_of(built, models)
    for part in (*built.phases[0].score, *built.phases[0].select):
        groups = part.call(groups, step)
    assert [group.traces[0].scores["prm"] for group in groups] == best
    assert all(len(group.traces) == 1 for group in groups)


def test_the_last_step_goes_to_the_end(cast: tuple[Method, Models]) -> None:
    built, models = cast
    assert all(trace.note["stopped"] for group in grown(built, models, most=1) for trace in group.traces)


def test_the_same_seed_grows_the_same(cast: tuple[Method, Models]) -> None:
    built, models = cast
    one, two = (grown(built, models) for _ in range(2))
    for a, b in zip(one, two, strict=True):
        assert all(torch.equal(x.tokens, y.tokens) for x, y in zip(a.traces, b.traces, strict=True))
