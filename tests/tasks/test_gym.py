"""reasoning-gym as a source: reproducible, never in both splits, scored by its own scorer, safely."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from burnish.core.randomness import key_of
from burnish.tasks.gym import ReasoningGym, names
from burnish.verifiers.gym import GymScorer

pytest.importorskip("reasoning_gym")


@pytest.fixture(scope="module")
def sums() -> ReasoningGym:
    return ReasoningGym("gym:chain_sum", min_terms=2, max_terms=2, min_digits=1, max_digits=2)


def test_tasks_are_the_same_in_any_order_and_in_one_split(sums: ReasoningGym) -> None:
    again = ReasoningGym("chain_sum", min_terms=2, max_terms=2, min_digits=1, max_digits=2)
    train = [sums.task("train", i) for i in range(60)]
    heldout = [sums.task("heldout", i) for i in range(20)]
    assert [again.task("train", i).key for i in reversed(range(60))] == [task.key for task in reversed(train)]
    assert all(key_of(task.key) % 8 == 0 for task in heldout)
    assert not {task.key for task in train} & {task.key for task in heldout}
    assert ReasoningGym("chain_sum", seed=1).task("train", 0) != ReasoningGym("chain_sum").task("train", 0)
    assert sums.size("train") is None
    assert sums.task("train", 10_000_000).given["answer"]


def test_the_question_asks_for_the_answer_form(sums: ReasoningGym) -> None:
    task = sums.task("train", 0)
    assert isinstance(task.prompt, tuple)
    assert task.prompt[0]["role"] == "user"
    assert task.prompt[0]["content"].endswith("\nFinish with a line `answer: ...`.")
    assert sums.gives >= {"answer", "demo"}


def test_verify(sums: ReasoningGym) -> None:
    task = sums.task("train", 3)
    right = task.given["answer"]
    for reply in (
        right,
        f"answer: {right}",
        f"I think 1+1=2.\nAnswer: {right}.",
        rf"\boxed{{{right}}}",
        task.given["demo"],
    ):
        assert sums.verify(task, reply).correct, reply
    verdict = sums.verify(task, "answer: 99999")
    assert not verdict.correct
    assert verdict.reason.startswith("the reply scores 0.0")
    assert verdict.reason.endswith(f"; the answer is '{right}'")
    assert not sums.verify(task, "").correct


def test_answers_of_several_lines() -> None:
    source = ReasoningGym("gym:rotate_matrix")
    task = source.task("train", 0)
    assert "\n" in task.given["answer"]
    assert source.verify(task, f"Turning it.\nanswer:\n{task.given['answer']}").correct


def test_one_form_of_the_reply_may_fail_where_another_is_right() -> None:
    source = ReasoningGym("gym:prime_factorization")
    task = source.task("train", 0)
    assert source.verify(task, task.given["demo"]).correct


def test_a_scorer_that_takes_anything_is_not_believed() -> None:
    source = ReasoningGym("gym:game_of_life_halting")
    task = source.task("train", 0)
    assert source.verify(task, task.given["demo"]).correct
    assert not source.verify(task, "answer: perhaps").correct


def test_a_dataset_without_an_answer_gives_none() -> None:
    source = ReasoningGym("gym:propositional_logic")
    assert source.gives == {"problem"}
    assert not source.verify(source.task("train", 0), "answer: nonsense").correct


def test_a_scorer_that_raises_is_a_verdict(sums: ReasoningGym, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> float:
        raise RuntimeError("oh no")

    scorer = GymScorer(sums.scorer())
    monkeypatch.setattr(scorer._scorer, "score_answer", broken)
    verdict = scorer.verdict(sums.facts(sums.task("train", 0)), "answer: 3")
    assert (verdict.score, verdict.correct) == (0.0, False)
    assert verdict.reason.endswith("; the scorer raised RuntimeError: oh no")


@pytest.mark.parametrize("name", ["spiral_matrix", "binary_matrix", "n_queens", "string_insertion", "countdown"])
def test_replies_are_never_run(name: str, tmp_path: Path) -> None:
    source = ReasoningGym(name)
    task = source.task("train", 0)
    trap = tmp_path / "trap"
    for reply in (f"open({str(trap)!r}, 'w')", "9**9**9**9", f"S(open({str(trap)!r}, 'w'))", "factorial(10**8)"):
        assert not source.verify(task, f"answer: {reply}").correct
    assert not trap.exists()
    if "demo" in source.gives:
        assert source.verify(task, task.given["demo"]).correct


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gym:chain_sums", {}, "reasoning-gym has no dataset 'chain_sums'; did you mean chain_sum"),
        ("gym:@@@", {}, r"no dataset '@@@'; there are \d+, such as "),
        ("chain_sum", {"size": 3}, "gym:chain_sum has no end; leave out size=3"),
        ("chain_sum", {"foo": 1}, "gym:chain_sum cannot be made with foo=1: .*unexpected keyword argument 'foo'"),
        ("chain_sum", {"min_terms": 9, "max_terms": 2}, "cannot be made with min_terms=9, max_terms=2: max_terms must"),
        ("composite", {}, "gym:composite cannot be made with no options: Must specify at least one dataset"),
    ],
)
def test_errors(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReasoningGym(name, **options)


def test_an_empty_split_and_an_unknown_one(sums: ReasoningGym) -> None:
    with pytest.raises(ValueError, match="split 'test' is unknown; the splits are train, heldout"):
        sums.task("test", 0)
    narrow = ReasoningGym("chain_sum", seed=3, min_terms=2, max_terms=2, min_digits=1, max_digits=1)
    narrow._key = lambda problem: "always the same"  # type: ignore[method-assign]
    empty = "train" if key_of("always the same") % 8 == 0 else "heldout"
    with pytest.raises(ValueError, match=rf"among 1024 problems fewer than 8 are in split '{empty}'; pass options"):
        narrow.task(empty, 0)


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "chain_sum" in names()
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(
        ValueError, match=r"gym tasks need reasoning-gym; install it with: pip install 'burnish\[gym\]'"
    ):
        ReasoningGym("chain_sum")
