"""eef with an expert's recorded episodes: what is replayed, what is trained on, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, Tossed, build_cast, credited

from burnish.core.step import Step
from burnish.core.types import Clock
from burnish.rollout.trajectories import trajectories
from burnish.tasks.environment import EnvSource
from burnish.tasks.table import source
from burnish.zoo.eef import RECORDED, Recorded, eef, played_again

GUESS = source("guess:1")


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def rows_of(column: str, count: int = 6) -> list[dict[str, Any]]:
    return [{"task": i, "messages": GUESS.task("train", i).given[column]} for i in range(count)]


class Steps:
    """Say the numbers 1, 2, 3 in order; a wrong one loses at the end."""

    @staticmethod
    def tasks(split: str) -> list[dict[str, str]]:
        return [{"name": name} for name in ("a", "b")]

    def reset(self, task: dict[str, str], seed: int) -> str:
        self.said: list[str] = []
        return f"Count {task['name']}."

    def step(self, action: str) -> tuple[str, float, bool]:
        self.said.append(action.strip())
        over = len(self.said) == 3
        return f"{len(self.said)} said", float(over and self.said == ["1", "2", "3"]), over


def test_the_actions_are_played_again(small_model: Path, tmp_path: Path) -> None:
    """1, 2, 9: the third step loses; the states before each of the three steps are starts, and turns are shared."""
    said = []
    for seen, action in (("Count b.", "1"), ("1 said", "2"), ("2 said", "9")):
        said += [{"role": "user", "content": seen}, {"role": "assistant", "content": action}]
    tasks = Recorded(EnvSource(Steps), written(tmp_path / "e.jsonl", [{"messages": said}]))
    assert tasks.size("train") == 1 and tasks.task("train", 0).given["task"] == {"name": "b"}, "found by its prompt"
    built = eef(tasks.source, expert=tasks.file, n=1, starts=3)
    step = Step(Clock(0, 1), build_cast(built, small_model), SMALL)
    master = played_again(tasks.task("train", 0), RECORDED, step, "policy", "expert")
    chat = step.models["policy"].chat
    trace = master.trace()
    assert [turn.author for turn in trace.turns] == ["task", "expert", "env", "expert", "env", "expert"]
    assert [chat.text(turn.tokens) for turn in trace.turns[1::2]] == ["1", "2", "9"] and trace.scores["reward"] == 0.0
    [group, *_] = built.phases[0].rollout.call(built.phases[0].draw.call(step), step)
    taken = [trace for trace in group.traces if "takeover" in trace.tags]
    assert [sum(turn.author == "expert" for turn in trace.turns) for trace in taken] == [0, 1, 2]
    first = next(t for t in group.traces if "policy" not in t.authors())
    assert all(trace.turns[1] is first.turns[1] for trace in taken[1:]), "the expert's turns are shared"


def test_won_episodes_are_imitated_as_they_were_recorded(small_model: Path, tmp_path: Path) -> None:
    """Without failures there is no takeover, and the expert's tokens are those of oracle_bc."""
    built = eef(GUESS, expert=written(tmp_path / "e.jsonl", rows_of("oracle")), n=1)
    models = build_cast(built, small_model)
    [(_, groups, _)] = credited(built, models)
    step = Step(Clock(0, 1), models, SMALL)
    for group in groups:
        assert not any("takeover" in trace.tags for trace in group.traces)
        (mine,) = (trace for trace in group.traces if "expert" in trace.authors())
        plain = trajectories("oracle").call([group.task], step)[0].traces[0]
        assert torch.equal(mine.tokens, plain.tokens) and torch.equal(mine.streams["claim:sft"], plain.by("demo"))


def test_failed_episodes_are_taken_over(small_model: Path, tmp_path: Path) -> None:
    lost = [row for row in rows_of("episode", 40) if row["messages"][-1]["reward"] == 0.0]
    built = eef(Tossed(GUESS), expert=written(tmp_path / "e.jsonl", lost), n=1, starts=2, win=3.0)
    [(_, groups, step)] = credited(built, build_cast(built, small_model))
    traces = [trace for group in groups for trace in group.traces if "takeover" in trace.tags]
    assert traces and any("expert" in trace.authors() for trace in traces)
    assert all(bool(t.streams["claim:sft"].any()) == (t.scores["reward"] >= 3) for t in traces)


def test_an_episode_of_another_task_fails_with_the_reason(small_model: Path, tmp_path: Path) -> None:
    other = {"task": 1, "messages": rows_of("oracle")[0]["messages"]}
    tasks = Recorded(GUESS, written(tmp_path / "e.jsonl", [other]))
    built = eef(GUESS, expert=tasks.file, n=1)
    step = Step(Clock(0, 1), build_cast(built, small_model), SMALL)
    found = played_again(tasks.task("train", 0), RECORDED, step, "policy", "expert")
    assert found.over and "differs before reply 1" in found.failure and "recorded" in found.failure


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"messages": [{"role": "user", "content": "?"}]}, "no 'messages' with a reply"),
        ({"task": -1, "messages": [{"role": "assistant", "content": "3"}]}, "'task' is -1"),
        ({"messages": [{"role": "assistant", "content": "3"}]}, "give the row 'task'"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(row: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        eef(GUESS, expert=written(tmp_path / "e.jsonl", [row]))


def test_files_and_tasks_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no file"):
        eef(GUESS, expert=str(tmp_path / "none.jsonl"))
    with pytest.raises(ValueError, match="has no episodes"):
        eef(GUESS, expert=written(tmp_path / "e.jsonl", []))
    with pytest.raises(ValueError, match="has no environment"):
        eef(source("sort"), expert=written(tmp_path / "e.jsonl", rows_of("oracle", 1)))


@pytest.mark.slow
def test_games_are_learned_from_recorded_episodes(tmp_path: Path) -> None:
    from burnish import train

    file = written(tmp_path / "games.jsonl", rows_of("episode", 300))
    shared = {"prompts": 12, "max_new_tokens": 8, "eval_tasks": 60, "eval_every": 0, "seed": 0}
    result = train("eef", task="guess:1", steps=12, out=str(tmp_path / "run"), expert=file, **shared)
    before, after = (outcome.as_sampled for outcome in (result.before, result.after))  # type: ignore[union-attr]
    assert after.mean > before.mean + 0.08
