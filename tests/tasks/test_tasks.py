"""The built-in tasks: splits, demonstrations, mistakes, hostile replies, and the environment of `guess`."""

from __future__ import annotations

import json

import pytest

from burnish.core.randomness import rng
from burnish.core.splits import in_split
from burnish.tasks.arithmetic import read
from burnish.tasks.corpus import document, skill
from burnish.tasks.table import BUILTIN, source
from burnish.verifiers.answer_line import answer_of

SINGLE_TURN = [name for name in BUILTIN if name != "guess"]
HOSTILE = (
    "",
    " ",
    "answer:",
    "answer: ",
    "answer",
    "\x00\ud800 answer: \u0663\u00b2",
    "answer: __import__('os').system('true')",
    "answer: 9**9**9**9",
    "answer: " + "(" * 5000,
    "answer: " + "1+" * 5000 + "1",
    "answer: 1/0",
    "answer: {answer} {problem} %s %(x)s",
    "answer: None",
    "ANSWER : nan",
    "the answer is everything; reward = 1.0; correct = True",
    "answer: - - - a-b-c ; A B C D E F G H",
)


@pytest.mark.parametrize("name", BUILTIN)
def test_tasks_are_deterministic_and_splits_are_disjoint(name: str) -> None:
    keys = {}
    for split in ("train", "heldout"):
        tasks = [source(name).task(split, index) for index in range(300)]
        again = [source(name).task(split, index) for index in range(300)]
        assert [(t.key, t.prompt) for t in tasks] == [(t.key, t.prompt) for t in again]
        if name in SINGLE_TURN:
            assert [t.given for t in tasks] == [t.given for t in again]
        keys[split] = {task.key for task in tasks}
        assert all(in_split(split, key) for key in keys[split])
        assert len(keys[split]) > 50
    assert not keys["train"] & keys["heldout"]


@pytest.mark.parametrize("name", SINGLE_TURN)
@pytest.mark.parametrize("level", (1, 2, 3, 4))
def test_demos_are_accepted_and_mistakes_rejected(name: str, level: int) -> None:
    family = source(name, level=level)
    assert family.gives == {"answer", "demo", "mistake"} and family.size("train") is None
    for split in ("train", "heldout"):
        for index in range(300 if level == 2 else 30):
            task = family.task(split, index)
            right, wrong = family.verify(task, task.given["demo"]), family.verify(task, task.given["mistake"])
            assert right.correct and right.score == 1.0, (task, right)
            assert not wrong.correct and wrong.score == 0.0 and wrong.reason, (task, wrong)
            assert family.verify(task, f"answer: {task.given['answer']}").correct


@pytest.mark.parametrize("name", SINGLE_TURN)
def test_demos_and_mistakes_are_varied(name: str) -> None:
    """One problem has several mistakes, and no mistake is a demo."""
    family = source(name)
    problem = family.problem("train", 0)
    mistakes = {family.mistake(problem, rng("mistake", i)) for i in range(60)}
    demos = {family.solve(problem, rng("demo", i)) for i in range(60)}
    assert len(mistakes) >= 6 and demos and not mistakes & demos


@pytest.mark.parametrize("name", BUILTIN)
def test_hostile_replies_are_rejected_without_an_exception(name: str) -> None:
    family = source(name)
    for index in range(20):
        task = family.task("heldout", index)
        for reply in HOSTILE:
            verdict = family.verify(task, reply)
            assert not verdict.correct and verdict.score == 0.0 and verdict.reason


def test_the_last_answer_counts() -> None:
    assert answer_of("answer: 3\nno\nAnswer: 4.") == "4"
    assert answer_of("4") is None
    assert answer_of("answer:") == ""


def test_arithmetic_reads_exactly_and_refuses_the_rest() -> None:
    assert read("(1+2)*3-4/2") == (7, [1, 2, 3, 4, 2])
    assert read("8/3*3")[0] == 8
    for text in ("", "1+", "(1", "1)", "1 2", "a", "1.5", "2**3", "-1", "f(1)", "1//2", "()", "1e9", "1,2", "4/(2-2)"):
        with pytest.raises(ValueError):
            read(text)


def test_countdown_wants_each_number_once() -> None:
    family = source("countdown")
    problem = ((3, 5, 9), 7, "3-5+9")
    assert family.judge(problem, "9-5+3") == ""
    assert "exactly once" in family.judge(problem, "9-5+3+3-3")
    assert "exactly once" in family.judge(problem, "7")
    assert "makes 17" in family.judge(problem, "3+5+9")


def test_path_accepts_any_path_and_only_paths() -> None:
    family = source("path:1")
    problem = ((("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")), "a", "c")
    assert family.judge(problem, "a b c") == "" == family.judge(problem, "a d c")
    assert "no edge" in family.judge(problem, "a c")
    assert "start" in family.judge(problem, "b c")
    assert "twice" in family.judge(problem, "a b a d c")


def test_guess_rewards_the_winning_guess_and_ends() -> None:
    task = source("guess").task("train", 0)
    game = task.given["env"]()
    assert game.reset() == task.prompt[0]["content"]
    hidden = int(task.given["answer"])
    assert game.step(str(hidden + 1)) == ("lower", 0.0, False)
    assert game.step("no idea") == ("say a number", 0.0, False)
    assert game.step(f"answer: {hidden}") == ("correct", 1.0, True)
    with pytest.raises(ValueError, match="reset"):
        game.step("1")
    game.reset()
    assert [game.step("0")[2] for _ in range(4)] == [False, False, False, True]


def test_guess_replays_the_same_after_save_and_restore() -> None:
    for index in range(50):
        make = source("guess").task("train", index).given["env"]
        dice = rng("play", index)
        moves = [str(dice.randint(1, 75)) for _ in range(4)]
        one, two = make(), make()
        one.reset()
        one.step(moves[0])
        two.load_state_dict(json.loads(json.dumps(one.state_dict())))
        if not one.over:
            assert [one.step(moves[1])] == [two.step(moves[1])] and one.state_dict() == two.state_dict()


@pytest.mark.parametrize("level", (1, 2, 3, 4))
def test_guess_is_always_won_by_halving_and_verify_replays(level: int) -> None:
    family = source("guess", level=level)
    for index in range(100):
        task, hidden = family.task("heldout", index), family.problem("heldout", index)
        talk = family.transcript(hidden, rng(index), care=1.0)
        guesses = "\n".join(m["content"] for m in talk if m["role"] == "assistant")
        assert family.verify(task, guesses).correct
        assert not family.verify(task, "\n".join(["0"] * 9)).correct


def test_source_reads_levels_and_names_the_nearest() -> None:
    assert source("sort:3").level == 3 and source("sort").level == 2
    with pytest.raises(ValueError, match="sort"):
        source("srot")
    with pytest.raises(ValueError, match="level 9"):
        source("sort:9")
    with pytest.raises(ValueError, match="not a level"):
        source("sort:hard")
    with pytest.raises(ValueError, match="split"):
        source("sort").task("test", 0)


def test_corpus_is_deterministic_and_of_the_train_split_only() -> None:
    heldout = {
        source(n, level=k).task("heldout", i).prompt[0]["content"]
        for n in SINGLE_TURN
        for k in (2, 4)
        for i in range(40)
    }
    for index in range(1500):
        messages = document(0, index)
        if index < 50:
            assert messages == document(0, index)
        assert messages[-1]["role"] == "assistant"
        assert not {m["content"] for m in messages if m["role"] == "user"} & heldout
    assert all(0 < skill(name, level) < 1 for name in SINGLE_TURN for level in (1, 2, 3, 4))
