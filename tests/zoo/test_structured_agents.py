"""Intrinsic functions, a simulated user, and a helper that asks for help: by hand, and without their idea."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast

from burnish.core.loop import loop, run_phase
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.methods.imitation import sft
from burnish.select.remember import Store
from burnish.tasks.table import source
from burnish.tasks.user import next_said, read_said, write_said
from burnish.zoo.pangu_agent import Intrinsic, pangu_agent
from burnish.zoo.self_regulation import HelperTable, Transition, helper_states, recorded_steps, self_regulating
from burnish.zoo.user_simulator import Counts, speaking, user_simulator


def now(models: Any = None) -> Step:
    return Step(Clock(0, 1), models, SMALL)


# ------------------------------------------------------------------------------------------------------------ pangu


def test_intrinsic_functions_come_before_each_action() -> None:
    task = Intrinsic(source("guess:1"), ["think", "plan"]).task("train", 0)
    plain = source("guess:1").task("train", 0)
    number = plain.given["answer"]
    assert task.prompt[0]["content"] == f"{plain.prompt[0]['content']}\nThink."  # type: ignore[index]
    env = task.given["env"]()
    assert env.reset() == task.prompt[0]["content"]  # type: ignore[index]
    first, second = env.step(f"my guess is {number}"), env.step("a plan")
    assert (first.observation, first.reward) == ("Plan.", 0.0) and second.observation == "Act."
    assert env.inner.made == 0  # the environment has seen nothing
    last = env.step(number)
    assert last.terminated and last.reward == 1.0


def test_a_wrong_action_is_followed_by_the_first_function() -> None:
    env = Intrinsic(source("guess:1"), ["think"]).task("train", 0).given["env"]()
    env.reset()
    before = env.key()
    env.step("hm")
    assert env.key() != before
    found = env.step("0")
    assert found.observation == "higher\nThink."


def test_without_functions_the_tasks_are_the_same() -> None:
    direct, plain = (one.task("train", 3) for one in (Intrinsic(source("guess"), []), source("guess")))
    assert direct.prompt == plain.prompt and direct.given["env"].args == plain.given["env"].args
    with pytest.raises(ValueError, match="no intrinsic function 'dream'"):
        Intrinsic(source("guess"), ["dream"])
    with pytest.raises(ValueError, match="no environment"):
        Intrinsic(source("sort"), ["think"])


def test_all_tokens_of_a_step_are_trained(small_model: Path) -> None:
    method = pangu_agent(source("guess:1"), n=2, functions="think", sft_steps=0)
    models = build_cast(method, small_model)
    phase = method.phases[1]
    groups = phase.rollout.call(phase.draw.call(now(models)), now(models))
    trace = groups[0].traces[0]
    replies = [turn for turn in trace.turns if turn.author == "policy"]
    assert len(replies) >= 4 and len(trace.note["keys"]) == len(replies)
    groups = phase.credit.call(groups, now(models))
    assert not torch.isnan(trace.streams["adv"][trace.by("policy")]).any()


# ------------------------------------------------------------------------------------------------------------- user


def test_what_a_user_says_next() -> None:
    goals = ["cup", "lamp"]
    assert next_said(goals, []) == ("instruct", "cup")
    assert next_said(goals, ["user: cup", "robot: works"]) == ("", "")
    assert next_said(goals, ["user: cup", "robot: what?"]) == ("answer", "cup")
    assert next_said(goals, ["user: cup", "robot: cup done"]) == ("instruct", "lamp")
    assert next_said(goals, ["user: cup", "robot: pan done"]) == ("correct", "cup")
    assert next_said(goals, ["user: cup", "robot: cup done", "user: lamp", "robot: lamp done"]) == ("thank", "thanks")


def test_replies_of_users_are_read_and_judged() -> None:
    assert read_said(" OBSERVE\n") == ("", "") and read_said("SPEAK(thank): thanks") == ("thank", "thanks")
    assert read_said("observe") is None and read_said("") is None
    family = source("user:2")
    for i in range(40):
        task = family.task("train", i)
        assert family.verify(task, task.given["demo"]).correct
        assert not family.verify(task, task.given["mistake"]).correct
    spoken = next(t for t in (family.task("train", i) for i in range(40)) if t.given["said"][0])
    assert family.verify(spoken, write_said((spoken.given["said"][0], "other words"))).score == 0.5
    acts = {family.task("train", i).given["said"][0] for i in range(200)}
    assert acts == {"", "instruct", "answer", "correct", "thank"}
    assert not {family.task("train", i).key for i in range(50)} & {family.task("heldout", i).key for i in range(50)}


def test_f1_of_when_and_what_by_hand() -> None:
    """Human speaks in 3 of 4 steps, the model in 3: both in 2, one act is the same.

    speak: 2 x 2 / (3 + 3) = .67;  act: 2 x 1 / (2 + 3) = .4
    """
    counts = Counts()
    for said, right in (
        ("SPEAK(instruct): cup", "SPEAK(instruct): cup"),
        ("SPEAK(thank): thanks", "SPEAK(correct): cup"),
        ("OBSERVE", "SPEAK(answer): cup"),
        ("nonsense", "OBSERVE"),
    ):
        counts.add(said, right)
    assert counts.speak_f1 == (4.0, 6.0) and counts.act_f1 == (2.0, 5.0)


def test_measures_are_noted_from_replies(small_model: Path) -> None:
    method = user_simulator(source("user"), measure_every=1)
    models = build_cast(method, small_model)
    chat, step = models["policy"].chat, now(models)
    groups = []
    for said, demo in (("SPEAK(thank): x", "SPEAK(thank): y"), ("OBSERVE", "SPEAK(thank): y")):
        task = Task("question", "?", {"demo": demo}, said)
        groups.append(Group(task, [Trace((Turn(chat.prompt(task), "task"), Turn(chat.reply(said), "policy")))]))
    speaking().call(groups, step)
    assert step.notes.means()["speak_f1"] == pytest.approx(2 / 3)


def test_a_user_simulator_without_measurements_is_sft(small_model: Path) -> None:
    weights = []
    for method in (user_simulator(source("user"), measure_every=100), sft(source("user"))):
        models = build_cast(method, small_model)
        for _ in loop(method, models, SMALL, steps=2, seed=0):
            pass
        weights.append(torch.cat([p.flatten() for p in models["policy"].module.parameters()]))
    assert torch.equal(*weights)


# ----------------------------------------------------------------------------------------------------------- helper


def outcomes(state: str, helped: bool, wins: int, of: int = 10) -> list[Transition]:
    return [Transition(state, helped, float(i < wins), None) for i in range(of)]


def two_states() -> HelperTable:
    """a: alone 2 of 10 won, with help 9; b: alone 6, with help 8. Episodes begin in both equally often."""
    steps = [*outcomes("a", False, 2), *outcomes("a", True, 9), *outcomes("b", False, 6), *outcomes("b", True, 8)]
    return HelperTable(steps, ["a", "b"])


def test_help_is_asked_for_where_it_is_worth_its_price() -> None:
    """Gains .7 in a and .2 in b: at price 0 both ask, at .5 only a, at 1 none."""
    table = two_states()
    assert table.asks(0.0) == {"a": True, "b": True} and table.requests(0.0) == 1.0
    assert table.asks(0.5) == {"a": True, "b": False} and table.requests(0.5) == 0.5
    assert table.values(0.5) == pytest.approx({"a": 0.4, "b": 0.6})
    assert table.asks(1.0) == {"a": False, "b": False} and table.requests(1.0) == 0.0


def test_the_price_keeps_to_the_budget() -> None:
    table = two_states()
    assert table.price_for(1.0) == 0.0
    assert table.price_for(0.5) == pytest.approx(0.2) and table.requests(table.price_for(0.5)) == 0.5
    assert table.price_for(0.0) == pytest.approx(0.7) and table.requests(table.price_for(0.0)) == 0.0


def test_values_look_ahead() -> None:
    """s -> a whatever is done; help in s gains nothing, so it is asked for in a alone."""
    steps = [Transition("s", helped, 0.0, "a") for helped in (False, True)]
    table = HelperTable([*steps, *outcomes("a", False, 2), *outcomes("a", True, 9)], ["s"])
    assert table.asks(0.1) == {"s": False, "a": True} and table.requests(0.1) == 1.0
    assert table.values(0.1)["s"] == pytest.approx(0.8)


def test_states_without_both_actions_have_no_label() -> None:
    table = HelperTable([*outcomes("a", False, 2), *outcomes("b", True, 5)], ["a", "b"])
    assert table.asks(0.0) == {} and table.requests(0.0) == 0.5
    assert table.price_for(0.0) == 0.0  # b asks at any price


def recorded(key: str, helped: bool, won: float) -> tuple[Group, Trace]:
    who = "expert" if helped else "policy"
    turns = (Turn(torch.tensor([1, 2]), "task"), Turn(torch.tensor([3]), who))
    trace = Trace(turns, scores={"reward": won}, turn_scores={"reward": [float("nan"), won]}, note={"keys": [key]})
    return Group(Task("game", "?", {}, "t"), [trace]), trace


def test_recorded_episodes_become_labelled_states() -> None:
    store = Store("helper", 100)
    store.add([recorded("s", helped, won)[0] for helped, won in ((True, 1.0), (True, 1.0), (False, 0.0), (False, 1.0))])
    group, trace = recorded("s", True, 1.0)
    assert recorded_steps(group, trace) == [(Transition("t | s", True, 1.0, None), 1)]
    assert recorded_steps(group, trace, "all") == [(Transition("s", True, 1.0, None), 1)], "the states of all tasks"
    step = now()
    drawn = helper_states(store, 1.0).call(step)
    assert len(drawn) == SMALL.prompts and all(task.given["asks"] is True and task.given["turn"] == 1 for task in drawn)
    assert all(task.given["asks"] is False for task in helper_states(store, 0.0).call(now()))


def test_the_helper_learns_its_labels(small_model: Path, other_model: Path) -> None:
    """Two states, one in which help wins and one in which it does not: the helper learns to ask in the first."""
    method = self_regulating(source("guess:1"), expert=str(other_model), budget=1.0, n=4, collect=0)
    models = build_cast(method, small_model)
    phase = method.phases[1]
    (store,) = phase.draw.state
    assert isinstance(store, Store)
    states = {"worth it": torch.tensor([10, 11, 12]), "not": torch.tensor([40, 41, 42])}
    for key, tokens in states.items():
        for helped, won in ((True, 1.0), (False, 0.0 if key == "worth it" else 1.0)):
            group, trace = recorded(key, helped, won)
            group.traces = [replace(trace, turns=(Turn(tokens, "task"), trace.turns[1]))]
            store.add([group])
    for i in range(40):
        run_phase(phase, Step(Clock(i, 40), models, SMALL), {}, [])
    traces = [Trace((Turn(tokens, "task"),)) for tokens in states.values()]
    found = models["helper"].streams(traces, [torch.tensor([False, False, True])] * 2, {"score"}, 4096)
    worth, idle = (float(output["score"][-1]) for output in found)
    assert worth > 1 and idle < -1


def test_a_budget_of_nothing_never_asks(small_model: Path, other_model: Path) -> None:
    method = self_regulating(source("guess:1"), expert=str(other_model), budget=0.0, n=4, collect=0, measure_every=2)
    models = build_cast(method, small_model)
    reports = [report.metrics for report in loop(method, models, SMALL, steps=2, seed=0)]
    assert reports[-1]["help_labels"] == 0.0 and reports[-1]["help_planned"] == 0.0 and "help_asked" in reports[-1]
