"""Dialogue games: how episodes end, and what is imitated, compared and reinforced."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SMALL, Tossed, build_cast, credited
from gradients import gradient
from test_agent_turns import TASK, nothing

from burnish.compose.multi_turn import played
from burnish.core.scorer import mark_failed
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Trace
from burnish.envs.protocol import Outcome
from burnish.methods.policy import grpo
from burnish.score.outcomes import outcomes
from burnish.tasks.environment import EnvSource
from burnish.tasks.table import source
from burnish.zoo.playpen import playpen_dpo, playpen_grpo, playpen_sft

GAMES = Tossed(source("guess"))


class Even:
    """Say a text of even length; one with a space breaks the rules."""

    def reset(self, seed: int) -> str:
        return f"game {seed % 7}"

    def step(self, action: str) -> Outcome:
        ended = "abort" if " " in action else "success" if len(action) % 2 == 0 else "lose"
        return Outcome("", float(ended == "success"), terminated=True, info={"outcome": ended})


def test_an_episode_is_won_lost_or_aborted() -> None:
    said = [("", 1.0), ("", 0.5), ("abort", 1.0), ("success", 0.0), ("lose", 1.0)]
    traces = [Trace((), scores={"reward": r}, note={"outcome": o} if o else {}) for o, r in said]
    broken = Trace((), scores={"reward": 0.0})
    mark_failed(broken, "it hung")
    step = nothing()
    outcomes(1.0).call([Group(TASK, [*traces, broken])], step)
    assert [sorted(t.tags - {"counted"}) for t in traces] == [["won"], ["lost"], ["aborted"], ["won"], ["lost"]]
    assert not broken.tags
    assert step.notes.means() == {"episodes/won": 0.4, "episodes/lost": 0.4, "episodes/aborted": 0.2}


def test_what_the_environment_says_reaches_the_trace(small_model: Path) -> None:
    built = playpen_grpo(EnvSource(Even), n=8)
    step = Step(Clock(0, 1), build_cast(built, small_model), SMALL)
    phase = built.phases[0]
    groups = phase.score.call(phase.rollout.call(phase.draw.call(step), step), step)
    for trace in (t for g in groups for t in g.traces):
        said = step.models["policy"].chat.text(trace.turns[-1].tokens)
        assert ("aborted" in trace.tags) == (" " in said)
        assert ("won" in trace.tags) == (" " not in said and len(said) % 2 == 0)
    assert sum(step.notes.means()[f"episodes/{name}"] for name in ("won", "lost", "aborted")) == pytest.approx(1)


def test_only_won_episodes_are_imitated(small_model: Path) -> None:
    built = playpen_sft(GAMES, n=4, win=3.0)
    for _, groups, _ in credited(built, build_cast(built, small_model)):
        for trace in (t for g in groups for t in g.traces):
            expected = trace.by("policy") if trace.scores["reward"] >= 3 else torch.zeros(len(trace), dtype=torch.bool)
            assert torch.equal(trace.streams["claim:sft"], expected)


def test_pairs_are_won_against_lost_of_one_game(small_model: Path) -> None:
    built = playpen_dpo(GAMES, n=4, win=3.0)
    for _, groups, _ in credited(built, build_cast(built, small_model)):
        assert groups
        for group in groups:
            won = {i for i, t in enumerate(group.traces) if t.scores["reward"] >= 3}
            assert set(group.pairs or ()) <= {(a, b) for a in won for b in set(range(4)) - won} and group.pairs
    nobody_wins = playpen_dpo(GAMES, n=4, win=99.0)
    [(_, groups, _)] = credited(nobody_wins, build_cast(nobody_wins, small_model))
    assert groups == []


def test_grpo_of_games_is_grpo(small_model: Path) -> None:
    found = []
    for built in (playpen_grpo(GAMES, n=3), played(grpo(GAMES, n=3), GAMES)):
        models = build_cast(built, small_model)
        phase, groups, step = next(iter(credited(built, models)))
        found.append(gradient(groups, phase.learn, step))
    assert float(found[0].norm()) > 0 and torch.allclose(found[0], found[1], rtol=1e-4, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"), [("playpen_sft", {}), ("playpen_dpo", {"lr": 1e-4}), ("playpen_grpo", {})]
)
def test_games_are_learned(name: str, options: dict[str, float], tmp_path: Path) -> None:
    from burnish import train

    shared = {"prompts": 12, "max_new_tokens": 8, "eval_tasks": 60, "eval_every": 0, "seed": 0}
    result = train(name, task="guess:1", steps=10, out=str(tmp_path / "run"), **shared, **options)
    before, after = (outcome.as_sampled for outcome in (result.before, result.after))  # type: ignore[union-attr]
    assert after.mean > before.mean + 0.05
