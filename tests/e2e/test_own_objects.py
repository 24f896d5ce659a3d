"""Methods and tasks of one's own, passed as objects: a run of them is resumed with them, and not without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runs import go, halted_after, same_run

import burnish
from burnish.core.types import Task, Verdict
from burnish.methods.table import METHODS, load_all

load_all()


class Coins:
    """A task whose replies are right by the toss of their length."""

    name, summary, gives = "coins", "a test", frozenset({"answer"})

    def size(self, split: str) -> int | None:
        return 50

    def task(self, split: str, index: int) -> Task:
        return Task("question", f"{split} {index}", {"answer": "?"}, f"{split}-{index}")

    def verify(self, task: Task, reply: str) -> Verdict:
        return Verdict(float(len(reply) % 2), bool(len(reply) % 2))


def mine(task: Any, *, n: int = 2) -> Any:
    """GRPO by another name."""
    return METHODS["grpo"].build(task, n=n)


def test_a_run_of_ones_own_objects_resumes_with_them(small_model: Path, tmp_path: Path) -> None:
    straight = go(mine, small_model, tmp_path / "straight", task=Coins())
    halted = halted_after(1, straight.folder, tmp_path / "halted")
    burnish.resume(halted, method=mine, task=Coins())
    same_run(straight.folder, halted)


def test_a_run_of_ones_own_task_cannot_resume_without_it(small_model: Path, tmp_path: Path) -> None:
    straight = go("grpo", small_model, tmp_path / "straight", task=Coins())
    halted = halted_after(1, straight.folder, tmp_path / "halted")
    with pytest.raises(ValueError, match="coins"):
        burnish.resume(halted)
    burnish.resume(halted, task=Coins())
    same_run(straight.folder, halted)
