"""Several players: whose turn it is, a view and a trace for each seat, rewards by seat, and who is trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL, build_cast

from burnish.compose.multi_turn import played
from burnish.compose.seats import read_opponent, seated
from burnish.core.loop import loop
from burnish.core.method import Method, frozen, roles
from burnish.core.step import Step
from burnish.core.types import Clock, Group
from burnish.envs.games.deal import Bargain, Haggling
from burnish.envs.games.nim import Heap, Taking
from burnish.envs.games.questions import Items, Questions
from burnish.envs.protocol import Outcome
from burnish.evals.evaluate import evaluate
from burnish.methods.table import find
from burnish.rollout.play import _shared, play
from burnish.tasks.environment import EnvSource
from burnish.tasks.source import Source
from burnish.tasks.table import source
from burnish.tasks.task_set import OPPONENT, with_opponent

SHORT = replace(SMALL, max_new_tokens=3)


class Echo:
    """Two players in turn, two replies each: `left` is paid 1 for each of its own, and both 10 at the end."""

    seats = ("left", "right")

    def reset(self, seed: int) -> Any:
        self.made = 0
        return ({"role": "system", "content": "You are left."}, {"role": "user", "content": "Go."})

    def seat(self) -> str:
        return self.seats[self.made % 2]

    def step(self, action: str) -> Outcome:
        self.made += 1
        paid = 1.0 if self.seat() == "right" else None
        if self.made == 4:
            return Outcome("", paid, terminated=True, rewards={"left": 10.0, "right": 10.0})
        return Outcome(f"{self.seat()} sees {self.made}", paid)


class Resigns(Echo):
    """The right player begins, and the game is over before the left one has a turn."""

    def seat(self) -> str:
        return "right"

    def step(self, action: str) -> Outcome:
        return Outcome("", terminated=True, rewards={"left": 1.0})


class Stranger(Echo):
    def step(self, action: str) -> Outcome:
        return Outcome("", terminated=True, rewards={"nobody": 1.0})


def episodes(task: Source, model: Path, n: int = 2) -> list[Group]:
    method = find("grpo").build(task)
    cast = build_cast(replace(method, models=roles(ref=frozen("policy"), other=frozen("policy"))), model)
    return play(n).call([task.task("train", 0)], Step(Clock(0, 1), cast, SHORT))


def test_each_seat_of_the_policy_is_a_trace_with_its_own_view_and_rewards(small_model: Path) -> None:
    """left: 1 for each reply, and 10 at the end, which falls on its last reply; right: 10 on its last reply."""
    left, right = episodes(EnvSource(Echo), small_model)
    assert [left.task.key.rpartition(" ")[2], right.task.key.rpartition(" ")[2]] == ["left", "right"]
    for group, rewards in ((left, [1.0, 11.0]), (right, [0.0, 10.0])):
        for trace in group.traces:
            assert [turn.author for turn in trace.turns] == ["task", "policy", "env", "policy"]
            assert trace.turn_scores["reward"][1::2] == rewards and trace.scores["reward"] == sum(rewards)
            assert trace.note["turns"] == 2 and trace.note["done"]
    assert right.task.prompt == ({"role": "user", "content": "right sees 1"},)
    assert left.traces[0].note["seat"] == "left" and right.traces[0].note["seat"] == "right"


def test_other_seats_are_sampled_by_the_opponent_and_give_no_trace(small_model: Path) -> None:
    task = with_opponent(EnvSource(Echo), ("other",), "other")
    (group,) = episodes(task, small_model)
    assert [trace.note["seat"] for trace in group.traces] == ["left", "left"]
    assert {trace.note["against"] for trace in group.traces} == {"other"}
    assert all(set(trace.authors()) == {"task", "policy", "env"} for trace in group.traces)
    assert all(trace.scores["reward"] == 12.0 for trace in group.traces)


def test_a_game_that_ends_before_the_policys_turn_still_pays(small_model: Path) -> None:
    (group,) = episodes(with_opponent(EnvSource(Resigns), ("other",), "other"), small_model)
    assert [len(trace.turns) for trace in group.traces] == [1, 1]
    assert [trace.scores["reward"] for trace in group.traces] == [1.0, 1.0]


def test_a_seat_that_the_environment_plays_gives_no_trace(small_model: Path) -> None:
    for name in ("nim:1", "deal:1", "twenty_questions:1"):
        (group,) = episodes(source(name), small_model)
        assert [trace.note["seat"] for trace in group.traces] == ["player", "player"]
        assert "against" not in group.traces[0].note


def test_a_reward_for_a_stranger_is_a_failure(small_model: Path) -> None:
    with pytest.raises(ValueError, match="rewards 'nobody', which is none of its seats"):
        episodes(EnvSource(Stranger), small_model)


def test_views_of_nim_with_two_models() -> None:
    game = Taking(Heap(8, "opponent"))
    assert game.reset(seated=True) == "Take 1 to 3, the last one wins. 8 left." and game.seat() == "opponent"
    seen = game.step("2")
    assert seen.observation == "Take 1 to 3, the last one wins. I take 2. 6 left." and game.seat() == "player"
    assert game.step("2").observation == "I take 2. 4 left." and game.seat() == "opponent"
    assert game.step("0").rewards == {"player": 1.0, "opponent": 0.0}


def test_views_of_a_deal_with_two_models() -> None:
    game = Haggling(Bargain(True, 10, 6, 8, 2))
    assert game.reset(seated=True) == "You sell, worth 6 to you, 2 rounds. Name a price." and game.seat() == "opponent"
    assert game.step("9").observation == "You buy, worth 10 to you, 2 rounds. I ask 9."
    assert game.step("7").observation == "I offer 7."
    done = game.step("7")
    assert done.rewards == {"player": 0.75, "opponent": 0.25}


def test_a_model_answers_questions_as_the_user() -> None:
    game = Questions(Items(("ab", "b", "a"), 2, 3))
    game.reset(seated=True)
    asked = game.step("b")
    assert game.seat() == "user" and [m["role"] for m in asked.observation] == ["system", "user"]
    assert asked.observation[1]["content"] == "Your item: a. b?" and game.expert() == "no"
    assert game.step("No.").observation == "no" and game.seat() == "player" and game.left == ["C"]
    assert game.step("a").observation == "a?"
    assert game.step("hm").observation == "no answer"
    assert game.step("C").reward == 1.0


@pytest.mark.parametrize("opponent", ["self", "start", "snapshot(2)", "league(2, 1)"])
@pytest.mark.parametrize("name", ["grpo", "gigpo"])
def test_a_step_against_each_opponent(name: str, opponent: str, small_model: Path) -> None:
    who = read_opponent(opponent)
    task = with_opponent(source("nim:1"), who.train, who.heldout)
    method: Method = seated(played(find(name).build(task, n=2), task), who)
    cast = build_cast(method, small_model)
    report = next(loop(method, cast, SHORT, steps=1))
    seats = {trace.note["seat"] for group in report.groups["main"] for trace in group.traces}
    assert seats == ({"player", "opponent"} if opponent == "self" else {"player"})
    found = evaluate(cast, task, SHORT, tasks=3, k=2)
    assert [len(row) for row in found.rewards] == [2, 2, 2]


def test_what_is_said_of_opponents() -> None:
    assert read_opponent("snapshot").roles["opponent"].every == 10
    assert read_opponent("snapshot(3)").roles["opponent"].every == 3 and read_opponent("snapshot(3)").heldout == "start"
    assert read_opponent("runs/a/model").roles["opponent"].source == "runs/a/model"
    for wrong, why in (("snapshot(0)", "every 1 or more"), ("snapshot(x)", "it is self, start")):
        with pytest.raises(ValueError, match=why):
            read_opponent(wrong)
    with pytest.raises(ValueError, match="no environment of several players"):
        with_opponent(source("sort"), ("start",), "start")
    with pytest.raises(ValueError, match="no environment of several players"):
        with_opponent(source("maze"), ("start",), "start")
    with pytest.raises(ValueError, match="plays no episodes"):
        seated(find("sft").build(source("nim")), read_opponent("start"))


def test_a_group_whose_first_views_differ_shows_what_they_share() -> None:
    views = [({"role": "user", "content": f"Take 1 to 3. I take {n}."},) for n in (1, 2)]
    assert _shared(views) == ({"role": "user", "content": "Take 1 to 3. I take ..."},)
    assert _shared(views[:1]) == views[0] and _shared([]) == ()


class Table(Echo):
    """Three players, one after the other; the reply of each is seen by the next."""

    seats = ("left", "right", "judge")

    def seat(self) -> str:
        return self.seats[self.said % 3]

    def reset(self) -> str:
        self.said = 0
        return "left begins"

    def step(self, action: str) -> Outcome:
        self.said += 1
        return Outcome(f"{self.seat()} sees {self.said}", 1.0, terminated=self.said == 3)


def test_a_league_has_snapshots_of_different_ages_and_each_task_one_of_them() -> None:
    """league(3, 2): after steps 1, 3, 5, 7, ... (counted from 0) one member is renewed, in turn."""
    league = read_opponent("league(3, 2)")
    assert league.train == ("league0", "league1", "league2") and league.heldout == "start"
    renewed = [[name for name in league.train if league.roles[str(name)].due(Clock(step, 40))] for step in range(12)]
    assert renewed == [[] if step % 2 == 0 else [f"league{step // 2 % 3}"] for step in range(12)]
    task = with_opponent(source("nim:1"), league.train, league.heldout)
    against = [task.task("train", i).given[OPPONENT] for i in range(60)]
    assert set(against) == set(league.train) and all(against.count(name) > 8 for name in league.train)
    assert against == [task.task("train", i).given[OPPONENT] for i in range(60)]
    assert {task.task("heldout", i).given[OPPONENT] for i in range(9)} == {"start"}
    method = seated(played(find("grpo").build(task), task), league)
    assert {f"model:{name}.generate" for name in league.train} <= method.phases[0].rollout.reads
    for wrong in ("league(0)", "league(2, 0)"):
        with pytest.raises(ValueError, match="a league has 1 or more members"):
            read_opponent(wrong)


def test_seats_with_models_of_their_own(small_model: Path) -> None:
    """right is the start, the judge another model; a seat that is not named would be the policy's."""
    who = read_opponent("right=start, judge=runs/judge/model")
    assert who.heldout == {"right": "start", "judge": "opponent_judge"} == who.train[0]
    assert who.roles["opponent_judge"].source == "runs/judge/model" and set(who.models()) == {"start", "opponent_judge"}
    by_seat = {"right": "other", "judge": "ref"}
    (group,) = episodes(with_opponent(EnvSource(Table), (by_seat,), by_seat), small_model)
    assert [trace.note["seat"] for trace in group.traces] == ["left", "left"]
    assert group.traces[0].note["against"] == by_seat
    both = episodes(with_opponent(EnvSource(Table), ({"right": "other"},), {"right": "other"}), small_model)
    assert [group.traces[0].note["seat"] for group in both] == ["left", "judge"]
    with pytest.raises(ValueError, match="names the seat 'user'; task 'Table' has right, judge"):
        with_opponent(EnvSource(Table), ({"user": "other"},), "other")
    for wrong in ("right=start,right=self", "right=league"):
        with pytest.raises(ValueError, match="--opponent right="):
            read_opponent(wrong)
