"""Reward functions as people have them: for batches or for one reply, TRL's, verl's, async, several with weights."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from burnish.core.types import Verdict
from burnish.reward_functions.call import RewardCall, call_reward
from burnish.reward_functions.resolve import make_reward, read_rewards, reward_text
from burnish.reward_functions.reward import Failed, LocalReward, SeveralRewards, combined

CHAT = [[{"role": "user", "content": "2 + 2?"}], [{"role": "user", "content": "3 + 3?"}]]


def test_trl_functions_of_conversations_get_messages() -> None:
    def by_use(completions, answer, **kwargs):  # type: ignore[no-untyped-def]
        contents = [completion[0]["content"] for completion in completions]
        return [1.0 if said == right else 0.0 for said, right in zip(contents, answer, strict=True)]

    def by_attribute(prompts, completions, **kwargs):  # type: ignore[no-untyped-def]
        return [float(c[-1].get("content") == p[-1]["content"][0]) for p, c in zip(prompts, completions, strict=True)]

    def annotated(completions: list[list[dict[str, str]]], **kwargs: Any) -> list[float]:
        return [float(len(completion)) for completion in completions]

    columns = {"answer": ["4", "6"]}
    for function, found in ((by_use, [1.0, 0.0]), (by_attribute, [0.0, 0.0]), (annotated, [1.0, 1.0])):
        call = RewardCall(function)
        assert call(CHAT, ["4", "5"], columns) == found, function
        assert call.messages is True
        assert call(CHAT, ["4", "5"], columns) == found, function
    assert call_reward(by_use, ["2 + 2?"], ["4"], {"answer": ["4"]}) == [1.0]  # also where the prompt is plain text


def test_functions_of_texts_get_texts_in_conversations_too() -> None:
    def length(completions, **kwargs):  # type: ignore[no-untyped-def]
        return [float(len(completion)) for completion in completions]

    def fails(completions, **kwargs):  # type: ignore[no-untyped-def]
        return [{}[completion] for completion in completions]

    call = RewardCall(length)
    assert call(CHAT, ["four", "5"], {}) == [4.0, 1.0] and call.messages is False
    with pytest.raises(ValueError, match="reward fails raised KeyError: 'four' at test_reward_conventions.py, line"):
        call_reward(fails, CHAT, ["four", "5"], {})


def test_verls_compute_score() -> None:
    seen: list[Any] = []

    def compute_score(data_source, solution_str, ground_truth, extra_info=None):  # type: ignore[no-untyped-def]
        seen.append((data_source, ground_truth, extra_info))
        right = float(solution_str.strip() == ground_truth)
        return {"score": right, "acc": right} if data_source else right

    columns = {
        "data_source": ["gsm8k", "gsm8k"],
        "reward_model": [{"style": "rule", "ground_truth": "4"}, {"style": "rule", "ground_truth": "6"}],
        "extra_info": [{"index": 0}, {"index": 1}],
    }
    assert call_reward(compute_score, CHAT, ["4", "5"], columns) == [1.0, 0.0]
    assert seen == [("gsm8k", "4", {"index": 0}), ("gsm8k", "6", {"index": 1})]
    seen.clear()
    assert call_reward(compute_score, ["q"], ["4"], {"answer": ["4"], "level": [2]}) == [1.0]
    assert seen == [("", "4", {"answer": "4", "level": 2})]
    with pytest.raises(ValueError, match="takes 'ground_truth', which is not offered"):
        call_reward(compute_score, ["q"], ["4"], {})


def test_a_function_of_one_reply() -> None:
    def right(completion: str, answer: str) -> bool:
        return completion == answer

    def bad(prompt: str, completion: str) -> float:
        return 1 / len(completion)

    assert call_reward(right, ["p", "p"], ["4", "5"], {"answer": ["4", "6"], "other": [1, 2]}) == [1.0, 0.0]
    message = (
        r"bad raised ZeroDivisionError: .* at .*\.py, line \d+, for the row with prompt='second' and the completion ''"
    )
    with pytest.raises(ValueError, match=message):
        call_reward(bad, ["first", "second"], ["x", ""], {})


def test_columns_have_the_names_of_datasets() -> None:
    def f(completions: list[str], solution: list[str], ground_truth: list[str]) -> list[float]:
        return [float(s == "worked" and g == "4") for s, g in zip(solution, ground_truth, strict=True)]

    assert call_reward(f, ["p"], ["c"], {"demo": ["worked"], "answer": ["4"]}) == [1.0]


def test_async_functions_run_at_once_also_inside_a_running_loop() -> None:
    running, most = [0], [0]

    async def one(completion: str) -> float:
        running[0] += 1
        most[0] = max(most[0], running[0])
        await asyncio.sleep(0.01)
        running[0] -= 1
        return float(len(completion))

    async def batch(completions: list[str]) -> list[float]:
        await asyncio.sleep(0.001)
        return [float(len(text)) for text in completions]

    async def failing(completion: str) -> float:
        raise KeyError(completion)

    async def notebook() -> list[float | None]:
        return call_reward(batch, ["p"], ["abc"], {})

    assert call_reward(one, ["p"] * 4, ["a", "bb", "ccc", ""], {}) == [1.0, 2.0, 3.0, 0.0]
    assert most[0] == 4
    assert call_reward(batch, ["p"], ["abc"], {}) == [3.0] and asyncio.run(notebook()) == [3.0]
    with pytest.raises(ValueError, match="reward failing raised KeyError: 'x' at test_reward_conventions.py, line"):
        call_reward(failing, ["p"], ["x"], {})


def test_several_rewards_are_a_weighted_sum_over_those_that_apply() -> None:
    """By hand: 0.5 * 1 + 2 * 0.25 = 1 of at most 2.5; where `b` does not apply, 0.5 of 0.5; none for the last."""

    def a(completions: list[str]) -> list[float | None]:
        return [1.0, 1.0, None]

    def b(completions: list[str]) -> list[float | None]:
        return [0.25, None, None]

    reward = make_reward(read_rewards([(a, 0.5), (b, 2)]))
    assert isinstance(reward, SeveralRewards)
    first, second, third = reward(["p"] * 3, ["x"] * 3, {})
    assert (first.score, first.correct, dict(first.parts)) == (1.0, False, {"a": 1.0, "b": 0.25})
    assert (second.score, second.correct, dict(second.parts)) == (0.5, True, {"a": 1.0})
    assert third.failed and "no reward applies to this row: a, b returned None" in third.reason
    alone = make_reward(read_rewards(a))
    assert isinstance(alone, LocalReward)
    assert alone(["p"] * 3, ["x"] * 3, {})[0] == Verdict(1.0, True)
    assert combined({"a": (-1.0, 1.0), "b": (1.0, 1.0)}) == Verdict(0.0, False)


def test_one_of_several_that_fails_leaves_its_reply_without_a_reward() -> None:
    def fine(completions: list[str]) -> list[float]:
        return [1.0] * len(completions)

    def fragile(completions: list[str]) -> list[float]:
        return [1 / len(text) for text in completions]

    verdicts = make_reward(read_rewards([fine, fragile]))(["p", "q"], ["xx", ""], {})
    assert verdicts[0].score == 1.5 and verdicts[1].failed
    assert "fragile raised ZeroDivisionError" in verdicts[1].reason and "prompt='q'" in verdicts[1].reason
    with pytest.raises(ValueError, match="fragile raised ZeroDivisionError.* at .*, line .*prompt='p'"):
        make_reward(read_rewards(fragile))(["p", "q"], ["", ""], {})


def test_rewards_in_text(tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(
        "def f(completions): return [1.0] * len(completions)\ndef g(completion): return 0.5\n"
    )
    file = tmp_path / "r.py"
    for given in (f"{file}:f,{file}:g*0.5", [f"{file}:f", f"{file}:g*0.5"], [f"{file}:f", (f"{file}:g", 0.5)]):
        parts = read_rewards(given)
        assert [(part.name, part.weight) for part in parts] == [("f", 1.0), ("g", 0.5)]
        assert reward_text(parts) == f"{file}:f,{file}:g*0.5"
        (verdict,) = make_reward(parts, 30.0)(["p"], ["c"], {})
        assert verdict.score == 1.25 and dict(verdict.parts) == {"f": 1.0, "g": 0.5}
    assert reward_text(read_rewards({"format": test_rewards_in_text, "b": (len, 2)})) == "python:format,python:b*2.0"
    assert [part.name for part in read_rewards(f"a.py:f,b.py:f,{file}:g")] == ["a.f", "b.f", "g"]
    assert [part.name for part in read_rewards([len, len])] == ["len", "len_2"]
    for given, message in (
        ("a.py:f*much", "the weight 'much' is not a finite number"),
        ([3], "a reward is a function, path/to/file.py:function, or a pair"),
        ([], "reward is empty"),
    ):
        with pytest.raises(ValueError, match=message):
            read_rewards(given)
    with pytest.raises(ValueError, match="passed as a Python object.*burnish.resume"):
        make_reward(read_rewards("python:f"))
    with pytest.raises(ValueError, match="cannot be stopped"):
        make_reward(read_rewards(len), 10.0)


def test_a_failure_is_no_verdict() -> None:
    assert isinstance(combined({"a": (1.0, Failed("no"))}), Failed)


def test_the_grader_process_needs_no_torch() -> None:
    import subprocess

    code = "import sys, burnish.reward_functions.grader_process; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
