"""Methods on search trees: numbers by hand, what each becomes without its idea, and what they do on a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SMALL, Tossed, build_cast, coin, credited
from gradients import gradient
from test_agent_turns import TASK, nothing

from burnish.core.parts import Draw
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.learn.maths import dpo_logistic
from burnish.rollout.search_tree import Node, uct
from burnish.rollout.searched import replies_with, searched
from burnish.score.words import told, word_logps
from burnish.select.siblings import sibling_pairs
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded
from burnish.zoo.agent_q import agent_q, mixed_value
from burnish.zoo.agent_r import REVISIONS, agent_r, beside, revisions, shared, spliced
from burnish.zoo.itool import easier_first, itool
from burnish.zoo.lspo import action_values, k_means, lspo, regret_matching

GAMES = Tossed(source("guess"))
SORT = rewarded(source("sort"), coin)


def said(*tokens: int, after: Turn, author: str = "policy") -> Turn:
    return Turn(torch.tensor(tokens), author, torch.zeros(len(tokens)), parent=after)


# ------------------------------------------------------------------------------------------------------------- agent_q


def test_the_value_of_a_step_is_the_trees_and_the_critics() -> None:
    """Q_tree 0.2, Q_critic 1, alpha 1/2: 0.6."""
    node: Node[str] = Node("a", visits=1, value=0.2, facts={"critic": 1.0})
    assert mixed_value(0.5)(node) == pytest.approx(0.6) and mixed_value(1.0)(node) == 0.2
    node.facts.clear()
    assert mixed_value(0.5)(node) == 0.2


def siblings() -> list[Trace]:
    """Three first replies with Q 0.9, 0.6 and 0.5, and one reply after the first, Q 0."""
    prompt = Turn(torch.arange(2), "task")
    firsts = [said(i, i, after=prompt) for i in range(3)]
    answer = Turn(torch.arange(1), "env", parent=firsts[0])
    paths = [*((prompt, first) for first in firsts), (prompt, firsts[0], answer, said(7, after=answer))]
    return [
        Trace(path, i, {"reward": q}, tags=frozenset({"node"}))
        for i, (path, q) in enumerate(zip(paths, (0.9, 0.6, 0.5, 0.0), strict=True))
    ]


def test_pairs_are_siblings_that_are_far_enough_apart() -> None:
    """theta .2: (0, 1) and (0, 2) are, (1, 2) with .1 is not, and the later reply has no sibling."""
    [group] = sibling_pairs(0.2).call([Group(TASK, siblings())], nothing())
    assert group.pairs == [(0, 1), (0, 2)] and [t.scores["reward"] for t in group.traces] == [0.9, 0.6, 0.5]
    assert sibling_pairs(0.5).call([Group(TASK, siblings())], nothing()) == []
    same = siblings()[:2]
    same[1].turns = (same[1].turns[0], said(0, 0, after=same[1].turns[0]))
    assert sibling_pairs(0.0).call([Group(TASK, same)], nothing()) == [], "equal replies are no preference"


def test_agent_q_is_step_dpo_against_the_log_probs_of_sampling(small_model: Path) -> None:
    """Before the first update every log-ratio is 0: the loss is ln 2, its gradient -beta/2 (grad w - grad l)."""
    built = agent_q(GAMES, rounds=4, width=3, theta=0.0, beta=0.1)
    models = build_cast(built, small_model)
    phase, groups, step = next(iter(credited(built, models)))
    found = gradient(groups, phase.learn, step)
    count = sum(len(group.pairs or ()) for group in groups)
    assert count > 0
    models["policy"].optimiser.zero()
    for group in groups:
        for trace in group.traces:
            last = torch.arange(len(trace)) >= len(trace) - len(trace.turns[-1])
            assert torch.equal(trace.streams["claim:reply"], last), "only the step itself is trained"
        for a, b in group.pairs or ():
            one, two = (
                models["policy"].outputs([t.tokens], [t.streams["claim:reply"]], {"logp"})["logp"].sum()
                for t in (group.traces[a], group.traces[b])
            )
            (-0.05 * (one - two) / count).backward()
    expected = torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()])
    assert torch.allclose(found, expected, rtol=1e-2, atol=1e-5)
    zero = torch.zeros(1)
    assert float(dpo_logistic(zero, zero, 0.1, 0.0)) == pytest.approx(0.6931, abs=1e-4)


def test_agent_q_with_a_large_threshold_has_no_pairs_and_alpha_one_no_critic(small_model: Path) -> None:
    off = agent_q(GAMES, rounds=3, width=2, theta=99.0)
    [(_, groups, _)] = credited(off, build_cast(off, small_model))
    assert groups == []
    assert "critic" in off.models and "critic" not in agent_q(GAMES, alpha=1.0).models


def test_a_tree_of_episodes_is_consistent(small_model: Path) -> None:
    """Each visit ends in a finished episode; values are the means of what was paid below; prefixes are shared."""
    built = agent_q(GAMES, alpha=1.0)
    step = Step(Clock(0, 1), build_cast(built, small_model), SMALL)
    kept: list[Node[Any]] = []

    def take(root: Node[Any]) -> list[Trace]:
        kept.append(root)
        return replies_with()(root)

    groups = searched(5, 3, rule=uct(1.0), take=take).call(built.phases[0].draw.call(step), step)
    assert len(groups) == 3
    for root, group in zip(kept, groups, strict=True):
        assert root.visits == 5 and sum(child.visits for child in root.children) == 5
        for trace in group.traces:
            for before, after in zip(trace.turns, trace.turns[1:], strict=False):
                assert after.parent is before
        for node in (child for child in root.children if child.visits):
            below = [n for n in _below(node) if n.over and n.visits]
            mean = sum(n.visits * n.state.earned for n in below) / sum(n.visits for n in below)
            assert node.value == pytest.approx(mean)


def _below(node: Node[Any]) -> list[Node[Any]]:
    return [node, *(n for child in node.children for n in _below(child))]


def test_word_logps_are_the_models(small_model: Path) -> None:
    built = agent_q(GAMES)
    models = build_cast(built, small_model)
    step = Step(Clock(0, 1), models, SMALL)
    [[yes, no]] = word_logps(["Is it?"], ("yes", "no"), "critic", step)
    chat = models["critic"].chat
    prompt, word = chat.prompt(Task("q", "Is it?", {}, "q")), chat.written("yes")
    row = torch.cat([prompt, word])
    mask = torch.arange(len(row)) >= len(prompt)
    assert yes == pytest.approx(float(models["critic"].outputs([row], [mask], {"logp"})["logp"].sum()), abs=1e-3)
    assert yes != no and len(word_logps(["x" * 2000], ("yes",), "critic", step)[0]) == 1
    turn = Turn(chat.written("hi"), "policy")
    assert told([Turn(chat.written("go"), "task"), turn], chat) == "Task: go\nAgent: hi"


# ------------------------------------------------------------------------------------------------------------- agent_r


def test_a_bad_episode_turns_into_a_good_one(small_model: Path) -> None:
    """prompt p, shared reply a, answer e; bad: b (the bad step), f, c; good: g. Row: p a e b f | revision | ok. | g."""
    built = agent_r(GAMES)
    step = Step(Clock(0, 1), build_cast(built, small_model), SMALL)
    chat = step.models["policy"].chat
    p = Turn(torch.arange(3), "task")
    a = said(1, after=p)
    e = said(2, after=a, author="env")
    b = said(3, after=e)
    f = said(4, after=b, author="env")
    bad = Trace((p, a, e, b, f, said(5, after=f)), 0, {"reward": 0.0}, note={"bad": [3]})
    good = Trace((p, a, e, said(6, 6, after=e)), 1, {"reward": 1.0}, note={"bad": []})
    row = spliced(bad, good, 3, "No.", chat)
    assert [t.author for t in row.turns] == ["task", "past", "env", "past", "env", "revision", "env", "policy"]
    assert chat.text(row.turns[5].tokens) == "No." and row.turns[-1].tokens.tolist() == [6, 6]
    assert row.turns[-1] is not good.turns[-1], "the good episode itself is trained as well"
    [group] = revisions(0.5, 0.2).call([Group(TASK, [bad, good])], step)
    assert [t.tags for t in group.traces] == [frozenset(), {"revised"}] and len(set(REVISIONS)) == 10
    longer = Trace((p, a, e, said(7, after=e), f, said(8, after=f)), 0, {"reward": 1.0}, note={"bad": []})
    [group] = revisions(0.5, 0.2, words=["?"]).call([Group(TASK, [bad, longer, good])], step)
    row = group.traces[-1]
    assert row.turns[-1].tokens.tolist() == [6, 6], "of two that are equally good, the shorter one is spliced in"
    assert chat.text(row.turns[5].tokens) == "?"
    for steps in ([], [1], [5]):
        bad.note["bad"] = steps
        [group] = revisions(0.5, 0.2).call([Group(TASK, [bad, good])], step)
        assert group.traces == [good], "without a bad step of its own on the way it is rejection sampling"
    assert revisions(1.5, 0.2).call([Group(TASK, [bad, good])], step) == []


def test_a_bad_episode_goes_on_with_the_good_one_that_shares_most_of_it(small_model: Path) -> None:
    """bad: a e b f c; good: short, or a' e' g with a' and e' equal to a and e: the second one, from g on."""
    built = agent_r(GAMES)
    chat = build_cast(built, small_model)["policy"].chat
    p = Turn(torch.arange(3), "task")

    def path(reply: int, *after: int) -> Trace:
        turns = [p, said(reply, after=p)]
        for i, token in enumerate(after):
            turns.append(said(token, after=turns[-1], author="policy" if i % 2 else "env"))
        return Trace(tuple(turns), 0, {"reward": 1.0}, note={"bad": []})

    bad, short, near = path(1, 2, 3, 4, 5), path(9), path(1, 2, 6)
    assert [shared(bad, short), shared(bad, near), shared(near, bad), shared(bad, bad)] == [1, 3, 3, 6]
    bad.note["bad"] = [1, 3, 5]
    assert beside(bad, [short, near]) == (near, 3), "turn 1 is the good episode's, too, and turn 5 comes later"
    row = spliced(bad, near, 3, "?", chat)
    assert [int(turn.tokens[0]) for turn in row.turns if turn.author in ("past", "policy")] == [1, 3, 6]
    assert beside(bad, [short]) == (short, 1), "nothing is shared but the prompt"


def test_bad_steps_carry_no_loss(small_model: Path) -> None:
    built = agent_r(GAMES, rounds=5, width=3, alpha=0.5, final=0.5)
    for number in range(3):
        for _, groups, _ in credited(built, build_cast(built, small_model), step=number):
            for trace in (t for g in groups for t in g.traces):
                trained = trace.streams["claim:sft"]
                assert not bool((trained & ~trace.by("policy", "revision")).any()) and bool(trained.any())


# ---------------------------------------------------------------------------------------------------------------- lspo


def test_regret_matching_by_hand() -> None:
    """One state, Q 1, 0, 0: first uniform (V 1/3, regrets 2/3, -1/3, -1/3), then always the first: mean (1 + 1/3)/2."""
    game = {"s": {0: [(1.0, None)], 1: [(0.0, None)], 2: [(0.0, None)]}}
    mean, values = regret_matching(game, 2)
    assert mean["s"] == pytest.approx({0: 2 / 3, 1: 1 / 6, 2: 1 / 6}) and values["s"] == {0: 1.0, 1: 0.0, 2: 0.0}


def test_values_look_ahead() -> None:
    """s: action 0 leads to t, where 1 pays 1 and 0 pays 0; action 1 pays 0.6. Uniform: Q(s, 0) = 1/2, then 1."""
    game = {"s": {0: [(0.0, "t")], 1: [(0.6, None)]}, "t": {0: [(0.0, None)], 1: [(1.0, None)]}}
    uniform = {"s": {0: 0.5, 1: 0.5}, "t": {0: 0.5, 1: 0.5}}
    assert action_values(game, uniform)["s"] == {0: 0.5, 1: 0.6}
    mean, values = regret_matching(game, 500)
    assert values["s"][0] > 0.95 and mean["s"][0] > 0.9


def test_clusters_are_found() -> None:
    points = np.array([[0.0, 0.0], [0.1, 0.0], [5.0, 5.0], [5.1, 5.0], [9.0, 0.0]])
    found = k_means(points, 3, np.random.default_rng(0))
    assert found[0] == found[1] and found[2] == found[3] and len(set(found)) == 3
    assert set(k_means(points, 1, np.random.default_rng(0))) == {0}
    assert len(set(k_means(np.zeros((4, 2)), 3, np.random.default_rng(0)))) == 1


class Haggle:
    """Ask for a price: the dealer takes any offer that names a number of two digits, and rewards the lower one."""

    def reset(self, seed: int) -> str:
        self.asked = 0
        return f"Offer {seed % 9}?"

    def step(self, action: str) -> tuple[str, float, bool]:
        self.asked += 1
        return "Another offer?", float(sum(map(ord, action)) % 2), self.asked > 1


def test_one_latent_action_gives_no_pairs_and_several_do(small_model: Path) -> None:
    from burnish.tasks.environment import EnvSource

    for clusters, some in ((1, False), (64, True)):
        built = lspo(EnvSource(Haggle), rounds=4, width=3, clusters=clusters)
        [(_, groups, _)] = credited(built, build_cast(built, small_model))
        assert bool(groups) == some
        for group in groups:
            for a, b in group.pairs or ():
                better, worse = group.traces[a], group.traces[b]
                assert better.note["latent"] != worse.note["latent"]
                assert better.turns[:-1] == worse.turns[:-1] and better.scores["reward"] > worse.scores["reward"]


# --------------------------------------------------------------------------------------------------------------- itool


def test_easier_demonstrations_come_first() -> None:
    """9 tasks with demonstrations of 1 to 9 characters, 3 stages over 6 steps: 1-3, then 4-6, then 7-9."""
    order = (5, 1, 9, 3, 7, 2, 8, 4, 6)
    inner = Draw(name="given", call=lambda step: [Task("t", "?", {"demo": "x" * n}, str(n)) for n in order])
    staged = easier_first(inner, 3, 6)
    for number, expected in ((0, {1, 2, 3}), (1, {1, 2, 3}), (2, {4, 5, 6}), (5, {7, 8, 9}), (9, {7, 8, 9})):
        step = Step(Clock(number, 10), None, SMALL)  # type: ignore[arg-type]
        assert {len(task.given["demo"]) for task in staged.call(step)} == expected


def test_fragments_branch_and_only_they_are_compared(small_model: Path) -> None:
    built = itool(SORT, warmup=0, rounds=8, width=3, size=4, enough=2.0, gap=0.0)
    phase, groups, _ = list(credited(built, build_cast(built, small_model)))[1]
    assert groups
    for group in groups:
        for trace in group.traces:
            assert sum(len(turn) for turn in trace.turns[1:]) <= SMALL.max_new_tokens
            assert all(len(turn) <= 4 for turn in trace.turns[1:])
            last = torch.arange(len(trace)) >= len(trace) - len(trace.turns[-1])
            assert torch.equal(trace.streams["claim:reply"], last)
        for a, b in group.pairs or ():
            assert group.traces[a].turns[:-1] == group.traces[b].turns[:-1]
    whole = itool(SORT, warmup=0, rounds=8, width=3, size=99, enough=2.0, gap=0.0)
    _, groups, _ = list(credited(whole, build_cast(whole, small_model)))[1]
    assert all(len(trace.turns) == 2 for group in groups for trace in group.traces), "SimPO on sampled replies"


def test_tasks_that_are_solved_are_not_searched(small_model: Path) -> None:
    built = itool(SORT, warmup=0, rounds=2, enough=-1.0)
    step = Step(Clock(0, 1), build_cast(built, small_model), SMALL)
    phase = built.phases[1]
    assert phase.rollout.call(phase.draw.call(step), step) == [] and step.notes.means()["deficient"] == 0


# ------------------------------------------------------------------------------------------------------------ learning


@pytest.mark.slow
def test_games_are_learned(tmp_path: Path) -> None:
    from burnish import train

    shared = {"prompts": 12, "max_new_tokens": 8, "eval_tasks": 60, "eval_every": 0, "seed": 0}
    options = {"rounds": 4, "width": 3, "lr": 1e-4}
    result = train("agent_q", task="guess:1", steps=6, out=str(tmp_path / "run"), **shared, **options)
    before, after = (outcome.as_sampled for outcome in (result.before, result.after))  # type: ignore[union-attr]
    assert after.mean > before.mean + 0.02
