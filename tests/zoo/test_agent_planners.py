"""Takeovers of failing experts, a reward model of episodes and planners: by hand, switched off, and on a model."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import SMALL, Tossed, build_cast, credited

from burnish.core.loop import loop
from burnish.core.step import Step
from burnish.core.types import Clock
from burnish.tasks.table import source
from burnish.zoo.armap import armap, armap_best_of_n, armap_reflexion, armap_search
from burnish.zoo.eef import eef, harmful, spaced
from burnish.zoo.playpen import playpen_sft

GAMES = Tossed(source("guess"))


def test_starts_are_evenly_spaced() -> None:
    assert spaced(8, 4) == [0, 2, 4, 6] and spaced(3, 4) == [0, 1, 2] and spaced(0, 4) == []
    assert spaced(5, 1) == [0] and spaced(1, 3) == [0]


def test_harmful_steps_lead_from_a_win_to_a_loss() -> None:
    """Starts 0, 2, 4, 6 with won, lost, won, won: steps 0 and 1 did harm; those before 4 led back to a win."""
    assert harmful([0, 2, 4, 6], [True, False, True, True]) == {0, 1}
    assert harmful([0, 2], [False, True]) == set() and harmful([0, 2], [True, True]) == set()
    assert harmful([], []) == set()


def test_what_eef_imitates(small_model: Path, other_model: Path) -> None:
    built = eef(GAMES, expert=str(other_model), n=2, starts=3, win=3.0)
    models, takeovers = build_cast(built, small_model), 0
    for number in range(4):
        for _, groups, _ in credited(built, models, step=number):
            for group in groups:
                failed = [t for t in group.traces if set(t.authors()) <= {"task", "env", "expert"}]
                for trace in group.traces:
                    trained, won = trace.streams["claim:sft"], trace.scores["reward"] >= 3
                    assert won or not bool(trained.any()), "episodes that were lost are not imitated"
                    assert not bool((trained & trace.by("env", "task")).any())
                    for i in trace.note.get("harmful", ()):
                        start = sum(len(turn) for turn in trace.turns[:i])
                        assert not bool(trained[start : start + len(trace.turns[i])].any())
                    if "takeover" in trace.tags and "expert" in trace.authors():
                        takeovers += 1
                        assert trace.turns[1] is failed[0].turns[1], "the expert's turns are shared"
                        mine = [t.author for t in trace.turns if t.author != "env"]
                        assert mine == sorted(mine, key=["task", "expert", "policy"].index)
    assert takeovers > 0


def test_without_failures_of_the_expert_there_are_no_takeovers(small_model: Path, other_model: Path) -> None:
    """win = 0: nothing fails; what the policy's own episodes contribute is rejection-sampling fine-tuning."""
    built, plain = eef(GAMES, expert=str(other_model), n=2, win=0.0), playpen_sft(GAMES, n=2, win=0.0)
    [(_, groups, _)] = credited(built, build_cast(built, small_model))
    assert not any("takeover" in trace.tags for group in groups for trace in group.traces)
    [(_, expected, _)] = credited(plain, build_cast(plain, small_model))
    for group, other in zip(groups, expected, strict=True):
        own = [t for t in group.traces if "policy" in t.authors()]
        assert len(own) == len(other.traces) and all(bool(t.streams["claim:sft"].any()) for t in own)


def test_pairs_of_an_episode_and_its_near_miss(small_model: Path) -> None:
    built = armap(GAMES)
    models = build_cast(built, small_model)
    for _, groups, _ in credited(built, models):
        assert groups
        for group in groups:
            good, miss = group.traces
            assert group.pairs == [(0, 1)] and good.turns[0] is miss.turns[0]
            shared = [t.author for t in miss.turns].index("writer")
            assert good.turns[:shared] == miss.turns[:shared] and good.turns[shared].author == "start"
            assert {t.author for t in miss.turns[shared + 1 :]} <= {"env", "start"}, "the same model plays on"
            for trace in (good, miss):
                assert trace.streams["claim:end"].nonzero().flatten().tolist() == [len(trace) - 1]


@pytest.mark.slow
def test_the_reward_model_learns_its_pairs(small_model: Path) -> None:
    """The writer's steps can be told apart from the policy's: accuracy of the last steps."""
    from dataclasses import replace

    built = armap(GAMES)
    settings = replace(SMALL, prompts=8, lr=3e-3)
    found = [r.metrics["end/accuracy"] for r in loop(built, build_cast(built, small_model), settings, steps=15)]
    assert all(0 <= value <= 1 for value in found) and sum(found[-5:]) / 5 >= 0.6


def chosen(built: object, small_model: Path) -> tuple[list[float], list[float]]:
    """The rewards of the kept episodes, and of all that were played."""
    step = Step(Clock(0, 1), build_cast(built, small_model), SMALL)  # type: ignore[arg-type]
    phase = built.phases[0]  # type: ignore[attr-defined]
    groups = phase.score.call(phase.rollout.call(phase.draw.call(step), step), step)
    everyone = [trace.scores["reward"] for group in groups for trace in group.traces]
    return [t.scores["reward"] for g in phase.select.call(groups, step) for t in g.traces], everyone


def test_planners_keep_the_best_and_one_attempt_is_the_policy(small_model: Path) -> None:
    plain, _ = chosen(armap_best_of_n(GAMES, n=1), small_model)
    once, _ = chosen(armap_reflexion(GAMES, tries=1), small_model)
    assert once == plain
    for built in (
        armap_best_of_n(GAMES, n=4),
        armap_reflexion(GAMES, tries=4, threshold=99.0),
        armap_search(GAMES, rounds=6, width=3),
    ):
        kept, everyone = chosen(built, small_model)
        assert len(kept) == 3 and max(everyone) in kept
        assert sum(kept) / 3 >= sum(everyone) / len(everyone)
    _, content = chosen(armap_reflexion(GAMES, tries=4, threshold=-1.0), small_model)
    assert len(content) == 3, "no second attempt where the first is good enough"


def test_planners_take_a_trained_reward_model(small_model: Path, tmp_path: Path) -> None:
    """The product of armap scores the episodes of each planner."""
    from burnish import train

    made = train(
        "armap",
        model=str(small_model),
        task="guess:1",
        steps=1,
        out=str(tmp_path / "rm"),
        prompts=2,
        max_new_tokens=6,
        eval_every=0,
    )
    folder = str(Path(made.folder) / "model")
    for make in (armap_best_of_n, armap_reflexion, armap_search):
        built = make(source("guess"), reward_model=folder)
        report = next(loop(built, build_cast(built, small_model), SMALL, steps=1))
        assert "score/chosen_reward" in report.metrics


@pytest.mark.slow
def test_games_are_learned_with_an_expert(tmp_path: Path) -> None:
    from burnish import train

    shared = {"prompts": 12, "max_new_tokens": 8, "eval_tasks": 60, "eval_every": 0, "seed": 0}
    result = train("eef", task="guess:1", steps=8, out=str(tmp_path / "run"), expert="tiny", **shared)
    before, after = (outcome.as_sampled for outcome in (result.before, result.after))  # type: ignore[union-attr]
    assert after.mean > before.mean + 0.05
