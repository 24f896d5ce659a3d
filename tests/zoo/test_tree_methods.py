"""Methods on search trees over replies and episodes: numbers by hand, limits, and what they learn from."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, Tossed, build_cast, coin, credited
from gradients import gradient

from burnish.core.method import Method
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Trace
from burnish.learn.maths.preference import dpo_logistic
from burnish.rollout.search_tree import Node
from burnish.rollout.searched import EpisodeTrees
from burnish.select.siblings import sibling_pairs
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded
from burnish.zoo.meds3 import after_the_first, meds3
from burnish.zoo.r_mcts import SCALE, Memory, merge, on_scale, r_mcts, r_mcts_distill, surprise
from burnish.zoo.rest_mcts import rest_mcts
from burnish.zoo.rlm_blueprint import rlm_blueprint
from burnish.zoo.step_apo import step_apo, step_apo_loss

SORT = rewarded(source("sort"), coin)
GAMES = Tossed(source("guess"))


def traces_of(built: Method, model: Path, step: int = 0) -> list[Trace]:
    [(_, groups, _)] = credited(built, build_cast(built, model), step=step)
    return [trace for group in groups for trace in group.traces]


# --------------------------------------------------------------------------------------------- rest_mcts, rlm_blueprint


@pytest.mark.parametrize("make", [rest_mcts, meds3, rlm_blueprint])
def test_right_paths_are_imitated_and_labelled_steps_are_fitted_once(make: Any, small_model: Path) -> None:
    traces = traces_of(make(SORT, rounds=4, width=3, step_by="after:a"), small_model)
    seen: set[int] = set()
    assert any("right" in trace.tags for trace in traces) and any("right" not in trace.tags for trace in traces)
    for trace in traces:
        fitted, imitated = trace.streams["claim:step"], trace.streams["claim:sft"]
        assert ("right" in trace.tags) or not bool(imitated.any())
        assert not bool((fitted & trace.streams["label"].isnan()).any())
        for i, (turn, start, end) in enumerate(trace.spans()):
            if turn.author == "policy" and bool(fitted[start:end].any()):
                assert fitted[start:end].nonzero()[:, 0].tolist() == [end - start - 1], "at the end of a step"
                assert id(turn) not in seen, "a step that paths share counts once"
                assert float(trace.streams["label"][end - 1]) == pytest.approx(trace.turn_scores["value"][i])
                seen.add(id(turn))
    assert seen


def test_an_end_of_rest_mcts_is_worth_one_if_it_is_right_and_of_x1_one_or_minus_one(small_model: Path) -> None:
    for make, wrong in ((rest_mcts, None), (rlm_blueprint, -1.0)):
        for trace in traces_of(make(SORT, rounds=4, width=3), small_model):
            value = trace.turn_scores["value"][-1]
            if "right" in trace.tags:
                assert value == pytest.approx(1.0)
            elif wrong is not None:
                assert value == wrong
            else:
                assert value < 0.5 or math.isnan(value)


def test_without_imitation_the_policy_gets_no_gradient(small_model: Path) -> None:
    built = rest_mcts(SORT, rounds=3, width=3, sft=0.0, saves="prm")
    assert built.product == "prm"
    models = build_cast(built, small_model)
    [(phase, groups, step)] = credited(built, models)
    gradient(groups, phase.learn, step)
    grads = [p.grad for p in models["policy"].module.parameters() if p.grad is not None]
    assert not any(bool(grad.any()) for grad in grads)
    assert any(bool(p.grad.any()) for p in models["prm"].module.parameters() if p.grad is not None)


# ---------------------------------------------------------------------------------------------------------------- meds3


def test_the_weakest_step_after_the_first_decides() -> None:
    """.9, .7, .8: min(.7, .8) = .7; a reply of one step is scored by it."""
    assert after_the_first([0.9, 0.7, 0.8], "min") == 0.7 and after_the_first([0.9], "min") == 0.9
    assert after_the_first([0.1, 0.5, 0.8], "prod") == pytest.approx(0.4)
    assert after_the_first([0.1, 0.5, 0.8], "last") == 0.8


# ------------------------------------------------------------------------------------------------------------- step_apo


def test_step_apo_by_hand() -> None:
    """pi = ref and values .75 and .25: -log s(-.5) = .974; equal values are DPO's ln 2."""
    zero = torch.zeros(1)
    assert float(step_apo_loss(zero, zero, zero + 0.75, zero + 0.25, 0.1)) == pytest.approx(0.974, abs=1e-3)
    ratios = torch.tensor([0.4]), torch.tensor([-1.2])
    same = step_apo_loss(*ratios, zero + 0.3, zero + 0.3, 0.1)
    assert torch.equal(same, dpo_logistic(*ratios, 0.1))


def test_the_weight_of_a_pair_is_the_sigmoid_of_what_is_missing() -> None:
    """dL/d lr_w = -beta s(V_w - V_l - beta (lr_w - lr_l)): .1 s(.5) = .0622 at pi = ref and a gap of .5."""
    ratio = torch.zeros(1, requires_grad=True)
    step_apo_loss(ratio, torch.zeros(1), torch.tensor([0.5]), torch.zeros(1), 0.1).backward()
    assert ratio.grad is not None and float(ratio.grad) == pytest.approx(-0.1 / (1 + math.exp(-0.5)))


def test_step_apo_compares_siblings_and_fits_every_node(small_model: Path) -> None:
    built = step_apo(SORT, rounds=5, width=3, warmup=0, sync=1)
    models = build_cast(built, small_model)
    _, (phase, groups, step) = credited(built, models)
    pairs = [(g.traces[a], g.traces[b]) for g in groups for a, b in g.pairs or ()]
    assert pairs
    for better, worse in pairs:
        assert better.turns[:-1] == worse.turns[:-1] and better.scores["reward"] > worse.scores["reward"]
    for trace in (trace for group in groups for trace in group.traces):
        last = torch.arange(len(trace)) >= len(trace) - len(trace.turns[-1])
        assert torch.equal(trace.streams["claim:reply"], last)
        assert trace.streams["claim:step"].nonzero()[:, 0].tolist() == [len(trace) - 1]
        assert float(trace.streams["worth"][0]) == pytest.approx(trace.scores["reward"])
    assert float(gradient(groups, phase.learn, step).abs().max()) > 0


def test_siblings_without_a_pair_stay_where_they_are_asked_to() -> None:
    from test_agent_search import siblings
    from test_agent_turns import TASK, nothing

    [group] = sibling_pairs(0.2, alone=True).call([Group(TASK, siblings())], nothing())
    assert group.pairs == [(0, 1), (0, 2)] and len(group.traces) == 4
    [group] = sibling_pairs(9.0, alone=True).call([Group(TASK, siblings())], nothing())
    assert group.pairs == [] and len(group.traces) == 4


# --------------------------------------------------------------------------------------------------------------- r_mcts


def test_the_verdict_is_a_mean_over_five_words() -> None:
    """Certain of the first: 1. All alike: (1 + .5 + .2 - .2 - 1) / 5 = .1. "done" as likely as "failed": 0."""
    low = -1e9
    assert on_scale([0.0, low, low, low, low]) == pytest.approx(1.0)
    assert on_scale([-3.0] * 5) == pytest.approx(0.1) and len(SCALE) == 5
    assert on_scale([-2.0, low, low, low, -2.0]) == pytest.approx(0.0)


def test_the_largest_surprise_is_reflected_on() -> None:
    """Q .8 where the state was worth .3: -.5. Q .5, worth .6: +.1."""
    root: Node[str] = Node("")
    a = root.add("a")
    a.visits, a.value, a.facts["own"] = 3, 0.5, 0.6
    b = a.add("b")
    b.visits, b.value, b.facts["own"] = 2, 0.8, 0.3
    found = surprise([root, a, b])
    assert found is not None and found[0] is b and found[1] == pytest.approx(-0.5)
    assert surprise([root]) is None


def test_the_memory_gives_the_nearest_and_survives_a_checkpoint() -> None:
    memory = Memory(2)
    for prompt, said in (("old", "gone"), ("find the red key", "look up"), ("sell the boat", "ask more")):
        memory.add(prompt, said)
    assert memory.nearest("find the blue key", 1) == ["look up"] and memory.nearest("find the blue key", 0) == []
    assert sorted(memory.nearest("x", 9)) == ["ask more", "look up"], "the newest two are kept"
    again = Memory(2)
    again.load_state_dict(memory.state_dict())
    assert again.nearest("sell a boat", 2) == memory.nearest("sell a boat", 2)


def test_priors_are_shares_of_the_proposals_that_led_to_a_state(small_model: Path) -> None:
    built = r_mcts(GAMES, reflections=0)
    step = Step(Clock(0, 1), build_cast(built, small_model), SMALL)
    trees = EpisodeTrees(built.phases[0].draw.call(step)[:1], step)
    trees.expand(trees.roots, 4)
    root = trees.roots[0]
    twin = root.children[0]
    root.children.append(twin)
    merge(root)
    assert sum(child.prior for child in root.children) == pytest.approx(1.0) and twin.prior >= 0.4
    assert len({child.key for child in root.children}) == len(root.children)


def test_reflections_reach_the_prompts_of_later_episodes(small_model: Path) -> None:
    built = r_mcts(GAMES, rounds=3, width=2, value="reward", reflections=1, threshold=0.0)
    [memory] = built.phases[0].rollout.state
    assert isinstance(memory, Memory)
    models = build_cast(built, small_model)
    step = Step(Clock(0, 1), models, SMALL)
    tasks = built.phases[0].draw.call(step)
    memory.add(tasks[0].prompt if isinstance(tasks[0].prompt, str) else "guess", "Begin in the middle.")
    [group, *_] = built.phases[0].rollout.call(tasks[:1], step)
    assert models["policy"].chat.text(group.traces[0].turns[0].tokens).count("Begin in the middle.") == 1
    assert group.task is tasks[0], "the group keeps the task as it was drawn"
    assert len(memory.rows) >= 1
    off = r_mcts_distill(GAMES, rounds=3, width=2, value="reward")
    [other] = off.phases[0].rollout.state
    credited_groups = list(credited(off, build_cast(off, small_model)))
    assert credited_groups and other.state_dict() == {"rows": []}


def test_an_action_is_the_one_with_the_largest_value(small_model: Path) -> None:
    """Actions that a coin pays: of four proposals one is paid in 15 of 16 states, of one in half of them."""
    built = r_mcts(GAMES, rounds=6, width=4, value="reward", reflections=0)
    models = build_cast(built, small_model)
    step = Step(Clock(0, 1), models, type(SMALL)(prompts=16, max_new_tokens=6, turns=1, token_budget=4096))
    tasks = built.phases[0].draw.call(step)
    found = [group.traces[0].scores["reward"] for group in built.phases[0].rollout.call(tasks, step)]
    plain = r_mcts(GAMES, rounds=1, width=2, value="reward", reflections=0)
    once = [group.traces[0].scores["reward"] for group in plain.phases[0].rollout.call(tasks, step)]
    assert sum(found) >= 13 and sum(once) <= 11
