"""--opponent own: other seats have models that are trained, each by the method from what it says itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, make_model
from torch import Tensor

from burnish.compose.passes import Additions, composed
from burnish.compose.seats import Opponent, read_opponent
from burnish.core.learners import SEAT_MODEL
from burnish.core.loop import loop, run_phase
from burnish.core.method import Method
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group
from burnish.envs.protocol import Outcome
from burnish.learn.learn import Learn
from burnish.methods.table import find
from burnish.models.build import Models, build
from burnish.models.lora import Lora
from burnish.tasks.environment import EnvSource
from burnish.tasks.source import Source
from burnish.tasks.table import source
from burnish.tasks.task_set import with_opponent

SHORT = replace(SMALL, max_new_tokens=3, prompts=2)


class Words:
    """Two players speak in turn, two replies each; a reply earns the sum of its bytes, modulo 7."""

    seats = ("left", "right")

    def reset(self, seed: int) -> Any:
        self.made = 0
        return "left begins"

    def seat(self) -> str:
        return self.seats[self.made % 2]

    def step(self, action: str) -> Outcome:
        self.made += 1
        return Outcome(f"{self.seat()} sees {self.made}", float(sum(action.encode()) % 7), terminated=self.made == 4)


def own(name: str = "grpo", said: str = "own", task: Source | None = None, **given: Any) -> tuple[Method, Opponent]:
    who = read_opponent(said)
    played = with_opponent(task or EnvSource(Words), who.train, who.heldout)
    method = find(name).build(played, **{"n": 3, **given})
    return composed(method, Additions(name, played, who)), who


def built(method: Method, base: Path, settings: Settings = SHORT, rank: int | None = 4) -> Models:
    return build(method.models, base, settings, device="cpu", lora=Lora(rank) if rank else None)


def credited(method: Method, models: Models) -> tuple[list[Group], Step]:
    """The groups of a step, all stages passed up to learn."""
    step = Step(Clock(0, 10), models, SHORT)
    (phase,) = method.phases
    return run_phase(replace(phase, learn=Learn()), step, {}, []), step


def weights(models: Models, name: str) -> dict[str, Tensor]:
    return {key: p.detach().clone() for key, p in models[name].module.named_parameters() if p.requires_grad}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def learned(base: Path, keep: Callable[[Group], bool], rank: int | None = 4) -> dict[str, dict[str, Tensor]]:
    """The weights after a step that learns from the groups for which `keep` is true."""
    method, _ = own(beta=0.1)
    models = built(method, base, rank=rank)
    groups, step = credited(method, models)
    assert {group.task.given.get(SEAT_MODEL, "") for group in groups} == {"", "opponent"}
    method.phases[0].learn.call([group for group in groups if keep(group)], step)
    return {name: weights(models, name) for name in ("policy", "opponent")}


def of_policy(group: Group) -> bool:
    return SEAT_MODEL not in group.task.given


@pytest.mark.parametrize("rank", [4, None])
def test_no_seat_touches_the_gradient_of_another(small_model: Path, rank: int | None) -> None:
    """Learning from both seats moves each model as learning from its own groups alone does, in every bit."""
    nothing = learned(small_model, lambda group: False, rank)
    left = learned(small_model, of_policy, rank)
    right = learned(small_model, lambda group: not of_policy(group), rank)
    both = learned(small_model, lambda group: True, rank)
    assert same(left["opponent"], nothing["opponent"]) and same(right["policy"], nothing["policy"])
    assert not same(left["policy"], nothing["policy"]) and not same(right["opponent"], nothing["opponent"])
    assert same(both["policy"], left["policy"]) and same(both["opponent"], right["opponent"])


def test_a_seat_learns_as_the_policy_would_from_the_same_groups(small_model: Path) -> None:
    """Both begin with the same weights, so that the policy, given the seat's groups, moves to the seat's weights."""
    method, _ = own()
    models = built(method, small_model)
    groups, step = credited(method, models)
    theirs = [group for group in groups if not of_policy(group)]
    method.phases[0].learn.call(theirs, step)
    other, _ = own()
    alone = built(other, small_model)
    as_own = [replace(g, task=replace(g.task, given=dict(g.task.given, **{SEAT_MODEL: ""}))) for g in theirs]
    other.phases[0].learn.call(as_own, Step(Clock(0, 10), alone, SHORT))
    assert same(weights(alone, "policy"), weights(models, "opponent"))


def test_seats_share_the_frozen_weights_and_have_adapters_of_their_own(small_model: Path) -> None:
    models = built(own("ppo")[0], small_model)
    assert {"policy", "opponent", "critic", "opponent_critic"} <= {model.name for model in models}
    base = {name: {p.data_ptr() for p in models[name].module.parameters() if not p.requires_grad} for name in models_of}
    assert base["policy"] == base["opponent"] and base["policy"]
    own_weights = [p.data_ptr() for name in models_of for p in models[name].module.parameters() if p.requires_grad]
    assert len(own_weights) == len(set(own_weights)) > 0


models_of = ("policy", "opponent")


def test_metrics_tokens_and_critics_are_by_seat(small_model: Path) -> None:
    method, _ = own("ppo", "right=own")
    models = built(method, small_model)
    before = {name: weights(models, name) for name in ("critic", "opponent_right_critic")}
    report = next(loop(method, models, SHORT, steps=1))
    found = report.metrics
    assert found["opponent_right/reward"] != found["reward"] and "opponent_right/critic/grad_norm" in found
    assert all(not same(weights(models, name), before[name]) for name in before)
    groups = report.groups["main"]
    assert {g.task.given.get(SEAT_MODEL) for g in groups} == {None, "opponent_right"}
    assert all(set(t.authors()) == {"task", "policy", "env"} for g in groups for t in g.traces)
    assert models["opponent_right"].version == models["policy"].version == 1


def test_a_seat_may_start_from_another_model(small_model: Path, tmp_path: Path) -> None:
    """Of another shape; its reference and its held-out opponent are the weights that it began with."""
    other = make_model(tmp_path / "narrow", seed=3, hidden_size=16, intermediate_size=24)
    method, who = own("grpo", f"own({other})", beta=0.1)
    assert who.heldout == "opponent_start" and method.models["opponent_ref"].source == str(other)
    models = built(method, small_model)
    before = weights(models, "opponent")
    next(loop(method, models, SHORT, steps=1))
    assert not same(weights(models, "opponent"), before)
    assert models["opponent"].module.config.hidden_size == 16 != models["policy"].module.config.hidden_size


def test_what_cannot_be_learned_apart_is_refused() -> None:
    with pytest.raises(ValueError, match="remembers what was played"):
        own("archer", task=source("nim:1"))
    with pytest.raises(ValueError, match="samples more replies after the rollout"):
        own("dapo", task=source("nim:1"))
    with pytest.raises(ValueError, match="moves the weights by an update of its own"):
        own("trpo", task=source("nim:1"))
