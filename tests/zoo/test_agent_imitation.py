"""Agents that imitate: improved replies, an expert's steps, mended mistakes. Numbers by hand, and the laws of each."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast, coin, credited
from gradients import gradient
from test_agent_turns import Says, nothing, turn

from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.envs.action_check import check_action, check_calls
from burnish.learn.learn import Learn, measure
from burnish.learn.norms import seq_mean
from burnish.learn.term import CLAIMED
from burnish.learn.terms.imitation import imitate
from burnish.methods.imitation import sft
from burnish.tasks.resolve import resolve_task
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded
from burnish.zoo.agentrefine import Refined, agentrefine, count_refinements
from burnish.zoo.rise import best_of_states, reward_weights, rise
from burnish.zoo.stepagent import (
    discriminator_rewards,
    expert_labels,
    expert_over_own,
    expert_steps,
    stepagent,
    stepagent_inverse,
)

ACTIONS = ["go to {place}", "take {item} from {place}", "look"]
SLOTS = {"place": ["kitchen", "cellar"], "item": ["lamp"]}


def said(action: str) -> str:
    return f"Thought: so be it\nAction: {action}"


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (said("look"), None),
        (said("Go to  Cellar"), None),
        (said("take lamp from kitchen"), None),
        ("look", "format"),
        ("Action: look", "format"),
        ("Thought:\nAction: look", "format"),
        (said("look\nAction: look"), "format"),
        (said(""), "format"),
        (said("x" * 501), "format"),
        (said("fly"), "name"),
        (said("looking"), "name"),
        (said("go to attic"), "arguments"),
        (said("go to"), "arguments"),
        (said("take lamp"), "arguments"),
        (said("look here"), "arguments"),
    ],
)
def test_actions_are_checked_by_format_name_and_arguments(reply: str, kind: str | None) -> None:
    fault = check_action(reply, ACTIONS, SLOTS)
    assert (fault.kind if fault else None) == kind


def test_a_slot_without_values_takes_any_words() -> None:
    assert check_action(said("take a lamp from the attic"), ACTIONS) is None


def test_calls_of_tools_are_checked_by_their_schemas() -> None:
    schema = {"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}, "required": ["a"]}}
    tools = [{"type": "function", "function": schema}]

    def kind(text: str) -> str | None:
        fault = check_calls(text, tools)
        return fault.kind if fault else None

    assert kind('<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>') is None
    assert kind("an answer") is None
    assert kind("<tool_call>{</tool_call>") == "format"
    assert kind('<tool_call>{"name": "g", "arguments": {}}</tool_call>') == "name"
    assert kind('<tool_call>{"name": "f", "arguments": {"b": 1}}</tool_call>') == "arguments"


def conversation(*actions: str, **columns: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Find the lamp."}]
    for action in actions:
        messages += [{"role": "assistant", "content": said(action)}, {"role": "user", "content": "ok"}]
    return {"messages": messages[:-1], "actions": ACTIONS, "slots": SLOTS, **columns}


def data(tmp_path: Path, *rows: dict[str, Any], copies: int = 4) -> str:
    file = tmp_path / "agent.jsonl"
    file.write_text("\n".join(json.dumps({**row, "id": i}) for i in range(copies) for row in rows))
    return str(file)


def test_mistakes_are_read_but_not_trained_on(tmp_path: Path, small_model: Path) -> None:
    method = agentrefine(resolve_task(data(tmp_path, conversation("go to attic", "go to cellar", "look"))))
    models = build_cast(method, small_model)
    ((_, groups, _),) = credited(method, models)
    (trace,) = groups[0].traces
    chat = models["policy"].chat
    trained = [chat.text(one.tokens) for one in trace.turns if one.author == "demo"]
    assert trained == [said("go to cellar"), said("look")]
    assert said("go to attic") in chat.text(trace.tokens)
    assert bool((trace.streams["claim:sft"] == trace.by("demo")).all())
    assert groups[0].task.given["faults"][0]["kind"] == "arguments"


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        (conversation("fly", "look"), True),
        (conversation("look", "look"), False),  # nothing was mended
        (conversation("fly", "fly"), False),  # it ends in a mistake
        (conversation("fly", "look", success=False), False),
    ],
)
def test_conversations_are_kept_by_success_and_refinement(
    row: dict[str, Any], kept: bool, tmp_path: Path, small_model: Path
) -> None:
    method = agentrefine(resolve_task(data(tmp_path, row)))
    ((_, groups, _),) = credited(method, build_cast(method, small_model))
    assert bool(groups) == kept


def test_agentrefine_without_mistakes_is_sft(tmp_path: Path, small_model: Path) -> None:
    task = resolve_task(data(tmp_path, conversation("look", "go to cellar")))
    found = []
    for method in (agentrefine(task, refinements=0), sft(task)):
        ((phase, groups, step),) = credited(method, build_cast(method, small_model))
        found.append(gradient(groups, phase.learn, step))
    assert torch.equal(*found) and bool(found[0].any())


def test_refinements_are_counted() -> None:
    assert [count_refinements(faults) for faults in ([], [1, None], [1, 1, None], [1, None, 1, None], [None, 1])] == [
        0,
        1,
        1,
        2,
        0,
    ]


@pytest.mark.parametrize("columns", [{"actions": "look"}, {"slots": ["kitchen"]}])
def test_actions_that_cannot_be_read_are_refused(columns: dict[str, Any]) -> None:
    row = {**conversation("look"), **columns}
    task = Task("demo", "?", {**row, "demo": said("look")}, "k")
    with pytest.raises(ValueError, match="not a list of patterns|not an object"):
        Refined(_One(task)).task("train", 0)  # type: ignore[arg-type]


class _One(Says):
    def __init__(self, task: Task) -> None:
        super().__init__(source("sort"))
        self.one = task

    def task(self, split: str, index: int) -> Task:
        return self.one


def test_expert_states_are_the_experts(tmp_path: Path, small_model: Path) -> None:
    task = resolve_task(data(tmp_path, conversation("look", "go to cellar")))
    models = build_cast(stepagent(task), small_model)
    step = Step(Clock(0, 1), models, SMALL)
    (group,) = expert_steps().call([task.task("train", 0)], step)
    assert [sorted(trace.tags) for trace in group.traces] == [["expert", "step"], ["own", "step"]] * 2
    assert group.traces[2].turns[:-1] == group.traces[3].turns[:-1], "both act in one state"
    chat = models["policy"].chat
    assert chat.text(group.traces[2].turns[-1].tokens) == said("go to cellar")
    assert [one.author for one in group.traces[3].turns] == ["task", "demo", "env", "policy"]
    expert_over_own().call([group], step)
    assert group.pairs == [(0, 1), (2, 3)]


def test_equal_actions_have_no_gradient(tmp_path: Path, small_model: Path) -> None:
    method = stepagent(resolve_task(data(tmp_path, conversation("look"))))
    ((phase, groups, step),) = credited(method, build_cast(method, small_model))
    assert bool(gradient(groups, phase.learn, step).any())
    for group in groups:
        shown = group.traces[0]
        group.traces[1] = Trace(shown.turns, 1, streams=dict(shown.streams), tags=frozenset({"own", "step"}))
    assert float(gradient(groups, phase.learn, step).abs().max()) < 1e-7


def test_the_discriminators_logit_is_the_reward() -> None:
    """D = .5 pays 0; D = .9 pays log 9 at the last token of an own action, and nothing to the expert's."""
    traces = [Trace((turn(1, "task"), turn(2, "policy")), tags=frozenset({tag})) for tag in ("own", "own", "expert")]
    for trace, chance in zip(traces, (0.5, 0.9, 0.9), strict=True):
        trace.streams["verdict"] = torch.full((3,), math.log(chance / (1 - chance)))
    group = Group(Task("demo", "?", {}, "k"), traces)
    discriminator_rewards().call([group], nothing())
    expert_labels().call([group], nothing())
    assert traces[0].streams["reward"][1:].tolist() == [0.0, 0.0]
    assert traces[1].streams["reward"][1:].tolist() == pytest.approx([0.0, math.log(9)])
    assert bool(traces[2].streams["reward"].isnan().all())
    assert [float(trace.streams["label"][-1]) for trace in traces] == [0.0, 0.0, 1.0]


def test_the_discriminator_learns_to_tell_them_apart(tmp_path: Path, small_model: Path) -> None:
    method = stepagent_inverse(resolve_task(data(tmp_path, conversation("look", "go to cellar"))))
    phase, groups, step = next(credited(method, build_cast(method, small_model)))
    Learn(*phase.learn.terms, updates=30).call(groups, step)
    end = Step(Clock(0, 1), step.models, SMALL)
    Learn(*phase.learn.terms).call(groups, end)
    assert end.notes.means()["discriminator/accuracy"] > 0.9


def candidate(state: list[int], reward: float, *earlier: float) -> Trace:
    note = {"state": state, "earlier": list(earlier)}
    return Trace((turn(1, "task"), turn(2, "policy")), scores={"reward": reward, "correct": reward}, note=note)


def test_replies_weigh_by_their_reward() -> None:
    """tau .4: r 0 weighs 1, r 1 weighs 12.18; tau infinite: all weigh 1, which is SFT."""
    for tau, wanted in ((0.4, [1.0, 12.182494]), (math.inf, [1.0, 1.0])):
        traces = [candidate([0, 0], reward) for reward in (0.0, 1.0)]
        reward_weights(tau).call([Group(Task("q", "?", {}, "k"), traces)], nothing())
        assert [float(trace.streams["weight"][-1]) for trace in traces] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(("rule", "kept"), [("all", 3), ("better", 2), ("best", 1), ("success", 1)])
def test_the_best_reply_of_each_state_is_kept_by_a_rule(rule: str, kept: int) -> None:
    states = [
        candidate([0, 0], 0.0),
        candidate([0, 0], 0.0),
        candidate([0, 1], 0.2, 0.0),
        candidate([0, 1], 0.5, 0.0),
        candidate([0, 2], 0.0, 0.0, 0.5),
    ]
    states[3].scores["correct"] = 1.0
    for trace in (states[0], states[1], states[4]):
        trace.scores["correct"] = 0.0
    states[0].note["earlier"] = states[1].note["earlier"] = [0.4] if rule == "best" else []
    (group,) = best_of_states(rule).call([Group(Task("q", "?", {}, "k"), list(states))], nothing())
    assert len(group.traces) == kept and states[3] in group.traces and states[2] not in group.traces


@pytest.mark.parametrize(("rewards", "lengths"), [((1.0, 0.0, 0.0), (1, 3, 2)), ((0.0, 0.5, 1.0), (4, 1, 2))])
def test_rise_weighs_means_of_tokens(rewards: tuple[float, ...], lengths: tuple[int, ...], small_model: Path) -> None:
    """mean over replies of e^(r / 0.4) x the mean of their tokens' -log pi: a long reply weighs no more."""
    method = rise(rewarded(source("sort"), coin), attempts=1, candidates=2)
    models = build_cast(method, small_model)
    ((phase, groups, step),) = credited(method, models)
    prompt = groups[0].traces[0].turns[0]
    traces = [
        Trace((prompt, Turn(torch.arange(size) + 5 * k, "policy", parent=prompt)), k, {"reward": r})
        for k, (size, r) in enumerate(zip(lengths, rewards, strict=True))
    ]
    batch = [Group(groups[0].task, traces)]
    reward_weights(0.4).call(batch, nothing())
    for trace in traces:
        trace.streams["claim:sft"] = trace.by("policy")
    with torch.no_grad():
        nll = [-models["policy"].outputs([t.tokens], [t.by("policy")], {"logp"})["logp"].mean() for t in traces]
    wanted = sum(math.exp(r / 0.4) * float(x) for r, x in zip(rewards, nll, strict=True)) / 3
    assert measure(batch, phase.learn, step) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize(("reward", "kept"), [(0.5, True), (0.6, True), (0.4, False)])
def test_as_good_as_the_best_attempt_is_best_so_far(reward: float, kept: bool) -> None:
    state = candidate([0, 2], reward, 0.5, 0.2)
    assert bool(best_of_states("best").call([Group(Task("q", "?", {}, "k"), [state])], nothing())) == kept


def test_rise_trains_on_the_reply_and_reads_the_attempts(small_model: Path) -> None:
    found = []
    for tau in (0.4, math.inf):
        method = rise(rewarded(source("sort"), coin), attempts=3, candidates=2, tau=tau)
        ((phase, groups, step),) = credited(method, build_cast(method, small_model))
        found.append(gradient(groups, phase.learn, step))
    for trace in (trace for group in groups for trace in group.traces):
        claimed = trace.streams["claim:sft"]
        assert int(claimed.sum()) == len(trace.turns[-1]) and bool(claimed[-1])
    assert any(len(trace.turns) > 2 for group in groups for trace in group.traces), "some state is a second attempt"
    plain = Learn(imitate(norm=seq_mean, on=CLAIMED, name="sft"), logp_temperature=1.0)
    assert torch.allclose(found[1], gradient(groups, plain, step))
    assert not torch.allclose(found[0], found[1])


@pytest.mark.slow
def test_rise_learns_to_sort(tmp_path: Path) -> None:
    from burnish import train

    options = {"prompts": 16, "eval_tasks": 100, "eval_every": 0, "seed": 0}
    result = train("rise", task="sort", steps=12, candidates=8, attempts=3, out=str(tmp_path / "run"), **options)
    before, after = (outcome.sampled.accuracy for outcome in (result.before, result.after))  # type: ignore[union-attr]
    assert after.mean > before.mean + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stepagent", "stepagent_inverse"])
def test_an_experts_games_are_learned(name: str, tmp_path: Path) -> None:
    """Binary search as the expert: the model plays the game better afterwards."""
    from burnish import train
    from burnish.core.seeds import rng
    from burnish.envs.guess import Guess
    from burnish.store.reader import open_store

    games, file = Guess(1), tmp_path / "games.jsonl"
    rows = [games.transcript(games.problem("train", i), rng("expert", i), 1.0) for i in range(300)]
    file.write_text("\n".join(json.dumps({"messages": messages}) for messages in rows))
    options = {"prompts": 16, "max_new_tokens": 8, "eval_tasks": 100, "eval_every": 0, "seed": 0}
    run = tmp_path / "run"
    train(name, task=str(file), steps=24, out=str(run), **options)
    with open_store(run) as store:
        rows = store.sql("SELECT value FROM metrics WHERE name = 'matched' ORDER BY step")
    matched = [row["value"] for row in rows]
    assert len(matched) == 24 and sum(matched[-4:]) > sum(matched[:4]) + 0.2
