"""Extraction and comparison of final answers; loading, calling and validating reward functions."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from burnish.reward_functions.call import call_reward
from burnish.reward_functions.load import load_function
from burnish.verifiers.final_answer import final_answer, same_answer, small_powers


@pytest.mark.parametrize(
    ("reply", "right", "found"),
    [
        ("so\n#### 72", "72", "72"),
        ("#### 1\nno,\n#### 72 clips", "72", "72"),
        (r"\boxed{1} and \boxed{\frac{1}{2}}.", "1/2", r"\frac{1}{2}"),
        (r"\boxed{7} then \boxed{8", "7", "7"),
        ("Answer: 12\nANSWER: 13.\nBye", "13", "13."),
        ("**Answer:** Paris", "Paris", "Paris"),
        ("answer:\n  Paris\nthanks", "Paris", "Paris"),
        ("It costs $1,234.50, I think.", "1234.5", "$1,234.50"),
        ("from 10-3 to -7", "-7", "-7"),
        ("10-3", "3", "3"),
        ("3, 4 and 12,5", "5", "5"),
        ("half is 50%.", "50", "50%"),
        ("first\nlast line\n", "Paris", "last line"),
        ("no number", "7", "no number"),
        ("", "7", ""),
        ("", "Paris", ""),
    ],
)
def test_final_answer(reply: str, right: str, found: str) -> None:
    assert final_answer(reply, right) == found


SAME = [
    ("72", "72.0"),
    ("$1,000", "1000"),
    ("3/4", "0.75"),
    (r"\frac{3}{4}", "0.75"),
    ("10%", "10"),
    ("10%", "0.1"),
    ("0.1", "10%"),
    ("-.5", "-1/2"),
    (" paris. ", "Paris"),
    (r"\text{Paris}", "paris"),
    ("1e3", "1000"),
]
DIFFERENT = [
    ("72", "73"),
    ("17+25", "42"),
    ("1,2", "12"),
    ("3 4", "34"),
    ("10%", "1000%"),
    ("1/0", "1"),
    ("", ""),
    ("2017", "2023-05-01"),
    ("London", "Paris"),
    ("9" * 5000, "9"),
]


@pytest.mark.parametrize(("said", "right"), SAME)
def test_same_answers(said: str, right: str) -> None:
    assert same_answer(said, right)


@pytest.mark.parametrize(("said", "right"), DIFFERENT)
def test_different_answers(said: str, right: str) -> None:
    assert not same_answer(said, right)


def test_mathematics_by_math_verify_and_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("math_verify")
    assert same_answer(r"2\sqrt{2}", r"\sqrt{8}")
    assert same_answer("1+x", "$x+1$")
    assert not same_answer("x+2", "x+1")
    monkeypatch.setitem(sys.modules, "math_verify", None)
    assert not same_answer("1+x", "x+1")
    assert same_answer("x + 1", "X + 1.")


@pytest.mark.parametrize(
    "said",
    [
        "9^{9^{9^{9}}}",
        "9^9^9^9",
        "9**9**9**9",
        "3**99999999",
        r"((9^{99})^{99})^{99}",
        "10000000!",
        r"\sum_{i=1}^{9} i",
    ],
)
def test_replies_made_to_hang_a_computer_algebra_system_do_not(said: str) -> None:
    start = time.monotonic()
    assert not same_answer(said, r"\sqrt{2}")
    assert time.monotonic() - start < 1.0


def test_ordinary_powers_are_small() -> None:
    for text in (
        "-63*x**10/9 + 2*x**9 - x**4",
        "4*(-4*x - 5)**(3/2)/3 + C",
        r"2^{10} \cdot 3^{20}",
        r"\frac{x^2}{3^n}",
        "7",
    ):
        assert small_powers(text), text


FILE = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass
class Weight:
    value: float = 2.0

def length(completions, **columns):
    return [Weight().value * len(c) for c in completions]

def exact(completions, answer):
    return [float(c == a) for c, a in zip(completions, answer)]

NOT_A_FUNCTION = 3
"""


def test_load_and_call_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text(FILE)
    spec = str(tmp_path / "my.py")
    length, exact = load_function(f"{spec}:length"), load_function(f"{spec}:exact")
    columns = {"answer": ["a", "x"], "other": [1, 2]}
    assert call_reward(length, ["p", "p"], ["a", "bbb"], columns) == [2.0, 6.0]
    assert call_reward(exact, ["p", "p"], ["a", "bbb"], columns) == [1.0, 0.0]


def test_load_from_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rewards_of_mine.py").write_text("def zero(completions):\n    return [0] * len(completions)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert call_reward(load_function("rewards_of_mine:zero"), ["p"], ["c"], {}) == [0.0]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("my.py", "reward 'my.py' names no function; write path/to/file.py:function or package.module:function"),
        (":f", "names no function"),
        ("{dir}/none.py:f", r"no file '.*none.py'; check the path"),
        ("no_such_package.mine:f", r"importing 'no_such_package.mine' failed \(ModuleNotFoundError: .*check the name"),
        ("{dir}/my.py:nope", "my.py has no function 'nope'; it has length, exact"),
        ("{dir}/my.py:NOT_A_FUNCTION", "my.py has no function 'NOT_A_FUNCTION'"),
        ("{dir}/broken.py:f", r"running .*broken.py failed \(ZeroDivisionError: division by zero\); fix it"),
    ],
)
def test_errors_of_loading(spec: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text(FILE)
    (tmp_path / "broken.py").write_text("1 / 0")
    with pytest.raises(ValueError, match=message):
        load_function(spec.format(dir=tmp_path))


def test_only_the_keywords_it_takes_are_passed() -> None:
    seen: list[dict[str, Any]] = []

    def everything(**kwargs: Any) -> list[float]:
        seen.append(kwargs)
        return [1.0]

    def some(completions: list[str], prompts: list[str], bonus: float = 0.5) -> list[float]:
        return [bonus + len(prompts[0])]

    assert call_reward(everything, ["p"], ["c"], {"answer": [1]}) == [1.0]
    assert seen == [{"prompts": ["p"], "completions": ["c"], "answer": [1]}]
    assert call_reward(some, ["p"], ["c"], {"answer": [1]}) == [1.5]


def test_arrays_and_booleans_count_as_numbers() -> None:
    torch = pytest.importorskip("torch")
    assert call_reward(lambda completions: torch.tensor([1.0, 0.5]), [1, 2], ["a", "b"], {}) == [1.0, 0.5]
    assert call_reward(lambda completions: (True, 0), [1, 2], ["a", "b"], {}) == [1.0, 0.0]


def returning(value: Any) -> Callable[..., Any]:
    def mine(completions: list[str]) -> Any:
        return value

    return mine


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3.0, "reward .*mine returned float; return a list with one number a completion"),
        ([1.0], "reward .*mine returned 1 numbers for 2 completions; return one for each"),
        (
            [1.0, "x"],
            "mine returned 'x' at index 1, for the completion beginning 'the second'; return a finite number",
        ),
        ([math.nan, 0], "mine returned nan at index 0, for the completion beginning 'the first'"),
        ([0, math.inf], "mine returned inf at index 1"),
        (["1", 0], "mine returned '1' at index 0"),
    ],
)
def test_errors_of_what_comes_back(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call_reward(returning(value), ["p", "p"], ["the first", "the second"], {})


def test_errors_of_the_call() -> None:
    def failing(completions: list[str]) -> list[float]:
        raise KeyError("gold")

    def needing(completions: list[str], gold: list[str]) -> list[float]:
        return [0.0]

    with pytest.raises(
        ValueError,
        match=r"reward .*failing raised KeyError: 'gold' at test_rewards.py, line \d+, "
        "for the row with prompt='p' and the completion 'c'; fix the function",
    ):
        call_reward(failing, ["p"], ["c"], {})
    with pytest.raises(
        ValueError, match="takes 'gold', which is not offered; the keywords offered are answer, prompts"
    ):
        call_reward(needing, ["p"], ["c"], {"answer": ["x"]})
