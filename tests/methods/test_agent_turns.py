"""Credit to turns and attempts: numbers derived by hand, and what each method becomes without its idea."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, Tossed, build_cast, credited
from gradients import gradient

from burnish.compose.multi_turn import played
from burnish.core.loop import loop
from burnish.core.method import Method
from burnish.core.step import Step
from burnish.core.task import Verdict
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.credit.turns import bucket_advantages, returns_of, state_groups
from burnish.envs.protocol import Outcome
from burnish.methods.agent_turns import starpo
from burnish.methods.policy import ppo
from burnish.methods.table import find
from burnish.rollout.play import play
from burnish.select.filters import most_spread
from burnish.tasks.attempts import Attempts
from burnish.tasks.table import source
from burnish.tasks.task_set import MadeTasks
from burnish.zoo.score import own_turns, score
from burnish.zoo.ufo import ufo

TASK = Task("game", "?", {}, "?")


def turn(n: int, author: str) -> Turn:
    return Turn(torch.arange(n), author)


def episode(rewards: list[float], keys: list[str]) -> Trace:
    """An episode with one reply of two tokens for each reward, and one token of the environment between them."""
    turns, on_turns = [turn(1, "task")], [float("nan")]
    for k, reward in enumerate(rewards):
        turns += [turn(2, "policy")] + ([turn(1, "env")] if k < len(rewards) - 1 else [])
        on_turns += [reward] + ([float("nan")] if k < len(rewards) - 1 else [])
    return Trace(tuple(turns), scores={"reward": sum(rewards)}, turn_scores={"reward": on_turns}, note={"keys": keys})


def nothing() -> Step:
    return Step(Clock(0, 1), None, SMALL)  # type: ignore[arg-type]


def test_returns_are_discounted_by_turn() -> None:
    assert returns_of([0.0, 0.0, 1.0], 0.5) == [0.25, 0.5, 1.0]
    assert returns_of([1.0, 2.0], 0.0) == [1.0, 2.0]


def test_turns_that_began_in_one_state_are_compared() -> None:
    """The formula by hand: two episodes from s, R 1 and 0, G .95 and 0: A_E +-.5, A_S +-.475."""
    won, lost = episode([0.0, 1.0], ["s", "a"]), episode([0.0, 0.0], ["s", "b"])
    group = Group(TASK, [won, lost])
    state_groups(1.0, 0.95).call([group], nothing())
    assert won.streams["adv"].tolist() == pytest.approx([0, 0.975, 0.975, 0, 0.5, 0.5])
    assert lost.streams["adv"].tolist() == pytest.approx([0, -0.975, -0.975, 0, -0.5, -0.5])


def test_a_state_is_the_same_whenever_it_is_met() -> None:
    """s is met at first by one and last by the other, a the other way round. G = .5, 1 and 0, 0; A_E = +-.5;
    A_S of s = +-.25, of a = +-.5."""
    one, two = episode([0.0, 1.0], ["s", "a"]), episode([0.0, 0.0], ["a", "s"])
    step = nothing()
    state_groups(1.0, 0.5).call([Group(TASK, [one, two])], step)
    assert one.streams["adv"].tolist() == pytest.approx([0, 0.75, 0.75, 0, 1.0, 1.0])
    assert two.streams["adv"].tolist() == pytest.approx([0, -1.0, -1.0, 0, -0.75, -0.75])
    assert step.notes.means()["shared_states"] == 1.0


class Room:
    """An environment whose state never changes."""

    def __init__(self) -> None:
        self.left = 3

    def reset(self) -> str:
        return "a room"

    def step(self, action: str) -> Outcome:
        self.left -= 1
        return Outcome("the same room", terminated=self.left == 0)

    def key(self) -> str:
        return "room"


def test_the_name_of_a_state_does_not_say_when_it_was_met(small_model: Path) -> None:
    task = Task("game", "?", {"env": Room}, "?")
    models = build_cast(find("gigpo").build(source("guess"), n=2), small_model)
    groups = play(2, turns=3).call([task], Step(Clock(0, 1), models, SMALL))
    assert [trace.note["keys"] for trace in groups[0].traces] == [["room"] * 3] * 2


def test_a_state_may_be_met_twice_in_one_episode() -> None:
    assert bucket_advantages(["s", "s", "t"], [1.0, 0.0, 5.0], std=False) == [0.5, -0.5, 0.0]
    wide = bucket_advantages(["s", "s"], [1.0, 0.0], std=True)
    assert wide == pytest.approx([0.5 / (0.5**0.5), -0.5 / (0.5**0.5)], rel=1e-4)


def test_gigpo_without_states_is_grpo_without_the_deviation(small_model: Path) -> None:
    for omega, keys in ((0.0, ["s", "a"]), (1.0, ["u", "v"])):
        first, second = episode([0.0, 1.0], keys), episode([0.0, 0.0], ["x", "y"])
        state_groups(omega, 0.95).call([Group(TASK, [first, second])], nothing())
        assert first.streams["adv"][first.by("policy")].tolist() == [0.5] * 4


def test_each_attempt_has_its_own_advantage() -> None:
    one, two = episode([0.0, 11.0], []), episode([1.0, 1.0], [])
    own_turns().call([Group(TASK, [one, two])], nothing())
    assert one.streams["adv"].tolist() == [0, -0.5, -0.5, 0, 5.0, 5.0]
    assert two.streams["adv"].tolist() == [0, 0.5, 0.5, 0, -5.0, -5.0]


def test_the_groups_that_differ_most_are_kept() -> None:
    groups = [
        Group(TASK, [Trace((), scores={"reward": r}) for r in rewards])
        for rewards in ([0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0])
    ]
    kept = most_spread(1 / 3).call(groups, nothing())
    assert kept == [groups[2]] and all("spread" in trace.tags for trace in kept[0].traces)
    assert most_spread(1.0).call(groups, nothing()) == groups


@pytest.mark.parametrize(
    ("share", "of", "kept"), [(0.25, 7, 1), (0.25, 11, 2), (0.7, 10, 7), (0.29, 100, 29), (0.1, 3, 1)]
)
def test_the_share_of_groups_is_rounded_down(share: float, of: int, kept: int) -> None:
    """int(share x groups), at least one, as in RAGEN's filter; 0.29 x 100 is 28.999999999999996 in floating point."""
    groups = [Group(TASK, [Trace((), scores={"reward": r}) for r in (0.0, float(i))]) for i in range(of)]
    assert most_spread(share).call(list(groups), nothing()) == groups[of - kept :]


def policy_gradient(method: Method, model: Path) -> torch.Tensor:
    phase, groups, step = next(iter(credited(method, build_cast(method, model))))
    return gradient(groups, phase.learn, step)


def test_starpo_that_keeps_every_group_is_ppo_over_episodes(small_model: Path) -> None:
    """share = 1, one clip range, no entropy bonus; PPO with GAE(1, 1) and without its KL."""
    games = Tossed(source("guess"))
    off = policy_gradient(starpo(games, n=3, share=1.0, eps_high=0.2, entropy=0.0, critic_lr=1.0), small_model)
    plain = policy_gradient(played(ppo(games, n=3, kl=0.0, lam=1.0, updates=1, value_coef=1.0), games), small_model)
    assert float(off.norm()) > 0 and torch.allclose(off, plain, rtol=1e-4, atol=1e-7)
    half = policy_gradient(starpo(games, n=3, share=0.5, eps_high=0.2, entropy=0.0, critic_lr=1.0), small_model)
    assert not torch.allclose(off, half, rtol=1e-2)


class Even(MadeTasks):
    """A source whose verifier takes replies with an even number of letters."""

    eager = None

    def require_verifier(self, split: str) -> None: ...

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        return [Verdict(float(len(reply) % 2 == 0), len(reply) % 2 == 0) for reply in replies]

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdicts([task], [reply])[0]


def test_ufo_of_one_attempt_is_ppo_on_single_replies(small_model: Path) -> None:
    asked = Even(source("sort"))
    once = Attempts(asked, 1, lambda made, over: made[-1].score)
    options = {"n": 4, "kl": 0.1, "updates": 1}
    off = policy_gradient(ufo(asked, attempts=1, **options), small_model)
    plain = policy_gradient(played(ppo(once, lam=1.0, value_coef=1.0, **options), once), small_model)
    assert float(off.norm()) > 0 and torch.allclose(off, plain, rtol=1e-4, atol=1e-7)


def test_score_without_the_bonus_is_reinforce_with_the_reward_of_each_attempt(small_model: Path) -> None:
    """alpha = 0: A = r_k - mean r_k of the k-th attempts, on the tokens of that attempt alone."""
    built = score(Even(source("sort")), n=4, alpha=0.0, first_stage=0)
    [(_, groups, _)] = list(credited(built, build_cast(built, small_model)))[-1:]
    different = 0
    for group in groups:
        rewards = [[r for r in trace.turn_scores["reward"] if not math.isnan(r)] for trace in group.traces]
        assert all(set(own) <= {0.0, 1.0} and len(own) == 2 for own in rewards)
        for trace, own in zip(group.traces, rewards, strict=True):
            spans = [(start, end) for turn, start, end in trace.spans() if turn.author == "policy"]
            for k, (start, end) in enumerate(spans):
                wanted = own[k] - sum(other[k] for other in rewards) / len(rewards)
                assert trace.streams["adv"][start:end].tolist() == pytest.approx([wanted] * (end - start))
                different += wanted != 0
    assert different


class Says(MadeTasks):
    """A source whose verifier takes the reply "right"."""

    eager = None

    def require_verifier(self, split: str) -> None: ...

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        return [Verdict(float(reply == "right"), reply == "right") for reply in replies]

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdicts([task], [reply])[0]


def paid(method: Any, *replies: str) -> list[float | None]:
    """What the environment of a method's last phase pays for these replies."""
    step = Step(Clock(0, 1), None, SMALL)  # type: ignore[arg-type]
    env = method.phases[-1].draw.call(step)[0].given["env"]()
    env.reset()
    found: list[Outcome] = []
    for reply in replies:
        assert not found or not found[-1].over
        found.append(env.step(reply))
    return [outcome.reward for outcome in found]


def test_ufo_pays_for_early_success_and_different_answers() -> None:
    method = ufo(Says(source("sort")))
    assert paid(method, "right") == [1.0]
    assert paid(method, "a", "b", "right") == [0.0, 0.0, 0.25]
    assert paid(method, "a", "A", "right")[-1] == pytest.approx(0.25 - 0.5 / 3)
    assert paid(method, "a", "b", "c", "d", "e")[-1] == 0.0
    assert paid(ufo(Says(source("sort")), attempts=1), "a") == [0.0]


def test_score_pays_for_progress() -> None:
    """alpha 10: wrong then right 0 and 11, right then wrong 1 and -10, right twice 1 and 1."""
    method = score(Says(source("sort")))
    assert paid(method, "wrong", "right") == [0.0, 11.0]
    assert paid(method, "right", "wrong") == [1.0, -10.0]
    assert paid(method, "right", "right") == [1.0, 1.0]
    assert paid(score(Says(source("sort")), alpha=0.0), "wrong", "right") == [0.0, 1.0]


def test_attempts_end_when_one_is_right_or_all_are_made() -> None:
    tried = Attempts(Says(source("sort")), 3, lambda made, over: 0.0)
    env = tried.task("train", 0).given["env"]()
    env.reset()
    assert not env.step("a").over and env.key() == "a"
    assert env.step("right").terminated


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gigpo", "starpo"])
def test_games_are_learned(name: str, tmp_path: Path) -> None:
    from burnish import train

    options = {"prompts": 16, "max_new_tokens": 8, "eval_tasks": 100, "eval_every": 0, "seed": 0}
    result = train(name, task="guess:1", steps=20, out=str(tmp_path / "run"), **options)
    assert result.before is not None and result.after is not None
    before, after = result.before.as_sampled, result.after.as_sampled  # greedy games are won before, too: 94%
    assert after.mean > before.mean + 0.1


def test_a_step_of_each_runs(small_model: Path) -> None:
    for name in ("gigpo", "starpo"):
        method = find(name).build(source("guess"), n=3)
        report = next(loop(method, build_cast(method, small_model), SMALL, steps=1))
        assert report.metrics["turns"] > 0
