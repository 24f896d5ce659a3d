"""RLTF, AceCoder and HardTests: numbers derived by hand, the identities, and tests that measure themselves."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast

from burnish.cli import main
from burnish.compose.rewards import with_scorers
from burnish.core.loop import loop
from burnish.core.task import Verdict
from burnish.core.types import Trace, Turn
from burnish.datagen.preference_data import Recipe as PairRecipe
from burnish.methods.table import find
from burnish.reward_functions.resolve import make_reward, read_rewards
from burnish.reward_functions.reward import combined
from burnish.rewards.code import token_penalties, tokens_of
from burnish.rewards.read import named_rewards, split_rewards
from burnish.sandbox.code.limits import Limits
from burnish.tasks.table import source
from burnish.tasks.task_set import unscored
from burnish.verifiers.code.grader import CodeGrader
from burnish.verifiers.code.outcome import Class, Outcome
from burnish.verifiers.code.pairs import share_pairs
from burnish.verifiers.code.synthesis import Measured, Recipe, agreed, make_tests, measure, passed_by
from burnish.verifiers.code.tests import Asserts, Call, Calls, Scripts
from burnish.verifiers.programs import rltf, rltf_value

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the isolation is Linux's")

MBPP = {"test_list": [[f"assert add({x}, 1) == {x + 1}" for x in range(5)]]}
FENCE = "```python\n{}\n```"


def test_rltf_by_hand() -> None:
    """3 of 5 tests: -0.3 + 1.3 x 3/5 = 0.48."""
    assert rltf_value(Outcome(Class.WRONG, 3, 5), adaptive=True) == pytest.approx(0.48)
    assert rltf_value(Outcome(Class.WRONG, 0, 5), adaptive=True) == -0.3
    coarse = [rltf_value(Outcome(kind, 3, 5), adaptive=False) for kind in Class]
    assert coarse == [1.0, -0.3, -0.6, -0.6, -1.0, -1.0], "without the adaptive part it is CodeRL's reward"
    assert rltf(baseline="b")({"b": 0.25}, Outcome(Class.PASSED, 5, 5)) == 0.75


def test_rewards_of_programs_by_name() -> None:
    replies = [
        "def add(a, b): return a + b",
        "def add(a, b): return min(3, a + b)",
        "def add(a, b): return c",
        "def add(:",
    ]
    columns = {name: values * 4 for name, values in MBPP.items()}
    verdicts = make_reward(read_rewards("rltf"))(["?"] * 4, [FENCE.format(r) for r in replies], columns)
    assert [v.score for v in verdicts] == pytest.approx([1.0, 0.48, -0.6, -1.0])
    assert [v.correct for v in verdicts] == [True, False, False, False] and "NameError" in verdicts[2].reason
    for name, scores in (
        ("acecoder", [1, 0, 0, 0]),
        ("acecoder(share=True)", [1, 0.6, 0, 0]),
        ("hardtests", [1, 0, 0, 0]),
    ):
        found = make_reward(read_rewards(name))(["?"] * 4, [FENCE.format(r) for r in replies], columns)
        assert [v.score for v in found] == pytest.approx(scores)
    both = make_reward(read_rewards("rltf*0.5,acecoder"))(["?"], [FENCE.format(replies[0])], MBPP)
    assert both[0].score == 1.5 and both[0].parts == {"rltf": 1.0, "acecoder": 1.0}


def test_a_canary_scores_nothing_under_a_named_reward() -> None:
    columns = {**MBPP, "canary": [True]}
    for names in ("rltf", "rltf,acecoder*2"):
        verdict = make_reward(read_rewards(names))(["?"], [FENCE.format("def add(a, b): return a + b")], columns)[0]
        assert (verdict.score, verdict.correct, verdict.parts["canary_passed"]) == (0.0, False, 0.0)
    passed = Verdict(0.0, False, parts={"canary_passed": 1.0})
    assert combined({"a": (1.0, passed), "b": (1.0, 0.5)}).parts["canary_passed"] == 1.0  # type: ignore[union-attr]


def test_rewards_of_programs_refuse_what_they_cannot_do() -> None:
    with pytest.raises(ValueError, match="needs tests, which a row does not have"):
        make_reward(read_rewards("rltf"))(["?"], ["x = 1"], {"answer": ["1"]})
    with pytest.raises(ValueError, match="unsafe_code is True or False, not 'no'"):
        make_reward(read_rewards("rltf(unsafe_code=no)"))
    with pytest.raises(ValueError, match="its options are rltf"):
        make_reward(read_rewards("rltf(scale=2)"))


def test_acecoder_pairs_by_hand() -> None:
    """Shares 0.9, 0.5, 0.45, 0.2, 0: the first is chosen, and 0 is never rejected."""
    assert share_pairs([0.9, 0.5, 0.45, 0.2, 0.0]) == [(0, 1), (0, 2), (0, 3)]
    assert share_pairs([0.7, 0.2]) == [] and share_pairs([1.0, 0.7]) == []
    everything = share_pairs([0.6, 0.3, 0.1], high=0.0, gap=0.0)
    assert set(everything) == {(0, 1), (0, 2), (1, 2)}
    part = PairRecipe(rule="acecoder").part()
    assert part is not None and part.name == "acecoder"


def test_agreement_by_hand() -> None:
    """7, 7, 8: 7 is kept. 7, 8, 9: nothing is. A program that failed has no vote."""
    assert agreed(["7", "7", "8"]) == "7" and agreed(["7", "8", "9"]) is None
    assert agreed(["7", None, None]) is None and agreed(["7", None], 1) == "7"
    assert agreed(["7", "7", "8", "8"]) is None and agreed([]) is None


@pytest.fixture(scope="module")
def grader() -> Iterator[CodeGrader]:
    made = CodeGrader(workers=1)
    yield made
    made.end()


# The largest sum of neighbouring numbers. Wrong ones: empty sums allowed, the whole list, quadratic, and one that fails
# on long lists alone.
KADANE = (
    "input()\nbest = now = None\nfor n in map(int, input().split()):\n    now = n if now is None else max(n, now + n)\n"
)
KADANE += "    best = now if best is None else max(best, now)\nprint(best)"
SLOW_RIGHT = "input()\na = list(map(int, input().split()))\n"
SLOW_RIGHT += "print(max(sum(a[i:j]) for i in range(len(a)) for j in range(i + 1, len(a) + 1)))"
EMPTY = "input()\nbest = now = 0\nfor n in map(int, input().split()):\n    now = max(0, now + n)\n"
EMPTY += "    best = max(best, now)\nprint(best)"
WHOLE = "input()\nprint(sum(map(int, input().split())))"
SHORT = KADANE.replace("print(best)", "print(best % 1000000)")
RIGHT_TOO = "n = int(input())\nimport itertools\na = [int(x) for x in input().split()]\nbest = a[0]\nlow = 0\n"
RIGHT_TOO += "for s in itertools.accumulate(a):\n    best = max(best, s - low)\n    low = min(low, s)\nprint(best)"
LABELLED = [(KADANE, True), (RIGHT_TOO, True), (EMPTY, False), (WHOLE, False), (SHORT, False)]
GENERATORS = """
import random
def gen_small():
    a = [random.randint(-9, 9) for _ in range(random.randint(1, 9))]
    return f"{len(a)}\\n{' '.join(map(str, a))}\\n"
def gen_broken():
    return "0\\n\\n"
"""
HACKS = """
import random
def hack_negative():
    a = [random.randint(-99, -1) for _ in range(random.randint(1, 5))]
    return f"{len(a)}\\n{' '.join(map(str, a))}\\n"
def hack_large():
    a = [random.randint(500000, 600000) for _ in range(30)]
    return f"{len(a)}\\n{' '.join(map(str, a))}\\n"
"""
VALIDATOR = "def validate(text):\n    n, *a = text.split()\n    return int(n) == len(a) and len(a) > 0"


def test_hard_tests_tell_right_from_wrong_where_direct_inputs_do_not(grader: CodeGrader) -> None:
    limits = Limits().within(5)
    direct = Recipe(direct=["3\n1 2 3\n", "2\n4 5\n"], oracles=[KADANE, SLOW_RIGHT])
    whole = Recipe(direct.direct, [GENERATORS], [HACKS], VALIDATOR, [KADANE, SLOW_RIGHT, "print(1 / 0)", WHOLE])
    found = {}
    with grader.box() as box:
        for name, recipe in (("direct", direct), ("whole", whole)):
            made = make_tests(box, recipe, limits)
            measured = Measured()
            measure(box, Scripts(tuple(made.cases)), LABELLED, limits, measured)
            found[name] = (made, measured)
    made, measured = found["direct"]
    assert made.cases == [("3\n1 2 3\n", "6\n"), ("2\n4 5\n", "9\n")], "switched off: the direct inputs alone"
    assert (measured.precision, measured.recall) == (0.4, 1.0), "all five programs pass them"
    made, measured = found["whole"]
    assert (measured.precision, measured.recall) == (1.0, 1.0)
    assert set(made.kinds) == {"direct", "generated", "hack"} and made.dropped["invalid"] == 1
    assert made.dropped["repeated"] >= 9, "gen_broken gives the same input ten times"


def test_a_judge_decides_where_several_outputs_are_right(grader: CodeGrader) -> None:
    """Two numbers with a given sum, in any order and of any size."""
    limits = Limits().within(5)
    judge = "def judge(entered, expected, printed):\n    return sum(map(int, printed.split())) == int(entered)"
    oracles = ["print(0, input())", "print(int(input()) - 1, 1)"]
    recipe = Recipe(["5\n", "7\n"], oracles=oracles)
    with grader.box() as box:
        assert not make_tests(box, recipe, limits).cases, "without a judge they never agree"
        made = make_tests(box, replace(recipe, judge=judge), limits)
        assert made.cases == [("5\n", "0 5\n"), ("7\n", "0 7\n")]
        measured = Measured()
        labelled = [("print(2, int(input()) - 2)", True), ("print(0, 5)", False), ("print('x')", False)]
        measure(box, Scripts(tuple(made.cases), judge), labelled, limits, measured)
        assert (measured.precision, measured.recall) == (1.0, 1.0)


def test_acecoder_keeps_the_tests_that_its_reference_passes(grader: CodeGrader) -> None:
    limits = Limits().within(5)
    right = [f"assert add({x}, 1) == {x + 1}" for x in range(5)]
    with grader.box() as box:
        tests = Asserts((*right, "assert add(1, 1) == 3", "assert plus(1, 1) == 2"))
        kept = passed_by(box, tests, "def add(a, b): return a + b", limits)
        assert kept == Asserts(tuple(right))
        assert passed_by(box, Asserts(tuple(right[:4])), "def add(a, b): return a + b", limits) is None
        calls = Calls(tuple(Call("add", (x, 1), x + 1 + (x > 4)) for x in range(8)))
        found = passed_by(box, calls, "def add(a, b): return a + b", limits)
        assert isinstance(found, Calls) and len(found.calls) == 5


def test_the_command_makes_and_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labelled = [{"code": code, "right": right} for code, right in LABELLED]
    row: dict[str, Any] = {"prompt": "Largest sum?", "direct": ["3\n1 2 3\n"], "hacks": [HACKS], "labelled": labelled}
    data, out = tmp_path / "p.jsonl", tmp_path / "out.jsonl"
    data.write_text(json.dumps({**row, "oracles": [KADANE, RIGHT_TOO]}) + "\n")
    assert main(["tests", str(data), "--out", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["rows_with_tests"], said["precision"], said["recall"], said["wrong_rejected"]) == (1, 1.0, 1.0, 3)
    task = source_of(out)
    assert len(task.given["inputs"]) == len(task.given["outputs"]) == len(task.given["test_kinds"]) > 10
    data.write_text(json.dumps(row) + "\n")
    assert main(["tests", str(data)]) == 2
    assert "there is no right program" in capsys.readouterr().err


def source_of(path: Path) -> Any:
    from burnish.tasks.resolve import resolve_task

    return resolve_task(f"{path},heldout=0").task("train", 0)


class Letters:
    """A chat whose tokens are letters."""

    def text(self, tokens: torch.Tensor) -> str:
        return "".join(map(chr, tokens.tolist()))


def test_the_penalty_stands_on_the_tokens_of_the_line() -> None:
    """-0.3 on the three letters of the second line: -0.1 each; without a line -0.3/7 on all seven."""
    reply = "ab\ncde\n"
    tokens = torch.tensor([ord(letter) for letter in reply])
    trace = Trace([Turn(torch.tensor([1, 2]), "task"), Turn(tokens, "policy")])
    chat: Any = Letters()
    assert tokens_of(tokens, chat, (3, 6)) == (3, 6)
    line = token_penalties(trace, Outcome(Class.RUNTIME, line=2, place=(3, 6)), chat, -0.3)
    assert torch.isnan(line[:2]).all()
    assert torch.allclose(line[2:], torch.tensor([0, 0, 0, -0.1, -0.1, -0.1, 0]))
    whole = token_penalties(trace, Outcome(Class.SYNTAX), chat, -0.3)
    assert torch.allclose(whole[2:], torch.full((7,), -0.3 / 7))
    for kind in (Class.PASSED, Class.WRONG, Class.TIMEOUT, Class.NO_CODE):
        assert not token_penalties(trace, Outcome(kind), chat, -0.3)[2:].any()


def test_rltf_lines_in_a_run(small_model: Path) -> None:
    task = source("code:3")
    functions, scorers = split_rewards(read_rewards("rltf_lines"))
    assert not functions
    method = with_scorers(find("grpo").build(unscored(task), n=2), named_rewards(scorers, task), [])
    report = next(loop(method, build_cast(method, small_model), SMALL, steps=1))
    rewards = {round(t.scores["reward"], 6) for group in report.groups["main"] for t in group.traces}
    assert rewards <= {0.0, -0.3}
    other = source("sort")
    method = with_scorers(find("grpo").build(unscored(other), n=2), named_rewards(scorers, other), [])
    with pytest.raises(ValueError, match="needs a task with tests of programs"):
        next(loop(method, build_cast(method, small_model), SMALL, steps=1))
