"""The sampling settings on turns: recorded when a turn is sampled, and read wherever its tokens are scored."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SMALL, build_cast, coin, credited, doubled
from torch import Tensor

from burnish.compose.chunked import chunked
from burnish.core.loop import loop
from burnish.core.method import Method, method
from burnish.core.parts import Rollout, chain
from burnish.core.roles import frozen, roles
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Sampling, Trace, Turn, how_drawn
from burnish.core.types_json import group_from_record, group_to_record
from burnish.credit.group import group_relative
from burnish.credit.streams import old, ref, streams
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn, accumulate
from burnish.learn.mismatch import NAME as MISMATCH
from burnish.learn.terms import entropy_bonus, pg_reinforce
from burnish.models.build import Models
from burnish.rollout.sample import greedy, join, prefixed, sample
from burnish.score.verify import verify
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded
from burnish.zoo.segment_po import tree
from burnish.zoo.semi_offline_rl import filled

TASK = rewarded(source("sort"), coin)


def rolled(rollout: Rollout, models: Models, sampling: Sampling | None = None) -> list[Group]:
    step = Step(Clock(0, 10), models, replace(SMALL, sampling=sampling))
    return rollout.call(prompts(TASK).call(step), step)


def settings_of(groups: list[Group], author: str = "policy") -> set[Sampling | None]:
    return {turn.settings for g in groups for t in g.traces for turn in t.turns if turn.author == author}


def two_temperatures(learn: Learn | None = None) -> Method:
    """Replies at 0.5 and at 2 in one group, and one at 0.5 after a demonstrated beginning."""
    hot, begun = sample(2, temperature=2.0, tag="hot"), prefixed(0.3, 0.6, temperature=0.5)
    return method(
        draw=prompts(TASK),
        rollout=join(sample(2, temperature=0.5), hot, begun),
        score=verify(TASK),
        credit=group_relative(),
        learn=learn or Learn(pg_reinforce(), entropy_bonus(coef=0.1)),
        models=roles(ref=frozen("policy")),
    )


@pytest.fixture
def models(small_model: Path) -> Models:
    return build_cast(two_temperatures(), small_model)


def test_what_is_sampled_carries_how(models: Models) -> None:
    run = Sampling(0.7, 5, 0.9, 0.01)
    drawn = rolled(sample(2), models, run)
    assert settings_of(drawn) == {run}
    assert settings_of(rolled(sample(2, temperature=0.3), models, run)) == {Sampling(0.3)}
    assert settings_of(drawn, "task") == {None}
    assert settings_of(rolled(greedy(), models)) == {Sampling(0.0)}
    assert settings_of(rolled(tree(2, 2, 3), models, run)) == {run}
    begun = rolled(prefixed(0.3, 0.6, temperature=0.9), models)
    assert settings_of(begun) == {Sampling(0.9)} and settings_of(begun, "demo") == {None}
    fills = rolled(filled("demo", 2, 0.5), models, Sampling(0.8))
    assert settings_of(fills) == {Sampling(0.8)} and settings_of(fills, "static") == {None}


def test_settings_survive_a_record_and_old_records_have_none(models: Models) -> None:
    run = Sampling(0.7, 0, 0.9, as_drawn=True)
    group = rolled(sample(1), models, run)[0]
    record = json.loads(json.dumps(group_to_record(group)))
    read = group_from_record(record)
    assert settings_of([read]) == {run}
    kept, again = (one.traces[0].turns[-1].allowed for one in (group, read))
    assert kept is not None and again is not None
    assert torch.equal(kept.ids, again.ids) and torch.equal(kept.sizes, again.sizes)
    for turn in record["traces"][0]["turns"]:
        del turn["settings"]
    assert settings_of([group_from_record(record)]) == {None}


def test_settings_survive_chunks_and_their_checkpoint(models: Models) -> None:
    in_chunks = chunked(two_temperatures())
    (phase,), small = in_chunks.phases, replace(SMALL, chunk=3)
    tasks = phase.draw.call(Step(Clock(0, 10), models, small))
    assert phase.rollout.call(tasks, Step(Clock(0, 10), models, small)) == []
    (waiting,) = phase.rollout.state
    state = json.loads(json.dumps(waiting.state_dict()))
    for record in state["groups"]:  # as version 0.1 wrote them
        for how in record["how"]:
            del how["min_p"]
    waiting.load_state_dict(state)
    finished = phase.rollout.call([], Step(Clock(9, 10), models, small))
    assert settings_of(finished) == {Sampling(0.5), Sampling(2.0)}


def test_temperatures_of_masked_tokens() -> None:
    prompt = Turn(torch.tensor([1, 2]), "task")
    said = Turn(torch.tensor([3]), "policy", parent=prompt, settings=Sampling(0.5))
    more = Turn(torch.tensor([4, 5]), "policy", parent=said, settings=Sampling(0.0))
    trace = Trace((prompt, said, more))
    at = [torch.tensor([False, True, True, True, False])]
    heats = how_drawn([trace], at).temperature
    assert isinstance(heats, np.ndarray) and heats.tolist() == [1.0, 0.5, 1.0]  # given, sampled, greedy
    heats = how_drawn([trace], at, given_at=0.7).temperature
    assert isinstance(heats, np.ndarray) and heats.tolist() == [0.7, 0.5, 1.0]
    assert how_drawn([trace], [torch.arange(5) == 2]).temperature == 0.5
    assert how_drawn([trace], [torch.zeros(5, dtype=torch.bool)]).temperature == 1.0


def gradient(models: Models, plan: Learn, groups: list[Group], step: Step) -> Tensor:
    models["policy"].optimiser.zero()
    accumulate(groups, plan, step)
    return torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()]).clone()


@pytest.mark.parametrize("budget", [4096, 60])
def test_a_batch_of_several_temperatures_is_the_slow_loop(budget: int, small_model: Path) -> None:
    """One turn at a time, each at the temperature of its own; demonstrated tokens at 1."""
    on = ("policy", "demo")
    built = two_temperatures(Learn(pg_reinforce(on=on), entropy_bonus(coef=0.1, on=on)))
    models = doubled(build_cast(built, small_model))
    ((phase, groups, step),) = credited(built, models, replace(SMALL, token_budget=budget))
    fast = gradient(models, phase.learn, groups, step)
    models["policy"].optimiser.zero()
    traces = [trace for group in groups for trace in group.traces]
    claimed = sum(int(trace.by(*on).sum()) for trace in traces)
    for trace in traces:
        for turn, start, end in trace.spans():
            if turn.author not in on:
                continue
            mask = torch.zeros(len(trace), dtype=torch.bool)
            mask[start:end] = True
            heat = 1.0 if turn.settings is None else turn.settings.temperature
            out = models["policy"].outputs([trace.tokens], [mask], {"logp", "entropy"}, heat)
            advantage = (trace.streams["adv"][mask] * out["logp"]).sum() / len(traces)
            (-advantage - 0.1 * out["entropy"].sum() / claimed).backward()
    slow = torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()])
    assert float((fast - slow).norm() / slow.norm()) < 1e-9


def test_streams_are_at_the_temperature_of_each_turn(models: Models) -> None:
    groups, step = rolled(two_temperatures().phases[0].rollout, models), Step(Clock(0, 10), models, SMALL)
    chain(old(), ref()).call(groups, step)
    for trace in (trace for group in groups for trace in group.traces):
        mine, said = trace.by("policy"), trace.turns[-1].logp
        assert said is not None
        assert torch.allclose(trace.streams["old"][mine], said, atol=1e-5)
        assert torch.allclose(trace.streams["ref"][mine], said, atol=1e-5)
        streams("policy", logp="forced", logp_temperature=1.0).call(groups, step)
        assert not torch.allclose(trace.streams["forced"][mine], said, atol=1e-2)


def test_sampler_and_trainer_agree_at_every_temperature_by_default(small_model: Path) -> None:
    built = two_temperatures()
    report = next(loop(built, build_cast(built, small_model), SMALL, steps=1))
    assert report.metrics[MISMATCH] < 1e-5
    forced = two_temperatures(Learn(pg_reinforce(), logp_temperature=1.0))
    report = next(loop(forced, build_cast(forced, small_model), SMALL, steps=1))
    assert report.metrics[MISMATCH] > 0.1


def test_the_old_option_is_gone() -> None:
    with pytest.raises(TypeError, match="temperature"):
        Learn(pg_reinforce(), temperature=0.7)  # type: ignore[call-arg]
