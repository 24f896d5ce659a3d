"""Values from sampled continuations: numbers derived by hand, and what each method becomes without its idea."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from conftest import SMALL, build_cast, credited, doubled
from test_values import ASKED, STEP, TASK, assert_close, of_policy, trace
from torch import tensor

from burnish.core.step import Step
from burnish.core.types import Clock, Group, Trace, Turn
from burnish.credit.gae import whiten
from burnish.learn.maths.regression import advantage_regression
from burnish.rollout.branch import lines
from burnish.zoo.direct_advantage_po import apart, direct_advantage_po, step_advantage, success_rates
from burnish.zoo.segment_po import node_values, segment_advantages, spo_chain, spo_tree, tree_advantages, uncertain

# ----------------------------------------------------------------------------------------------------------- segments


def probed_group() -> Group:
    """A reply of 6 tokens with cuts at positions 3 and 5 of the trace, two probes from each; its own score is 1."""
    reply = trace(
        ("task", 2), ("policy", 6), index=0, scores={"reward": 1.0}, note={"cuts": [3, 5]}, tags=frozenset({"sample"})
    )
    probes = [
        trace(
            ("task", 2),
            ("policy", 4),
            index=1 + k,
            scores={"reward": score},
            note={"of": 0, "at": at},
            tags=frozenset({"probe"}),
        )
        for k, (at, score) in enumerate([(3, 0.0), (3, 0.5), (5, 1.0), (5, 0.5)])
    ]
    return Group(ASKED, [reply, *probes])


def test_segment_advantages_by_hand() -> None:
    """V(3) = 1/4, V(5) = 3/4, own score 1: tokens 3, 4 get 1/2, tokens 5, 6, 7 get 1/4, token 2 before
    the first cut 0.
    """
    group = probed_group()
    segment_advantages().call([group], STEP)
    assert group.traces[0].streams["adv"][2:].tolist() == [0.0, 0.5, 0.5, 0.25, 0.25, 0.25]
    assert all(torch.isnan(t.streams["adv"]).all() for t in group.traces[1:])
    success_rates().call([group], STEP)
    rate = group.traces[0].streams["rate"]
    assert rate[[3, 5]].tolist() == [0.25, 0.75] and int((~rate.isnan()).sum()) == 2


def test_cut_points_by_hand() -> None:
    """p = .99 .5 .95 .1 .2 .3: uncertain below 0.9 at 1, 3, 4, 5; every second: 1, 4. Lines begin at 0 and after a
    newline.
    """
    turn = Turn(tensor([10, 5, 10, 5, 5, 10]), "policy", tensor([0.99, 0.5, 0.95, 0.1, 0.2, 0.3]).log())
    chat = SimpleNamespace(text=lambda tokens: "\n" if tokens.tolist() == [10] else "x")
    assert uncertain(0.9, 2)(turn, chat) == [1, 4]
    assert lines(turn, chat) == [0, 1, 3]


def test_spo_chain_values_are_those_of_its_probes_and_telescope(small_model: Path) -> None:
    """Along a reply the segments' advantages sum to its score minus the value at its first cut; probes
    are not trained.
    """
    built = spo_chain(TASK, n=2, probes=3, interval=3)
    models = build_cast(built, small_model)
    step = Step(Clock(0, 10), models, SMALL)
    phase = built.phases[0]
    groups = phase.score.call(phase.rollout.call(phase.draw.call(step), step), step)
    segment_advantages().call(groups, step)
    for group in groups:
        for t in (t for t in group.traces if "sample" in t.tags):
            mine = [p for p in group.traces if p.note.get("of") == t.index and "probe" in p.tags]
            assert len(mine) == 3 * len(t.note["cuts"])
            for p in mine:
                assert torch.equal(p.tokens[: p.note["at"]], t.tokens[: p.note["at"]])
                assert len(p.turns[-1]) <= SMALL.max_new_tokens
            first = [p.scores["reward"] for p in mine if p.note["at"] == t.note["cuts"][0]]
            total = sum(float(t.streams["adv"][at]) for at in t.note["cuts"])
            assert total == pytest.approx(t.scores["reward"] - sum(first) / len(first), abs=1e-6)
    for _, found, _ in credited(built, models):
        assert not any(bool(t.streams["claim:pg"].any()) for g in found for t in g.traces if "probe" in t.tags)


def test_spo_chain_whitens_over_the_tokens_it_trains(small_model: Path) -> None:
    built = spo_chain(TASK, n=4, probes=2)
    for _, groups, _ in credited(built, build_cast(built, small_model)):
        traces = [t for g in groups for t in g.traces]
        values = torch.cat([t.streams["adv"][t.streams["claim:pg"]] for t in traces])
        old = torch.cat([t.streams["old"][t.streams["claim:pg"]] for t in traces])
        assert float(values.mean()) == pytest.approx(0, abs=1e-5)
        assert float(values.std(unbiased=False)) == pytest.approx(1, abs=1e-3)
        assert bool((old < math.log(0.9)).all())


def small_tree() -> list[Trace]:
    """Root -> a (ends, score 1) and b; b -> c (0), d (1/2)."""
    root = Turn(torch.arange(2), "task")
    a, b = Turn(torch.arange(2), "policy", parent=root), Turn(torch.arange(3), "policy", parent=root)
    c, d = Turn(torch.arange(1), "policy", parent=b), Turn(torch.arange(1), "policy", parent=b)
    paths = [((root, a), 1.0), ((root, b, c), 0.0), ((root, b, d), 0.5)]
    return [Trace(turns, i, {"reward": r}, tags=frozenset({"tree"})) for i, (turns, r) in enumerate(paths)]


def test_tree_advantages_by_hand() -> None:
    """V(b) = 1/4, V(root) = (1 + 1/4)/2 = 5/8 (children, not leaves: 1/2). A: a 3/8, b -3/8, c -1/4, d 1/4."""
    traces = small_tree()
    assert node_values(traces, "reward")[id(traces[0].turns[0])] == 0.625
    tree_advantages().call([Group(ASKED, traces)], STEP)
    assert traces[0].streams["adv"][2:].tolist() == [0.375, 0.375]
    assert traces[1].streams["adv"][2:].tolist() == [-0.375, -0.375, -0.375, -0.25]
    assert traces[2].streams["adv"][2:].tolist() == [-0.375, -0.375, -0.375, 0.25]


def test_a_shared_segment_counts_once_in_the_whitening() -> None:
    """Tokens a a b b b c d with A = 3/8, -3/8, -1/4, 1/4: mean -3/56, deviation sqrt(362)/56.

    So a 24, b -18, c -11, d 17, each over sqrt(362). Counted once for each leaf, b would have six tokens and the mean
    would be -3/20.
    """
    traces = small_tree()
    tree_advantages().call([Group(ASKED, traces)], STEP)
    whiten(where=lambda t: t.by("policy")).call([Group(ASKED, traces)], STEP)
    root = math.sqrt(362)
    assert traces[0].streams["adv"][2:].tolist() == pytest.approx([24 / root] * 2)
    assert traces[1].streams["adv"][2:].tolist() == pytest.approx([-18 / root] * 3 + [-11 / root])
    assert traces[2].streams["adv"][2:].tolist() == pytest.approx([-18 / root] * 3 + [17 / root])


def test_spo_tree_whitens_over_the_tokens_it_trains(small_model: Path) -> None:
    built = spo_tree(TASK, branch=3, depth=2, segment=4, below=1.0)
    for _, groups, _ in credited(built, build_cast(built, small_model)):
        values = torch.cat([t.streams["adv"][t.streams["claim:pg"]] for g in groups for t in g.traces])
        assert float(values.mean()) == pytest.approx(0, abs=1e-5)
        assert float(values.std(unbiased=False)) == pytest.approx(1, abs=1e-3)


def test_a_tree_of_depth_one_is_relative_to_the_group(small_model: Path) -> None:
    """Children of the root alone: A_i = r_i - mean r, before whitening; and shared turns are trained once."""
    built = spo_tree(TASK, branch=4, depth=1)
    models = build_cast(built, small_model)
    step = Step(Clock(0, 10), models, SMALL)
    phase = built.phases[0]
    groups = phase.score.call(phase.rollout.call(phase.draw.call(step), step), step)
    tree_advantages().call(groups, step)
    for group in groups:
        mean = sum(t.scores["reward"] for t in group.traces) / 4
        assert [float(t.streams["adv"][-1]) for t in group.traces] == pytest.approx(
            [t.scores["reward"] - mean for t in group.traces]
        )


def test_a_tree_shares_turns_obeys_the_limit_and_trains_each_turn_once(small_model: Path) -> None:
    built = spo_tree(TASK, branch=3, depth=2, segment=4, below=1.0)
    for _, groups, _ in credited(built, build_cast(built, small_model)):
        for group in groups:
            claimed: dict[int, int] = {}
            for t in group.traces:
                assert sum(len(turn) for turn in t.turns[1:]) <= SMALL.max_new_tokens
                assert len(t.turns) == 2 or len(t.turns[1]) == 4
                for turn, start, end in t.spans():
                    claimed[id(turn)] = claimed.get(id(turn), 0) + int(t.streams["claim:pg"][start:end].any())
            assert max(claimed.values()) == 1
            assert len({id(t.turns[1]) for t in group.traces}) == 3


# -------------------------------------------------------------------------------------------------- direct advantages


def test_advantage_regression_by_hand() -> None:
    """A = .02, beta = .01, log-ratio .5: (2 - .5)^2 / 2 = 1.125. At log-ratio A / beta it is 0."""
    assert advantage_regression(tensor([0.5, 2.0]), tensor([0.02, 0.02]), 0.01).tolist() == pytest.approx([1.125, 0.0])


def test_candidates_are_apart_and_their_advantages_sum_to_zero() -> None:
    """Chances .2, .2 (the same reply), .6: one of the equals goes; advantages -.2, .2. A span below 0.5 drops the
    state.
    """
    made = [trace(("task", 1), ("ref", 2), scores={"chance": c}) for c in (0.2, 0.2, 0.6)]
    made[2].turns = (made[2].turns[0], Turn(tensor([7, 7]), "ref", parent=made[2].turns[0]))
    group = Group(ASKED, list(made))
    assert apart(0.5, score="chance").call([Group(ASKED, list(made))], STEP) == []
    kept = apart(0.1, score="chance").call([group], STEP)
    assert kept[0].traces == [made[0], made[2]] and all("apart" in t.tags for t in kept[0].traces)
    step_advantage("chance").call(kept, STEP)
    assert [float(t.streams["gain"][0]) for t in kept[0].traces] == pytest.approx([-0.2, 0.2])


def test_direct_advantage_at_the_reference_is_a_policy_gradient_over_steps(small_model: Path) -> None:
    """pi = ref: the gradient is -(A / beta) grad of the step's log-prob, mean over candidates."""
    built = direct_advantage_po(TASK, solutions=1, completions=2, candidates=4, least=0.0, beta=0.02)
    models = doubled(build_cast(built, small_model))
    phase, groups, step = list(credited(built, models))[1]
    found = of_policy(models, groups, phase.learn, step)
    models["policy"].optimiser.zero()
    traces = [t for g in groups for t in g.traces]
    for t in traces:
        logp = models["policy"].outputs([t.tokens], [t.by("ref")], {"logp"})["logp"].sum()
        (-float(t.streams["gain"][-1]) / 0.02 * logp / len(traces)).backward()
    assert_close(found, torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()]), to=1e-3)


def test_the_critic_of_steps_learns_rates_and_outcomes_of_solutions(small_model: Path) -> None:
    built = direct_advantage_po(TASK, solutions=2, completions=3)
    _, groups, _ = next(iter(credited(built, build_cast(built, small_model))))
    for t in (t for g in groups for t in g.traces):
        chosen = t.streams["claim:chance"].nonzero()[:, 0].tolist()
        assert chosen == t.note.get("cuts", []) and (not chosen or chosen[0] == len(t.turns[0]))
        assert bool(t.streams["claim:end"].any()) == ("sample" in t.tags)
