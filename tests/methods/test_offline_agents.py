"""Recorded episodes and values of tokens: numbers derived by hand, and what each method becomes without its idea."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast, credited
from gradients import gradient

from burnish.core.loop import loop
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace
from burnish.credit.turns import turn_rewards
from burnish.engine.mixture import by_values
from burnish.learn.learn import Learn
from burnish.learn.maths import token_values as maths
from burnish.learn.term import Live
from burnish.learn.terms.token_values import q_temporal, v_expectile
from burnish.methods.table import find
from burnish.rollout.trajectories import episode_trace
from burnish.select.returns import Returns, best_returns, normalised_score
from burnish.tasks.data.dataset import Dataset
from burnish.tasks.data.formats import to_task
from burnish.tasks.table import source

TALK = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "ab"},
    {"role": "user", "content": "go on"},
    {"role": "assistant", "content": "c"},
]


def with_rewards(*rewards: float | None) -> list[dict[str, Any]]:
    own = iter(rewards)
    return [{**m, "reward": next(own)} if m["role"] == "assistant" else m for m in TALK]


def live(outputs: dict[str, Any], streams: dict[str, Any], row: list[int]) -> Live:
    made = {name: torch.tensor(value) for name, value in outputs.items()}
    return Live(
        made,
        {name: torch.tensor(value) for name, value in streams.items()},
        torch.tensor(row),
        max(row) + 1,
        torch.zeros(0, 2),
        [],
        torch.zeros(max(row) + 1),
        Clock(0, 1),
    )


# ------------------------------------------------------------------------------------------------------- the data


def test_rewards_of_a_conversation_are_read_from_messages_or_columns() -> None:
    wanted = with_rewards(0.25, 1.0)
    for row in (
        {"messages": wanted},
        {"messages": TALK, "rewards": [0.25, 1.0]},
        {"conversations": TALK, "rewards": [0.25, 1]},
    ):
        task = to_task(row, {}, "here")
        assert task.given["episode"] == wanted
        assert task.prompt == tuple(TALK[:3]) and task.given["demo"] == "c"
        assert all("reward" not in message for message in task.given["messages"])
    assert to_task({"messages": TALK, "reward": 1}, {}, "here").given["episode"] == with_rewards(0.0, 1.0)
    assert to_task({"messages": with_rewards(None, 2)}, {}, "here").given["episode"] == with_rewards(0.0, 2.0)
    assert "episode" not in to_task({"messages": TALK, "rewards": ["good", "bad"]}, {}, "here").given


def test_bad_rewards_are_refused_with_their_place() -> None:
    user = [{**TALK[0], "reward": 1.0}, *TALK[1:]]
    for row, said in (
        ({"messages": user}, "line 3: a message with the role 'user' has a reward"),
        ({"messages": with_rewards("x", 1)}, "line 3: 'reward' of a message is 'x'"),  # type: ignore[arg-type]
        ({"messages": TALK, "rewards": [1.0]}, "line 3: 'rewards' has 1 numbers, but the conversation has 2 replies"),
    ):
        with pytest.raises(ValueError, match=said):
            to_task(row, {}, "line 3")
    with pytest.raises(ValueError, match="gives no 'episode'.*'reward'"):
        find("ilql").build(Dataset([{"messages": TALK}] * 4))


def test_an_episode_is_one_trace_with_rewards_on_its_turns(small_model: Path) -> None:
    from burnish.models.load import load_chat

    chat = load_chat(small_model)
    task = Task("demo", "hi", {"episode": with_rewards(0.25, 1.0)}, "hi")
    trace = episode_trace(task, "episode", "demo", chat, 256)
    assert [turn.author for turn in trace.turns] == ["task", "demo", "env", "demo"]
    assert [chat.text(turn.tokens) for turn in trace.turns if turn.author == "demo"] == ["ab", "c"]
    assert trace.scores == {"reward": 1.25} and trace.turn_scores["reward"][1::2] == [0.25, 1.0]
    turn_rewards(author="demo").call([Group(task, [trace])], Step(Clock(0, 1), None, SMALL))  # type: ignore[arg-type]
    mine = trace.streams["reward"][trace.by("demo")]
    assert mine.tolist() == [0.0, 0.0, 0.25, 0.0, 1.0]  # a, b, end of turn; c, end of turn
    assert trace.streams["reward"][~trace.by("demo")].isnan().all()
    with pytest.raises(ValueError, match="an episode is not cut"):
        episode_trace(task, "episode", "demo", chat, 10)


def test_games_record_episodes_of_mixed_skill_and_those_of_an_oracle() -> None:
    game = source("guess:1")
    tasks = [game.task("train", i) for i in range(40)]
    won = {name: sum(sum(m.get("reward", 0) for m in t.given[name]) for t in tasks) for name in ("episode", "oracle")}
    assert won["oracle"] == 40 and 10 < won["episode"] < 38
    env = tasks[0].given["env"]()
    env.reset()
    said = [m for m in tasks[0].given["episode"] if m["role"] == "assistant"]
    assert [env.step(m["content"])[1] for m in said] == [m["reward"] for m in said]


# ------------------------------------------------------------------------------------------------------ the maths


def test_the_expectile_by_hand() -> None:
    """V .4, min Q .48, tau .7: .7 x .5 x .0064 = .00224; from above .3 x .5 x .0064."""
    value, tau = torch.tensor([0.4, 0.48]), 0.7
    found = maths.expectile_error(value, torch.tensor([0.48, 0.4]), tau)
    assert found.tolist() == pytest.approx([0.00224, 0.00096])
    assert maths.expectile_error(value, value.flip(0), 0.5).tolist() == pytest.approx([0.0016, 0.0016])


def test_the_temporal_difference_by_hand() -> None:
    """Two rows, gamma .5. Q(a) = .5, 1, 2 at tokens 0, 1 | 0; V .2, .4 | 3; r 0, 1 | 2.

    y = 0 + .5 x .4 = .2;  1 + 0;  2 + 0, as V is 0 after a row's last token. Errors .3, 0, 0 -> .045, 0, 0.
    """
    outputs = {
        "logits": [[1.5, 0.0], [0.0, 3.0], [5.0, 1.0]],
        "ref.logits": [[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]],
        "value.value": [0.2, 0.4, 3.0],
    }
    streams = {"token": [0, 1, 0], "reward": [0.0, 1.0, 2.0]}
    found = q_temporal(0.5, trainee="q1").loss(live(outputs, streams, [0, 0, 1]))
    assert found.tolist() == pytest.approx([0.045, 0.0, 0.0])


def test_v_learns_from_the_smaller_of_two_critics() -> None:
    """Q1 .48 and Q2 .9 of the recorded token, V .4."""
    outputs = {"value": [0.4], "ref.logits": [[1.0, 0.0]], "a.logits": [[1.48, 7.0]], "b.logits": [[1.9, 0.0]]}
    found = v_expectile(0.7, ("a", "b")).loss(live(outputs, {"token": [0]}, [0]))
    assert found.tolist() == pytest.approx([0.00224], abs=1e-6)


def test_the_steered_policy_by_hand() -> None:
    """pi = (1/2, 1/2), min Q = (ln 3, 0), beta 1: 3 : 1. beta 0 is pi; a constant (V) changes nothing."""
    start = torch.tensor([[0.0, 0.0]])
    critics = [torch.tensor([[math.log(3.0), 5.0]]), torch.tensor([[9.0, 0.0]])]
    mixed = torch.softmax(by_values(("a", "b"), 1.0).mix([start, *critics]), -1)
    assert mixed.tolist() == [pytest.approx([0.75, 0.25])]
    values = maths.smallest(critics)
    assert maths.steered(start, values, 1.0).exp().tolist() == [pytest.approx([0.75, 0.25])]
    assert maths.steered(start, values - 7.0, 1.0).exp().tolist() == [pytest.approx([0.75, 0.25])]
    assert torch.equal(by_values(("a", "b"), 0.0).mix([start, *critics]), torch.log_softmax(start, -1))


def test_the_normalised_score() -> None:
    """LMRL-Gym: the lowest return is 0, the mean 50, the best 100, linear between them."""
    assert [normalised_score(x, -4.0, 0.0, 1.0) for x in (-4.0, -2.0, 0.0, 0.5, 1.0, 2.0)] == [0, 25, 50, 75, 100, 150]
    assert [normalised_score(x, 1.0, 1.0, 1.0) for x in (0.0, 1.0, 2.0)] == [0, 50, 100]


def test_the_best_returns_are_kept() -> None:
    returns = Returns("returns")
    groups = [Group(Task("demo", str(r), {}, str(r)), [Trace((), scores={"reward": r})]) for r in (0.0, 3.0, 1.0, 2.0)]
    step = Step(Clock(0, 1), None, SMALL)  # type: ignore[arg-type]
    kept = best_returns(returns, 0.5).call(groups, step)
    assert [group.traces[0].scores["reward"] for group in kept] == [3.0, 2.0]
    later = [Group(Task("demo", "x", {}, "x"), [Trace((), scores={"reward": 1.0})])]
    assert best_returns(returns, 0.5).call(later, step) == []  # 1 is not among the best half of all five
    again = Returns("returns")
    again.load_state_dict(returns.state_dict())
    assert again.threshold(0.2) == 3.0


# ---------------------------------------------------------------------------------------------- without their idea


def test_filtered_bc_of_everything_is_sft_on_all_replies(small_model: Path) -> None:
    rows = [{"messages": with_rewards(0.0, float(i % 2)), "id": i} for i in range(3)]
    found = []
    for name, options in (("filtered_bc", {"share": 1.0}), ("sft", {})):
        built = find(name).build(Dataset(rows, heldout=0.0), **options)
        models = build_cast(built, small_model)
        for phase, groups, step in credited(built, models):
            found.append(gradient(groups, phase.learn, step))
    assert torch.equal(found[0], found[1]) and float(found[0].abs().max()) > 0


def test_without_beta_the_policy_stays_where_it_is(small_model: Path) -> None:
    for name in ("ilql", "mc_returns"):
        built = find(name).build(source("guess"), beta=0.0, value_steps=1)
        models = build_cast(built, small_model)
        _, (phase, groups, step) = credited(built, models)
        assert float(gradient(groups, phase.learn, step).abs().max()) < 1e-6


def test_a_large_cql_weight_makes_the_critics_imitate(small_model: Path) -> None:
    """The gradient of a critic then has the direction of -log softmax(Q)(a) alone."""
    built = find("ilql").build(source("guess"), cql=1e6, value_steps=1)
    phase, groups, step = next(credited(built, build_cast(built, small_model)))
    terms = {term.name: term for term in phase.learn.terms}
    whole = gradient(groups, Learn(terms["q1"], terms["q1_cql"]), step)
    imitation = gradient(groups, Learn(replace(terms["q1_cql"], coef=1.0)), step)
    assert float(torch.cosine_similarity(whole, imitation, dim=0)) > 0.999999


def test_two_critics_differ_and_steer_the_games(small_model: Path) -> None:
    built = find("ilql").build(source("guess:1"), value_steps=1, games=1, polyak=0.5)
    models = build_cast(built, small_model)
    reports = list(loop(built, models, SMALL, steps=2))
    weights = [torch.cat([p.detach().flatten() for p in models[q].module.parameters()]) for q in ("q1", "q2")]
    assert not torch.equal(*weights)
    assert {"played_return", "normalised_score", "recorded_return"} <= reports[-1].metrics.keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more", "margin"),
    [
        ("filtered_bc", {"share": 0.5, "steps": 20}, 0.12),
        ("oracle_bc", {"steps": 20}, 0.2),
        ("ilql", {"polyak": 0.3, "value_steps": 21, "lr": 1e-4}, 0.06),
        ("mc_returns", {"value_steps": 21, "lr": 1e-4}, 0.06),
    ],
)
def test_recorded_games_win_games(name: str, more: dict[str, Any], margin: float, tmp_path: Path) -> None:
    from burnish import train

    options = {"prompts": 16, "max_new_tokens": 8, "eval_tasks": 60, "eval_every": 0, "seed": 0, "steps": 30}
    result = train(name, task="guess:1", out=str(tmp_path / "run"), **{**options, **more})
    before, after = (outcome.as_sampled for outcome in (result.before, result.after))  # type: ignore[union-attr]
    assert after.mean > before.mean + margin
