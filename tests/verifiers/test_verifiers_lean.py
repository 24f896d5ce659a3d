"""Proofs in Lean: what is refused before Lean runs, how its messages are read, limits, and what is said without it.

Lean itself is not part of the test environment. The messages are of the form that `lean --json` prints; a small shell
script stands in for the program where the handling of its process is tested. Where Lean is installed, the last test
asks it.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from burnish.core.call_syntax import Call
from burnish.reward_functions.proved import LeanReward
from burnish.reward_functions.resolve import make_reward, read_rewards
from burnish.verifiers.checks import BadRow
from burnish.verifiers.lean import NotProved, program_of, statement_of, verdict_of, without_comments

ROW = {"formal_statement": "theorem two_add (n : Nat) : n + 0 = n := by sorry", "prompt": "", "header": "open Nat"}
GOOD = "<think>easy</think>\n```lean4\ntheorem two_add (n : Nat) :\n    n + 0 = n := by -- sorry, no\n  simp\n```"


def test_comments_are_left_out() -> None:
    assert without_comments("a -- b\nc /- d /- e -/ f -/ g") == "a \nc  g"
    assert without_comments("/- a -- b -/ c") == " c"
    for text in ("/- a", "a -/"):
        with pytest.raises(NotProved):
            without_comments(text)


def test_the_program_has_the_statement_of_the_row() -> None:
    assert statement_of(ROW) == ("two_add", "theorem two_add (n : Nat) : n + 0 = n")
    text, line = program_of(ROW, GOOD)
    assert text.startswith("open Nat\ntheorem two_add (n : Nat) : n + 0 = n := by")
    assert text.splitlines()[line - 1] == "#print axioms two_add"
    before = GOOD.replace("theorem", "def Nat := Unit\ntheorem")
    assert "Unit" not in program_of(ROW, before)[0], "what stands before the statement is left out"


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("", "occurs 0 times"),
        (GOOD.replace("</think>", ""), "occurs 0 times"),
        ("theorem two_add (n : Nat) : n + 0 = n := by sorry", "'sorry'"),
        ("theorem two_add (n : Nat) : n + 0 = n := by\n  exact sorryAx _", "'sorryAx'"),
        ("theorem two_add (n : Nat) : n = n := by simp", "occurs 0 times"),
        ("theorem two_add (n : Nat) : n + 0 = n :=", "no proof"),
        ("theorem two_add (n : Nat) : n + 0 = n := cheat\naxiom cheat : False", "'axiom'"),
        ("theorem two_add (n : Nat) : n + 0 = n := by native_decide", "'native_decide'"),
        ("theorem two_add (n : Nat) : n + 0 = n := by simp\n#eval 1", "'#eval'"),
        ("theorem two_add (n : Nat) : n + 0 = n := by run_tac return", "'run_tac'"),
        ('theorem two_add (n : Nat) : n + 0 = n := by simp\nmacro "x" : tactic => `(tactic| rfl)', "'macro'"),
        ("/- theorem two_add (n : Nat) : n + 0 = n := by simp -/", "occurs 0 times"),
        ("theorem two_add (n : Nat) : n + 0 = n := by simp\n" * 2, "occurs 2 times"),
        ("x" * 100_000, "characters"),
        ("/-" * 20_000, "not closed"),
    ],
)
def test_what_is_refused_before_lean_runs(reply: str, why: str) -> None:
    with pytest.raises(NotProved, match=why):
        program_of(ROW, reply)


def test_a_row_without_a_theorem_is_answered() -> None:
    with pytest.raises(BadRow, match="formal_statement"):
        statement_of({"prompt": ""})
    with pytest.raises(BadRow, match="is not `theorem name"):
        statement_of({"formal_statement": "example : True := trivial"})


def message(severity: str, data: str, line: int) -> str:
    return json.dumps({"severity": severity, "data": data, "pos": {"line": line, "column": 0}})


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([("warning", "unused variable", 2), ("information", "'t' does not depend on any axioms", 9)], ""),
        ([("information", "'t' depends on axioms: [propext, Classical.choice, Quot.sound]", 9)], ""),
        ([("information", "'t' depends on axioms: [propext, sorryAx]", 9)], "axiom sorryAx"),
        ([("error", "unsolved goals", 3), ("information", "'t' does not depend on any axioms", 9)], "unsolved goals"),
        ([("information", "'t' does not depend on any axioms", 8)], "did not say"),
        ([], "did not say"),
    ],
)
def test_the_messages_of_lean(lines: list[tuple[str, str, int]], why: str) -> None:
    output = "\n".join(["no json", "[" * 5000, *(message(*line) for line in lines)])
    found = verdict_of(output, 9)
    assert (why in found) if why else found == ""


def test_without_lean_one_sentence_says_so() -> None:
    with pytest.raises(ValueError, match="the reward 'lean' needs Lean 4, and there is no program 'no-such-lean'"):
        make_reward(read_rewards("lean(executable=no-such-lean)"))


def stand_in(folder: Path, *commands: str) -> LeanReward:
    script = folder / "lean"
    script.write_text("\n".join(['#!/bin/sh\n[ "$1" = --print-prefix ] && echo / && exit', *commands]))
    script.chmod(0o755)
    return LeanReward(Call("lean", (), {"executable": str(script)}), seconds=20.0)


def asked(reward: LeanReward, reply: str = GOOD) -> Any:
    return reward.ask(["?"], [reply], {name: [value] for name, value in ROW.items()})[0]


def test_the_process_is_read_and_isolated(tmp_path: Path) -> None:
    _, line = program_of(ROW, GOOD)
    said = message("information", "'two_add' does not depend on any axioms", line)
    right = asked(stand_in(tmp_path, "cat > /dev/null", f"echo '{said}'"))
    assert (right.score, right.correct) == (1.0, True)
    (tmp_path / "secret").touch()
    writes = asked(stand_in(tmp_path, f"cat > {tmp_path}/stolen", f"echo '{said}'", "exit 1"))
    assert not writes.correct and not (tmp_path / "stolen").exists()
    assert asked(stand_in(tmp_path, "cat"), reply="sorry").score == 0


def test_a_proof_that_takes_too_long_scores_0(tmp_path: Path) -> None:
    reward = stand_in(tmp_path, "sleep 60")
    reward.seconds, started = 1.0, time.monotonic()
    found = asked(reward)
    assert found.score == 0 and "had not ended after 1 s" in found.reason and time.monotonic() - started < 20


@pytest.mark.skipif(shutil.which("lean") is None, reason="Lean 4 is not installed")
def test_lean_itself() -> None:
    reward = make_reward(read_rewards("lean"))
    bad = GOOD.replace("simp", "exact absurd rfl (by decide)")
    found = reward(["?"] * 2, [GOOD, bad], {name: [value] * 2 for name, value in ROW.items()})
    assert [verdict.score for verdict in found] == [1.0, 0.0]
