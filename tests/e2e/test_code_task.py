"""Runs whose rewards come from running the replies: right verdicts, learning, evaluation, datasets, canaries."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from runs import go, rows

import burnish
from burnish.core.loop import Report
from burnish.core.task import CANARY_PASSED, Task, Verdict
from burnish.run.train import Run
from burnish.score.judge import reply_text
from burnish.tasks.countdown import Countdown
from burnish.tasks.resolve import resolve_task
from burnish.verifiers.answer_line import answer_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the isolation is Linux's")

MBPP = [
    {
        "text": f"Write a function to add {k} to a number.",
        "code": f"def plus(x):\n    return x + {k}",
        "test_list": [f"assert plus({x}) == {x + k}" for x in (1, 2)],
    }
    for k in range(12)
]


class Watch(burnish.Observer):
    """Keeps the replies of a run."""

    def __init__(self) -> None:
        self.replies: list[tuple[Task, str, float, str]] = []

    def started(self, run: Run) -> None:
        self.chat = run.models["policy"].chat

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        for group in (group for groups in report.groups.values() for group in groups):
            for trace in group.traces:
                text, why = reply_text(trace, self.chat), trace.note.get("why", "")
                self.replies.append((group.task, text, trace.scores["reward"], why))


def test_the_verdicts_of_a_run_are_those_of_a_parser(tmp_path: Path) -> None:
    """Each expression is also judged by countdown's verifier, which parses it and runs nothing."""
    watch, parser = Watch(), Countdown(level=1)
    go("grpo", "tiny", tmp_path / "run", task="code", prompts=6, n=4, max_new_tokens=32, observer=watch)
    rewards = []
    for task, text, reward, why in watch.replies:
        problem = (tuple(task.given["numbers"]), task.given["value"], "")
        assert reward == float(not parser.judge(problem, answer_of(text) or "")), (text, why)
        assert bool(why) == (reward == 0.0)
        rewards.append(reward)
    assert len(rewards) == 48 and set(rewards) == {0.0, 1.0}


@pytest.mark.slow
def test_grpo_learns_from_what_its_programs_do(tmp_path: Path) -> None:
    run = tmp_path / "run"
    burnish.train("grpo", model="tiny", task="code", steps=25, eval_tasks=0, out=str(run), device="cpu")
    before, after = (burnish.evaluate(model, "code", tasks=100).pass_at(1).mean for model in ("tiny", run / "model"))
    assert after > before + 0.15


def test_mbpp_rows_are_trained_and_evaluated(tmp_path: Path) -> None:
    data = rows(tmp_path / "mbpp.jsonl", *MBPP)
    task = resolve_task(data).task("train", 0)
    assert "The function is called plus and takes 1 argument." in task.prompt
    result = go("grpo", "tiny", tmp_path / "run", task=data, steps=1)
    assert result.metrics[0]["correct"] == 0.0 and "reward_failures" not in result.metrics[0]
    found = burnish.evaluate("tiny", data, tasks=2, max_new_tokens=8)
    assert found.pass_at(1).mean == 0.0


class Forged:
    """A task whose replies all pass tests that contradict each other."""

    name, summary, gives = "forged", "", frozenset({"answer"})

    def size(self, split: str) -> None:
        return None

    def task(self, split: str, index: int) -> Task:
        return Task("question", f"{index}", {"answer": "1"}, f"{split} {index}")

    def verify(self, task: Task, reply: str) -> Verdict:
        return Verdict(0.0, False, "forged", parts={CANARY_PASSED: 1.0})


def test_a_passed_canary_raises_the_alarm_in_its_step(small_model: Path, tmp_path: Path) -> None:
    result = go("grpo", small_model, tmp_path / "run", task=Forged(), steps=1)
    assert result.metrics[0]["canaries_passed"] == 4
    with burnish.open_store(tmp_path / "run") as store:
        assert [(event["kind"], event["step"]) for event in store.events() if "canary" in event["text"]] == [
            ("canary", 1)
        ]
