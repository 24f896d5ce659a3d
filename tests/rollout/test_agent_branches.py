"""States that are returned to, episodes that branch, ARPO and REFUEL: by hand, switched off, and on a model."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, Tossed, build_cast, credited
from gradients import gradient
from test_agent_turns import TASK, nothing

from burnish.core.loop import loop
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.envs.guarded import Failure, GuardedEnv
from burnish.envs.guess import Game, Hidden
from burnish.envs.tools import ToolEnv
from burnish.learn.term import Live
from burnish.learn.terms.sequence import regress_rewards
from burnish.methods.table import find
from burnish.rollout.episode import Episode
from burnish.rollout.replays import branched
from burnish.tasks.environment import EnvSource
from burnish.tasks.table import source
from burnish.zoo.arpo import _entropies, above, arpo, branching, by_chance, claim_copies, shared_mean
from burnish.zoo.refuel import refuel, second_tries

GAMES = Tossed(source("guess"))


@pytest.mark.parametrize(("ratio", "wanted"), [(4.0, 3.0 * 1.7), (2.5, 2.5 * 1.7)])
def test_arpo_has_the_dual_clip_of_its_code(ratio: float, wanted: float) -> None:
    """A = -1.7: -rho A up to rho = 3, then 3 x 1.7, as in the released configuration; where A > 0 the clip at 1.2."""
    term = arpo(GAMES).phases[0].learn.terms[0]

    def loss(adv: float) -> float:
        streams = {"old": torch.tensor([-2.0]), "adv": torch.tensor([adv])}
        none, one = torch.zeros(0, 2, dtype=torch.long), torch.zeros(1, dtype=torch.long)
        logp = torch.tensor([-2.0 + math.log(ratio)])
        return float(
            term.loss(Live({"logp": logp, "entropy": torch.zeros(1)}, streams, one, 1, none, [], one, Clock(0, 1)))
        )

    assert loss(-1.7) == pytest.approx(wanted, rel=1e-5)
    assert loss(0.6) == pytest.approx(-1.2 * 0.6, rel=1e-5)


class Counter:
    """Counts its steps; it has no fork."""

    made = 0

    def reset(self, seed: int) -> str:
        Counter.made += 1
        self.total = seed
        return f"from {seed}"

    def step(self, action: str) -> tuple[str, float, bool]:
        self.total += len(action)
        return f"now {self.total}", float(self.total), self.total > 9


class Unsteady(Counter):
    """Says something else every time it is reset."""

    def step(self, action: str) -> tuple[str, float, bool]:
        return f"{self.made}: {action}", 0.0, False


class Forking(Unsteady):
    """The same with a fork."""

    def fork(self) -> Forking:
        return Forking()


def played(make: Any, *actions: str) -> GuardedEnv:
    env = GuardedEnv(make)
    env.observed(env.begin_reset(None, 3))
    for action in actions:
        env.outcome(env.begin_step(action))
    return env


def test_a_state_without_fork_is_reached_by_the_same_actions() -> None:
    env = played(Counter, "a", "bb", "ccc")
    before = Counter.made
    back = env.at(2)
    assert Counter.made == before + 1 and back.env.total == 6 and back.said == ["a", "bb"]
    assert back.outcome(back.begin_step("x")).observation == "now 7"
    assert env.env.total == 9 and env.at(0).env.total == 3


def test_a_replay_that_differs_is_a_failure_with_its_reason() -> None:
    env = played(Unsteady, "a", "b")
    with pytest.raises(Failure, match=r"differs in the observation of step 1: .* before .*give the environment fork"):
        env.at(2)


def test_fork_is_used_where_there_is_one() -> None:
    env = played(Forking, "a")
    assert env.at(1).said == ["a"]  # a replay would have failed
    kept = played(Forking)
    kept.keep()
    kept.outcome(kept.begin_step("a"))
    assert kept.at(0).said == [] and kept.at(0).env is not kept.at(0).env
    with pytest.raises(Failure, match="differs"):
        played(Forking, "a", "b").at(1)


def test_a_forked_game_goes_its_own_way() -> None:
    env = played(partial(Game, Hidden(1, 15, 11, 4)), "8")
    copy = env.at(1)
    copy.outcome(copy.begin_step("12"))
    assert env.key() == "9-15 after 1" and copy.key() == "9-11 after 2"
    tools = ToolEnv([])
    tools.made = 2
    assert tools.fork().made == 2 and tools.fork() is not tools


class Meeting:
    """Replays of it wait for each other: one after the other, none would end."""

    both = threading.Barrier(2, timeout=20)
    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.again = self.made > 1

    def reset(self) -> str:
        return "begin"

    def step(self, action: str) -> tuple[str, float, bool]:
        if self.again:
            self.both.wait()
        return "on", 0.0, False


def test_branches_are_replayed_at_the_same_time(small_model: Path) -> None:
    step = Step(Clock(0, 1), build_cast(find("grpo").build(source("sort"), n=2), small_model), SMALL)
    episode = Episode(Task("game", ({"role": "user", "content": "begin"},), {"env": Meeting}, "m"), 0, step, "policy")
    episode.begin()
    episode.reply(Turn(torch.tensor([5, 6]), "policy", torch.zeros(2), parent=episode.turns[-1]))
    episode.answer()
    one, other = branched([(episode, 1, None), (episode, 2, None)])
    assert not one.failure and not other.failure and Meeting.made == 3
    assert (one.index, other.index, one.replies) == (1, 2, 1) and one.env is not other.env


def branch_traces() -> list[Trace]:
    """Three episodes that share the prompt, one reply and one answer; then each has a reply of its own."""
    prompt = Turn(torch.arange(2), "task")
    said = Turn(torch.arange(3), "policy", torch.zeros(3), parent=prompt)
    answer = Turn(torch.arange(1), "env", parent=said)
    ends = [Turn(torch.tensor([i, i]), "policy", torch.zeros(2), parent=answer) for i in range(3)]
    rewards = (1.0, 0.0, 1.0)
    return [Trace((prompt, said, answer, end), i, {"reward": rewards[i]}) for i, end in enumerate(ends)]


def test_hard_advantages_of_shared_turns_by_hand() -> None:
    """R 1, 0, 1: mean 2/3, deviation .577: A .577, -1.155, .577, whose mean is 0; with .87, -.87, .87 it is .29."""
    traces = branch_traces()
    for trace, advantage in zip(traces, (0.87, -0.87, 0.87), strict=True):
        trace.streams["adv"] = torch.full((len(trace),), advantage)
    shared_mean().call([Group(TASK, traces)], nothing())
    assert traces[0].streams["adv"].tolist() == pytest.approx([0.29] * 6 + [0.87] * 2)
    assert traces[1].streams["adv"].tolist() == pytest.approx([0.29] * 6 + [-0.87] * 2)
    claim_copies("pg", "policy").call([Group(TASK, traces)], nothing())
    assert [int(t.streams["claim:pg"].sum()) for t in traces] == [5, 5, 5]


def test_branch_rules_by_hand() -> None:
    """alpha .5, beta .2: a rise of 1 gives .7, a fall of 1 gives .3."""
    rule = by_chance(0.5, 0.2)
    assert rule(1.0, 0.69) and not rule(1.0, 0.71) and rule(-1.0, 0.29) and not rule(-1.0, 0.31)
    paper = above(0.5, 0.2, 0.6)
    assert paper(0.6, 0.99) and not paper(0.4, 0.0)


def groups_of(rollout: Any, small_model: Path, method: Any, steps: int = 0) -> list[Group]:
    step = Step(Clock(steps, 10), build_cast(method, small_model), SMALL)
    return rollout.call(method.phases[0].draw.call(step), step)


def test_branches_share_turns_and_keep_to_the_budget(small_model: Path) -> None:
    built = arpo(GAMES, budget=6, fresh=2, alpha=2.0)
    groups = groups_of(built.phases[0].rollout, small_model, built)
    assert all(len(group.traces) == 6 for group in groups)
    shared = [t for g in groups for t in g.traces if any(t.turns[1] is o.turns[1] for o in g.traces if o is not t)]
    assert shared, "with this chance every second turn branches"
    for group in groups:
        assert [trace.index for trace in group.traces] == list(range(6))
        for trace in group.traces:
            for before, after in zip(trace.turns, trace.turns[1:], strict=False):
                assert after.parent is before
            assert trace.scores["reward"] == sum(r for r in trace.turn_scores["reward"] if r == r)
    branched = [(a, b) for g in groups for a in g.traces for b in g.traces if a is not b and a.turns[1] is b.turns[1]]
    assert any(not torch.equal(a.tokens, b.tokens) for a, b in branched)


def test_arpo_measures_the_entropy_of_the_first_tokens_of_a_turn(small_model: Path) -> None:
    """Uniform over the V words of the vocabulary: ln V a token, so 3 tokens over ln V are 3, and 2 of 2 are 2."""
    model = build_cast(arpo(GAMES, budget=3, fresh=1), small_model)["policy"]
    with torch.no_grad():
        [parameter.zero_() for parameter in model.module.parameters()]
    step = Step(Clock(0, 1), {"policy": model}, SMALL)  # type: ignore[arg-type]  # the one model that is asked
    first = Turn(torch.tensor([5, 6]), "task")
    replies = [Trace((first, Turn(torch.tensor([7] * n), "policy", torch.zeros(n), parent=first))) for n in (4, 2)]
    assert _entropies(replies, 3, "policy", step) == pytest.approx([3.0, 2.0], rel=1e-4)


def test_arpo_without_branches_is_grpo_over_episodes(small_model: Path) -> None:
    """budget = fresh, or a chance of 0: the same episodes and advantages as GRPO's n of them."""
    from burnish.compose.multi_turn import played as over_episodes
    from burnish.methods.policy import grpo

    plain = over_episodes(grpo(GAMES, n=3, beta=0.0), GAMES)
    [(_, expected, _)] = credited(plain, build_cast(plain, small_model))
    for off in (arpo(GAMES, budget=3, fresh=3), arpo(GAMES, budget=3, fresh=1, alpha=-1.0, beta=0.0)):
        [(_, found, _)] = credited(off, build_cast(off, small_model))
        for a, b in zip(expected, found, strict=True):
            assert [t.tokens.tolist() for t in a.traces] == [t.tokens.tolist() for t in b.traces]
            for one, other in zip(a.traces, b.traces, strict=True):
                assert torch.equal(one.streams["adv"], other.streams["adv"])
                assert torch.equal(one.by("policy"), other.streams["claim:pg"])


def test_soft_and_hard_advantages_have_the_same_gradient_before_the_first_update(small_model: Path) -> None:
    found = []
    for kind in ("soft", "hard"):
        built = arpo(GAMES, budget=4, fresh=2, alpha=2.0, advantage=kind)
        models = build_cast(built, small_model)
        phase, groups, step = next(iter(credited(built, models)))
        found.append(gradient(groups, phase.learn, step))
    assert float((found[0] - found[1]).norm()) < 1e-3 * float(found[0].norm())
    with pytest.raises(ValueError, match="advantage is 'firm'; choose one of soft, hard"):
        find("arpo").build(GAMES, advantage="firm")


def test_refuel_by_hand() -> None:
    """lr .3 and -.1, eta 1, R gap .5: (.4 - .5)^2 = .01."""
    from burnish.learn.maths.sequence import relative_reward_error

    lr, gap = torch.tensor([0.3]), torch.tensor([0.5])
    assert float(relative_reward_error(lr, torch.tensor([-0.1]), gap, torch.zeros(1), 1.0)) == pytest.approx(0.01)
    assert regress_rewards(1.0, anchor="old").streams == ("old", "reward")


def test_second_tries_part_at_one_turn_and_only_it_is_trained(small_model: Path) -> None:
    built = refuel(GAMES, longest=3)
    models, turns = build_cast(built, small_model), set()
    for number in range(4):
        for _, groups, _ in credited(built, models, replace(SMALL, prompts=4), step=number):
            for group in groups:
                a, b = group.traces
                at = a.note["turn"]
                turns.add(at)
                assert at == b.note["turn"] and a.turns[:at] == b.turns[:at] and a.turns[at] is not b.turns[at]
                for t in (a, b):
                    mask = torch.zeros(len(t), dtype=torch.bool)
                    start = sum(len(turn) for turn in t.turns[:at])
                    mask[start : start + len(t.turns[at])] = True
                    assert torch.equal(t.streams["claim:pair"], mask)
                    assert float(t.streams["reward"][mask].sum()) == t.scores["reward"]
                    assert sum(turn.author == "policy" for turn in t.turns) <= 3
    assert len(turns) > 1, "later turns are drawn too"


def test_refuel_plays_as_many_turns_as_it_is_told(small_model: Path) -> None:
    """shortest = longest = 4: every episode that its environment does not end has four turns."""
    built = refuel(EnvSource(Endless), longest=4, shortest=4)
    for _, groups, _ in credited(built, build_cast(built, small_model), replace(SMALL, prompts=4)):
        assert groups and {t.note["turns"] for group in groups for t in group.traces} == {4}
    with pytest.raises(ValueError, match="episodes of 4 to 3 turns"):
        second_tries(3, 4)


class Endless:
    """Never ends by itself."""

    def reset(self, seed: int) -> str:
        return f"go {seed}"

    def step(self, action: str) -> tuple[str, float, bool]:
        return "on", 0.0, False


def test_refuel_of_one_turn_is_rebel(small_model: Path) -> None:
    """longest = 1: two replies to the prompt, all of them trained, as REBEL with kl = 0."""
    built = refuel(GAMES, longest=1)
    for _, groups, _ in credited(built, build_cast(built, small_model)):
        for group in groups:
            assert group.pairs in ([(0, 1)], [(1, 0)])
            for trace in group.traces:
                assert len(trace.turns) == 2 and torch.equal(trace.streams["claim:pair"], trace.by("policy"))


def test_refuel_starts_as_a_policy_gradient_of_the_gap(small_model: Path) -> None:
    """pi = pi_t: the gradient is -2 (R - R') (grad log pi(y) - grad log pi(y')), mean over pairs, eta 1."""
    built = refuel(GAMES, longest=3)
    models = build_cast(built, small_model)
    phase, groups, step = next(iter(credited(built, models, replace(SMALL, prompts=6))))
    found = gradient(groups, phase.learn, step)
    models["policy"].optimiser.zero()
    for group in groups:
        a, b = group.traces
        one, two = (
            models["policy"].outputs([t.tokens], [t.streams["claim:pair"]], {"logp"})["logp"].sum() for t in (a, b)
        )
        (-2 * (a.scores["reward"] - b.scores["reward"]) * (one - two) / len(groups)).backward()
    expected = torch.cat([p.grad.flatten() for p in models["policy"].module.parameters()])
    assert float(expected.norm()) > 0 and float((found - expected).norm()) < 1e-3 * float(expected.norm())


class Lottery:
    """An environment whose steps cannot be repeated and that has no fork."""

    drawn = 0

    def reset(self) -> str:
        return "Say something."

    def step(self, action: str) -> tuple[str, float, bool]:
        Lottery.drawn += 1
        return f"drawn {Lottery.drawn}", 1.0, False


def test_a_state_that_cannot_be_reached_again_costs_the_branch_alone(small_model: Path) -> None:
    env = EnvSource(Lottery)
    built = refuel(env, longest=4)
    groups = groups_of(second_tries(4), small_model, built)
    assert all(group.traces[0].note["turn"] == 1 for group in groups), "only first turns can be tried again"
    wide = groups_of(branching(4, 2, by_chance(2.0, 0.0)), small_model, arpo(env, budget=4, fresh=2))
    failed = [t for g in wide for t in g.traces if "differs" in t.note.get("why", "")]
    assert failed and all(len(g.traces) == 4 for g in wide)


def test_a_step_of_each_runs(small_model: Path) -> None:
    for name, options in (("arpo", {"budget": 4, "fresh": 2}), ("refuel", {})):
        method = find(name).build(GAMES, **options)
        report = next(loop(method, build_cast(method, small_model), SMALL, steps=1))
        assert report.metrics["turns"] > 0


@pytest.mark.slow
def test_games_are_learned(tmp_path: Path) -> None:
    from burnish import train

    shared = {"prompts": 12, "max_new_tokens": 8, "eval_tasks": 60, "eval_every": 0, "seed": 0}
    result = train("arpo", task="guess:1", steps=10, out=str(tmp_path / "run"), budget=8, fresh=4, **shared)
    before, after = (outcome.as_sampled for outcome in (result.before, result.after))  # type: ignore[union-attr]
    assert after.mean > before.mean + 0.05
