"""Verdicts from the verifier process: equal to those in this process; a hostile reply affects only itself."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from guards import guards

from burnish.core.types import Task, Trace, Verdict
from burnish.score.judge import judge, write_verdicts
from burnish.tasks.data import Dataset
from burnish.tasks.resolve import resolve_task
from burnish.tasks.scoring import SandboxScoring
from burnish.tasks.sort import Sort
from burnish.tasks.table import BUILTIN, source
from burnish.tasks.task_set import limited, rewarded, sandboxed, task_set
from burnish.verifiers.final_answer import final_answer
from burnish.verifiers.verifier import Verifier, verifier

pytestmark = guards("sandbox", "verifiers", "reward_functions", "tasks")

SCRIPT = Path(__file__).parents[2] / "scripts" / "hostile_replies.py"


@pytest.fixture(scope="module")
def hostile() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hostile_replies", SCRIPT)
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


@pytest.mark.parametrize("name", sorted(BUILTIN))
def test_verdicts_are_those_of_the_source(name: str) -> None:
    family = source(name)
    tasks = [family.task("train", i) for i in range(6) for _ in range(3)]
    replies = [str(task.given.get(("demo", "mistake", "answer")[k % 3], "")) for k, task in enumerate(tasks)]
    assert judge(family, tasks, replies) == [family.verify(*asked) for asked in zip(tasks, replies, strict=True)]


def test_a_worker_needs_no_torch() -> None:
    code = (
        "import sys, burnish.verifiers.worker, burnish.verifiers.checks, burnish.tasks.table, burnish.verifiers.gym\n"
    )
    code += (
        "import burnish.verifiers.mathematics, burnish.reward_functions.grader_process\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"


def test_a_worker_stays_warm_and_is_replaced_when_it_is_lost() -> None:
    own, family = Verifier(), Sort()
    task = family.task("train", 0)
    asked = (family.scorer(), [family.facts(task)], [task.given["demo"]])
    assert own.judge(*asked) == [Verdict(1.0, True)]
    first = own._process
    assert own.judge(*asked) == [Verdict(1.0, True)] and own._process is first
    assert first is not None and first.worker is not None
    os.kill(first.worker, signal.SIGKILL)
    assert own.judge(*asked) == [Verdict(1.0, True)], "its loss is no fault of the reply"
    assert own._process is not first
    second = own._process
    own.end()
    assert second is not None
    with pytest.raises(ProcessLookupError):
        os.kill(second.popen.pid, 0)


def test_only_the_guilty_replies_fail(tmp_path: Path) -> None:
    pytest.importorskip("math_verify")
    data = tmp_path / "d.jsonl"
    data.write_text('{"prompt": "a", "answer": "\\\\sqrt{2}"}\n{"prompt": "b", "answer": "\\\\sqrt{2}"}\n')
    short = limited(Dataset(data), 1.0)
    task = short.task("train", 0)
    replies = [r"\boxed{\sqrt{2}}", r"\boxed{\Gamma(99999999)}", r"\boxed{\frac{2}{\sqrt{2}}}", r"\boxed{3}"]
    one, guilty, three, four = judge(short, [task] * 4, replies)
    assert (one.correct, three.correct, four.correct) == (True, True, False)
    assert not (one.failed or three.failed or four.failed)
    assert guilty.failed and guilty.score == 0.0
    assert guilty.reason.startswith("the verifier had not answered after 1 s"), guilty.reason


def test_replies_that_hang_are_not_paid_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four of five hang: one is waited for, then two workers share the others. Their order stays."""
    pytest.importorskip("math_verify")
    rows = [json.dumps({"prompt": prompt, "answer": "\\sqrt{2}"}) for prompt in "ab"]
    (tmp_path / "d.jsonl").write_text("\n".join(rows))
    data, spans, ask = Dataset(tmp_path / "d.jsonl"), [], Verifier._ask

    def timed(self: Verifier, *asked: Any) -> None:
        began = time.monotonic()
        try:
            ask(self, *asked)
        finally:
            spans.append((began, time.monotonic()))

    monkeypatch.setattr(Verifier, "_ask", timed)
    facts, hang, right = data.facts(data.task("train", 0)), r"\boxed{\Gamma(99999999)}", r"\boxed{\sqrt{2}}"
    own = Verifier(workers=2)
    found = own.judge(data.scorer(), [facts] * 5, [hang, hang, right, hang, hang], 0.7)
    own.end()
    assert [verdict.failed for verdict in found] == [True, True, False, True, True] and found[2].correct
    assert all("had not answered after 0.7 s" in verdict.reason for verdict in found if verdict.failed)
    overlapping = [(a, b) for a in spans for b in spans if a[0] < b[0] < a[1]]
    assert overlapping, "no two replies were scored at the same time"


def test_a_verifier_of_the_users_own_stays_in_this_process() -> None:
    """It is a Python object: no other process has it. What it raises is data, sys.exit too."""

    class Mine(Sort):
        def verify(self, task: Task, reply: str) -> Verdict:
            if reply == "exit":
                sys.exit(0)
            return Verdict(0.25, False, str(os.getpid()))

    mine = Mine()
    task = mine.task("train", 0)
    one, two = judge(mine, [task] * 2, ["x", "exit"])
    assert one == Verdict(0.25, False, str(os.getpid()))
    assert two.score == 0.0 and "raised SystemExit" in two.reason
    assert sandboxed(mine) is None
    with pytest.raises(ValueError, match="the verifier of 'sort' is a Python object in this process"):
        resolve_task(mine, seconds=1.0)


def test_braces_without_end_are_read_in_one_pass() -> None:
    """2,857 of them took 5 s when each was followed to the end of the text; a hundred times as many take no time."""
    for text in (r"\boxed{" * 2857, r"\boxed{" * 2857 + "}" * 2857, r"\boxed {{" * 2000 + "}" * 3999):
        began = time.process_time()
        final_answer(text, r"\sqrt{2}")
        assert time.process_time() - began < 2.0
    assert final_answer(r"\boxed{1} \boxed{2 \boxed{3} 4}") == "3"
    assert final_answer(r"\boxed{1} } \boxed{{2} and \boxed{3") == "1"


def test_hostile_replies_run_nothing_and_hang_nothing(hostile: ModuleType) -> None:
    """The two thousand of scripts/hostile_replies.py, in small: over some datasets, math-verify, the built-in tasks."""
    pytest.importorskip("reasoning_gym")
    pytest.importorskip("math_verify")
    gyms = ["string_insertion", "n_queens", "coin_flip", "countdown"]
    found = hostile.go(140, seed=1, seconds=0.7, gyms=gyms, say=lambda text: None)
    assert found["code_executions"] == found["hangs"] == found["code_executions_without_the_sandbox"] == 0
    assert found["replies"] >= 140 and found["scorers_that_no_longer_judge_right"] == found["files_left"] == []
    assert found["stopped_by_the_time_limit"] >= 2, "the attacks are real: without limits these would hang"
    assert found["slowest_reading_in_the_run_s"] < 1.0


@pytest.mark.slow
def test_hostile_replies_to_every_scorer(hostile: ModuleType) -> None:
    found = hostile.go(2000, seed=2, say=lambda text: None)
    assert found["code_executions"] == found["hangs"] == found["code_executions_without_the_sandbox"] == 0
    assert found["scorers_that_no_longer_judge_right"] == found["files_left"] == []


def test_the_sandbox_is_as_strong_as_the_kernel_allows() -> None:
    family = source("sort")
    task = family.task("train", 0)
    assert task_set(family).verdicts([task], ["x"]) is not None
    assert set(verifier("builtin").isolation) == {"limits", "scratch", "namespaces", "landlock", "seccomp"}


def test_any_object_with_the_declared_methods_scores_batches() -> None:
    """Scoring is a protocol: a user's class scores a batch in one call and says what becomes of failures."""

    class Mine(Sort):
        eager, calls, drop_failed = None, 0, True

        def require_verifier(self, split: str) -> None: ...

        def verify(self, task: Task, reply: str) -> Verdict:
            return self.verdicts([task], [reply])[0]

        def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
            self.calls += 1
            return [Verdict(len(reply) / 10, False) for reply in replies]

    mine = Mine()
    assert task_set(mine).scoring is mine and task_set(mine).drop_failed
    assert [verdict.score for verdict in judge(mine, [mine.task("train", 0)] * 2, ["ab", "abc"])] == [0.2, 0.3]
    assert mine.calls == 1
    paid = rewarded(source("sort"), lambda completions: [0.0])
    assert task_set(paid) is paid
    assert isinstance(task_set(source("sort")).scoring, SandboxScoring)


def test_one_place_writes_verdicts_on_traces() -> None:
    traces = [Trace(()), Trace((), note={"stop": "end"})]
    write_verdicts(traces, [Verdict(1.0, True), Verdict(0.25, False, "not sorted")])
    assert [trace.scores for trace in traces] == [{"reward": 1.0, "correct": 1.0}, {"reward": 0.25, "correct": 0.0}]
    assert [trace.note for trace in traces] == [{}, {"stop": "end", "why": "not sorted"}]
    with pytest.raises(ValueError, match="shorter"):
        write_verdicts(traces, [Verdict(1.0, True)])


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise MemoryError('no room for numpy')", "exit status 1; its last words: MemoryError: no room for numpy"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            "killed by SIGKILL; its last words: it said nothing",
        ),
    ],
)
def test_a_process_that_ends_while_it_starts_says_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    """Not after 120 s, but at once; with what it wrote."""
    (tmp_path / "json.py").write_text(program)
    monkeypatch.syspath_prepend(str(tmp_path))
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"the verifier process ended \(" + re.escape(said) + r"\) while it started"):
        Verifier().judge({"name": "any"}, [1], ["1"])
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(("way", "code"), [("os._exit(7)", 7), ("os.kill(os.getpid(), 11)", -11)])
def test_a_guard_ends_as_its_worker_did(way: str, code: int) -> None:
    program = f"import os; from burnish.sandbox.guard import fork_guard; fork_guard(); {way}"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE
    ) as guard:  # a guard ends with its input
        assert guard.wait(60) == code
