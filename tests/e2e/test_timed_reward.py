"""A reward function with a time limit: a hang, crash or error affects only its own reply."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from guards import guards
from runs import function, go

from burnish.checkpoint.diff import log_rows
from burnish.core.rejected import NotFinite
from burnish.core.types import Verdict
from burnish.reward_functions.reward import MAX_FAILED_BATCHES, MAX_HUNG_REPLIES
from burnish.reward_functions.timed import TimedReward

pytestmark = guards("sandbox", "verifiers", "reward_functions")

CODE = """
import os, re, sys, time

def f(completions, answer=None):
    print("chatter that must not disturb the answers")
    for text in completions:
        if "sleep" in text:
            helper()
        if "regex" in text:  # holds the interpreter's lock: no thread could interrupt it
            re.match("(a+)+$", "a" * 40 + "b")
        if "exit" in text:
            os._exit(3)
        if "raise" in text:
            raise KeyError(text)
        if "nan" in text:
            return [float("nan")] * len(completions)
    return [len(text) / 10 for text in completions]

def helper():
    time.sleep(1000)
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    return function(tmp_path_factory.mktemp("reward") / "mine.py", CODE, "f")


@pytest.fixture(scope="module")
def judge(spec: str) -> TimedReward:
    return TimedReward(spec, 1.0)


def ask(judge: TimedReward, *replies: str) -> list[Verdict]:
    return judge([""] * len(replies), list(replies), {"answer": ["x"] * len(replies)})


def test_what_answers_in_time_is_what_it_was(judge: TimedReward) -> None:
    assert ask(judge, "12", "1234567") == [Verdict(0.2, False), Verdict(0.7, True)]


@pytest.mark.parametrize(
    ("guilty", "why"),
    [
        ("sleep", r"had not answered after 1 s, at mine.py:20 in helper; its process was killed"),
        ("regex", r"had not answered after 1 s, at .*; its process was killed"),
        ("exit", r"died during a call"),
        ("raise", r"reward f raised KeyError"),
    ],
)
def test_only_the_guilty_reply_is_without_a_reward(guilty: str, why: str, judge: TimedReward) -> None:
    began = time.monotonic()
    one, two, three = ask(judge, "12", guilty, "123456")
    assert time.monotonic() - began < 2 * (1.0 + 5.0), "the limit twice, and 5 s each to notice it"
    assert (one, three) == (Verdict(0.2, False), Verdict(0.6, True))
    assert two.failed and two.score == 0.0 and not two.correct
    import re

    assert re.search(why, two.reason), two.reason


def test_a_hang_is_noticed_within_the_limit_and_little_more(judge: TimedReward) -> None:
    ask(judge, "12")
    began = time.monotonic()
    (verdict,) = ask(judge, "sleep")
    assert verdict.failed and 1.0 <= time.monotonic() - began < 1.0 + 5.0


def test_a_killed_function_leaves_no_process(spec: str) -> None:
    judge = TimedReward(spec, 0.3)
    assert judge._process is not None
    pid = judge._process.popen.pid
    ask(judge, "sleep")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    ask(judge, "12")
    pid = judge._process.popen.pid
    del judge
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_batch_that_hangs_throughout_is_given_up(spec: str) -> None:
    judge = TimedReward(spec, 0.3)
    verdicts = ask(judge, *["sleep"] * 6)
    assert all(verdict.failed for verdict in verdicts)
    assert [verdict.reason.startswith("not scored") for verdict in verdicts] == [False] * MAX_HUNG_REPLIES + [True] * (
        6 - MAX_HUNG_REPLIES
    )
    ask(judge, "sleep")
    with pytest.raises(
        ValueError, match=rf"gave no reward in {MAX_FAILED_BATCHES} batches in a row: .* had not answered after 0.3 s"
    ):
        ask(judge, "sleep")


def test_what_is_no_number_is_refused_as_anywhere(judge: TimedReward) -> None:
    with pytest.raises(NotFinite, match=r"returned nan at index 0"):
        ask(judge, "12", "nan")


def test_a_function_that_always_raises_is_its_authors_to_mend(judge: TimedReward) -> None:
    with pytest.raises(
        ValueError, match=r"reward f raised KeyError: 'raise' at mine.py, line 14, .*'raise'; fix the function"
    ):
        ask(judge, "raise", "raise")


@pytest.mark.parametrize(
    ("name", "seconds", "match"),
    [
        ("g", 1.0, r"has no function 'g'; it has f, helper"),
        ("f", 0.0, r"a time limit of 0 s is too short for any call"),
    ],
)
def test_what_cannot_work_is_refused_at_once(name: str, seconds: float, match: str, spec: str) -> None:
    with pytest.raises(ValueError, match=match):
        TimedReward(spec.rpartition(":")[0] + f":{name}", seconds)


SOMETIMES = """
import hashlib, time

def byte(text):
    return hashlib.md5(text.encode()).digest()[0]

def f(completions):
    if any(byte(text) % 8 == 0 for text in completions):
        time.sleep(1000)
    return [float(byte(text) % 2) for text in completions]
"""


@pytest.mark.parametrize("policy", ["zero", "drop"])
def test_a_run_goes_on_past_replies_whose_reward_hangs(policy: str, small_model: Path, tmp_path: Path) -> None:
    reward = function(tmp_path / "r.py", SOMETIMES, "f")
    more: dict[str, Any] = {"reward_timeout": 0.4, "on_reward_failure": policy, "steps": 2, "n": 4}
    result = go("grpo", small_model, tmp_path / "run", reward=reward, **more)
    failures = [row.get("reward_failures", 0) for row in result.metrics]
    assert sum(failures) > 0
    kept = [row["traces"] + (failures[i] if policy == "drop" else 0) for i, row in enumerate(result.metrics)]
    assert kept == [8, 8], "every reply is counted once"
    events = [event["said"] for event in log_rows(tmp_path / "run", "events")]
    assert len(events) == 1 and "replies got no reward" in events[0]


@pytest.mark.parametrize(
    ("seconds", "wanted"),
    [
        (0.0, "above 0"),
        (-1.0, "above 0"),
        (float("inf"), "a finite number"),
        (float("nan"), "a finite number"),
    ],
)
def test_an_invalid_time_limit_is_refused(seconds: float, wanted: str, small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=rf"option 'reward_timeout' is .*; it must be {wanted}"):
        go("grpo", small_model, tmp_path / "run", reward_timeout=seconds)


def test_a_limit_holds_for_the_tasks_own_verifier_too(small_model: Path, tmp_path: Path) -> None:
    """With time enough, it changes nothing."""
    plain = go("grpo", small_model, tmp_path / "plain").metrics
    assert go("grpo", small_model, tmp_path / "limited", reward_timeout=30.0).metrics == plain
