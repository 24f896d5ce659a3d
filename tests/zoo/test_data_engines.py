"""Data that models make: TeaMs-RL's instructor, Arena Learning's battles, Elo. Numbers by hand, limits, state."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SMALL, build_cast
from judge_server import prompt_of, serving

from burnish.cli import main
from burnish.core.loop import loop
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.evals.arena import ratings
from burnish.judges import templates
from burnish.judges.rewrites import SIX
from burnish.methods.table import find
from burnish.score.judges import read_judge
from burnish.score.judges.battles import fought
from burnish.score.maths.bradley_terry import elo
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded
from burnish.zoo.arena_learning import decided_battles, outcomes, winners
from burnish.zoo.teams_rl import OPERATIONS, Instructor

# ------------------------------------------------------------------------------------------------------------- TeaMs-RL


def test_one_trpo_step_of_the_instructor() -> None:
    """Two sequences of one operation: the first earned 1, the second 0, so A = 1/2 and -1/2 and g = (1/4, -1/4, 0...).
    At the uniform policy F v = v / 6 for v with sum 0, so x = (3/2, -3/2, ...), x F x = 3/4, and with delta = 0.01 the
    step is sqrt(0.02 / 0.75) x = (sqrt 0.06, -sqrt 0.06, ...). Its KL is ln((2 cosh(sqrt 0.06) + 4) / 6) = 0.0099999.
    """
    one = Instructor(delta=0.01, damping=0.0)
    one.pending = [[(0, 1.0)], [(1, 0.0)]]
    noted = one.update()
    expected = torch.zeros(7, 6, dtype=torch.float64)
    expected[0, 0], expected[0, 1] = math.sqrt(0.06), -math.sqrt(0.06)
    assert torch.allclose(one.table, expected, atol=1e-9) and one.pending == []
    assert noted["trust/accepted"] == 1.0
    assert noted["trust/kl"] == pytest.approx(math.log((2 * math.cosh(math.sqrt(0.06)) + 4) / 6))


def test_an_untaught_instructor_is_uniform_and_equal_rewards_teach_nothing() -> None:
    one = Instructor()
    assert one.chances(None) == pytest.approx([1 / 6] * 6) and one.chances(3) == pytest.approx([1 / 6] * 6)
    one.pending = [[(0, 1.0), (3, 1.0)], [(1, 1.0), (2, 1.0)]]
    assert one.update() == {} and not one.table.any()


def test_the_instructor_learns_which_operations_pay() -> None:
    """Operations 1 and 4 earn 1, the others 0; after fifty steps nearly only they are chosen. Its state resumes."""
    one, dice = Instructor(delta=0.05), random.Random(0)
    for _ in range(50):
        for _ in range(16):
            chosen: list[int] = []
            for _ in range(3):
                chosen.append(one.choose(chosen[-1] if chosen else None, dice))
            one.pending.append([(a, float(a in (1, 4))) for a in chosen])
        one.update()
    assert one.chances(None)[1] + one.chances(None)[4] > 0.9
    other = Instructor(delta=0.05)
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert torch.equal(one.table, other.table) and other.chances(1) == one.chances(1)


def executor(body: dict[str, Any]) -> str:
    """Changes a text for two of the six operations and copies it for the others; judges by the words; answers."""
    asked = prompt_of(body)
    if "Equal" in asked:
        return "Not Equal" if "!" in asked.split("[second begin")[1] else "Equal"
    if "begin" not in asked:
        return "answer: a"
    text = asked.split("]\n")[1].split("\n[")[0]
    return text + " b!" if asked.rstrip().endswith(("deepen:", "widen:")) else text


def test_teams_rl_teaches_then_expands_then_resumes(small_model: Path, tmp_path: Path) -> None:
    task = source("sort:1")
    with serving(executor) as server:
        who = f"endpoint({server.url}, m, cache={tmp_path})"
        options: dict[str, Any] = {"executor": who, "judge": who, "teach": 2, "length": 2, "words": "brief"}
        method = find("teams_rl").build(task, **options)
        models = build_cast(method, small_model)
        before = [p.detach().clone() for p in models["policy"].module.parameters()]
        walk = loop(method, models, SMALL, steps=4)
        first = next(walk)
        trace = first.groups["teach"][0].traces[0]
        changes = [SIX[i].name in ("deepen", "widen") for i in trace.note[OPERATIONS]]
        assert trace.turn_scores["reward"][1:] == [float(x) for x in changes]
        assert sum(first.metrics[f"draw/{one.name}"] for one in SIX) == pytest.approx(1.0)
        assert first.metrics["executor_calls"] == 2 * SMALL.prompts and "draw_made" not in first.metrics
        next(walk)
        assert all(torch.equal(p, old) for p, old in zip(models["policy"].module.parameters(), before, strict=True)), (
            "the instructor is taught first, alone"
        )
        stored = json.loads(json.dumps({name: item.state_dict() for name, item in method.stateful().items()}))
        again = find("teams_rl").build(task, **options)
        for name, item in again.stateful().items():
            item.load_state_dict(stored[name])
        made = [one.phases[1].rollout for one in (method, again)]
        tasks = [task.task("train", i) for i in range(4)]
        texts = [[g.task.prompt for g in r.call(tasks, Step(Clock(2, 4), models, SMALL))] for r in made]
        assert texts[0] == texts[1] and all("!" in prompt[-1]["content"] for prompt in texts[0])
        third = next(walk)
        assert all(turn.author in ("task", "demo") for g in third.groups["main"] for turn in g.traces[0].turns)
    taught = method.stateful()["teams"]
    assert isinstance(taught, Instructor) and taught.table.any()


# ---------------------------------------------------------------------------------------------------------------- arena


def test_elo_of_three_wins_of_four_is_191() -> None:
    points = elo([[0, 3], [1, 0]])
    assert points[0] - points[1] == pytest.approx(400 * math.log10(3)) == pytest.approx(190.85, abs=0.01)
    assert elo([[0, 2], [2, 0]]).tolist() == pytest.approx([0, 0])
    unbeaten = elo([[0, 4], [0, 0]])  # with one tie more: 4.5 to 0.5
    assert unbeaten[0] - unbeaten[1] == pytest.approx(400 * math.log10(9))


def test_elo_finds_the_strengths_that_made_the_battles() -> None:
    strengths = np.array([1.0, 2.0, 5.0])
    chances = strengths[:, None] / (strengths[:, None] + strengths[None, :])
    np.fill_diagonal(chances, 0.0)
    points = elo(chances * 100)
    assert points - points[0] == pytest.approx(400 * np.log10(strengths))


def test_ratings_count_and_bound() -> None:
    leads = np.zeros((4, 2, 2))
    leads[:3, 0, 1], leads[3, 0, 1] = 1.0, -1.0
    leads[:, 1, 0] = -leads[:, 0, 1]
    best, worst = ratings(["a", "b"], leads)
    assert (best.model, best.won, best.lost, best.tied) == ("a", 3, 1, 0)
    assert best.elo - worst.elo == pytest.approx(190.85, abs=0.01) and best.low <= best.elo <= best.high


def scores_first(body: dict[str, Any]) -> str:
    """Prefers a reply that says right; else the one that is shown first."""
    asked = prompt_of(body)
    replies = [asked.split(f"[reply {i} begin")[1].split("]\n")[1].split("\n[")[0] for i in (1, 2)]
    if ("right" in replies[0]) != ("right" in replies[1]):
        return "Scores: " + ("9, 3" if "right" in replies[0] else "4, 9")
    return "Scores: 8, 5"


def test_a_battle_counts_if_both_orders_agree(tmp_path: Path) -> None:
    """right against wrong: (9, 3) and, the other way round, (4, 9): leads 6 and 5, so 5.5. Two wrong replies: the one
    shown first gets 8 against 5 in both orders, which is no winner."""
    with serving(scores_first) as server:
        judge = read_judge(f"endpoint({server.url}, m, cache={tmp_path})")
        step = Step(Clock(0, 1), None, SMALL)  # type: ignore[arg-type]
        fights = [("?", "right", "wrong"), ("?", "wrong", "right"), ("?", "wrong", "false")]
        assert fought(fights, judge, templates.BATTLE, step) == [5.5, -5.5, 0.0]
    assert outcomes([5.5, -5.5, 0.0]) == {"won": 1, "lost": 1, "tied": 1}


def fights_of(*leads: float) -> Group:
    """A group of the target, whose lead over itself is 0, and rivals with these leads."""
    turns = [Turn(torch.tensor([i]), "rival" if i else "policy") for i in range(1 + len(leads))]
    traces = [Trace((turn,), i, {"battle": (0.0, *leads)[i]}) for i, turn in enumerate(turns)]
    return Group(Task("question", "?", {}, "?"), traces)


def test_what_battles_leave_to_train_on() -> None:
    step = Step(Clock(0, 1), None, SMALL)  # type: ignore[arg-type]
    kept = winners().call([fights_of(2.0, 5.0, -1.0), fights_of(-1.0, 0.0)], step)
    assert [[trace.index for trace in group.traces] for group in kept] == [[2]]
    assert step.notes.means()["dropped/not_lost"] == 0.5
    (group,) = decided_battles().call([fights_of(2.0, 0.0, -1.0)], step)
    named = [(group.traces[a].index, group.traces[b].index) for a, b in group.pairs or ()]
    assert sorted(named) == [(0, 3), (1, 0)], "the rival won once, lost once, and the tie is dropped"
    assert winners().call([fights_of(-1.0)], step) == [], "no losses: nothing to train on"


def test_the_four_stages_of_a_round(small_model: Path) -> None:
    """Each stage trains its own models, and the reference is the policy at the start of the stage."""
    task = rewarded(source("sort:1"), lambda completions: [float(sum(map(ord, text)) % 2) for text in completions])
    rivals = "+".join(f"policy(temperature=1, max_tokens={k})" for k in (4, 5, 6, 7))
    method = find("arena_learning").build(task, rivals=rivals, stage=1, updates=1)
    models = build_cast(method, small_model)

    def weights(name: str) -> torch.Tensor:
        return torch.cat([p.detach().flatten().clone() for p in models[name].module.parameters()])

    moved, before = [], {name: weights(name) for name in ("policy", "rm", "critic")}
    for report in loop(method, models, SMALL, steps=8):
        after = {name: weights(name) for name in before}
        moved.append((next(iter(report.groups)), {n for n in before if not torch.equal(before[n], after[n])}))
        before = after
        assert torch.equal(weights("ref"), after["policy"])
        if "battles/won" in report.metrics:
            shares = [report.metrics[f"battles/{one}"] for one in ("won", "lost", "tied")]
            assert sum(shares) == pytest.approx(1.0)
    assert [stage for stage, _ in moved] == ["sft", "dpo", "rm", "ppo"] * 2
    allowed = {"sft": {"policy"}, "dpo": {"policy"}, "rm": {"rm"}, "ppo": {"policy", "critic"}}
    assert all(names <= allowed[stage] for stage, names in moved) and {s for s, names in moved if names} == set(allowed)


def test_the_arena_command(capsys: pytest.CaptureFixture[str], small_model: Path, other_model: Path) -> None:
    words = ["arena", str(small_model), "tiny", "--task", "reverse", "--tasks", "8", "--device", "cpu", "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    best, worst = found["ratings"]
    assert best["model"] == "tiny" and best["elo"] > worst["elo"] and found["prompts"] == 8
    assert best["won"] == worst["lost"] and best["won"] + best["lost"] + best["tied"] == 8
    assert main(["arena", "tiny"]) == 2 and "two models that differ" in capsys.readouterr().err
    assert main(["arena", "tiny", "policy"]) == 2 and "no policy outside a run" in capsys.readouterr().err
