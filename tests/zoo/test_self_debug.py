"""Self-debugging: CodeBLEU, the two rewards and their credit by hand, and what it becomes without an explanation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast

from burnish.core.call_syntax import read_call
from burnish.core.loop import loop
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.credit import gae, token_rewards
from burnish.tasks.table import source
from burnish.verifiers.code_similarity import codebleu, data_flow, parsed, subtrees, weighted_bleu
from burnish.verifiers.table import build_check
from burnish.zoo.self_debug import (
    START,
    Debugging,
    Refinement,
    Refinements,
    code_reward,
    debugged,
    explained,
    explanation_reward,
    gae_of_parts,
    read_refinement,
    self_debug,
)

PROGRAM = "def f(x):\n    y = x + 1\n    return y\n"


def test_rewards_by_hand() -> None:
    """S_cb .6, S_ut .8, S_ex .76 give 2 and 1; S_ex .4, .7 and 1 give -5, 0 and 5."""
    assert code_reward(0.6, 0.8) == pytest.approx(2.0) and code_reward(1, 1) == 5 and code_reward(0, 0) == -5
    assert explanation_reward(0.76) == pytest.approx(1.0)
    assert [explanation_reward(s) for s in (0.0, 0.4, 0.7, 1.0)] == pytest.approx([-5, -5, 0, 5])


def test_codebleu_parts_by_hand() -> None:
    tree = parsed(PROGRAM)
    assert tree is not None
    assert data_flow(tree) == {("v1", "v0"): 1, ("return", "v1"): 1}
    assert subtrees(parsed("1+2")) == {  # type: ignore[arg-type]
        "BinOp(Constant() Add() Constant())": 1,
        "Expr(BinOp(Constant() Add() Constant()))": 1,
        "Module(Expr(BinOp(Constant() Add() Constant())))": 1,
    }
    assert codebleu(PROGRAM, PROGRAM) == pytest.approx(1.0) and codebleu("", PROGRAM) == 0
    renamed = PROGRAM.replace("y", "total").replace("x", "number")
    assert parsed(renamed) is not None and codebleu(renamed, PROGRAM) > 0.6  # the same tree and data flow
    assert codebleu("def f(x:", PROGRAM) < codebleu("def f(x):\n    return x\n", PROGRAM) < 1


def test_keywords_weigh_more() -> None:
    """Of `return a`, `return b` shares the keyword (1 of 1.2), `c a` the name (.2 of .4); plain BLEU has 1/2 each."""
    keyword, name = weighted_bleu(["return", "b"], ["return", "a"]), weighted_bleu(["c", "a"], ["return", "a"])
    assert keyword > name
    assert keyword / name == pytest.approx(((1 / 1.2) / (0.2 / 0.4)) ** 0.5)


def test_codebleu_as_a_reward_never_runs_or_fails() -> None:
    call = read_call("codebleu")
    assert call is not None
    check = build_check(call)
    row = {"prompt": "", "answer": PROGRAM}
    assert check(row, f"so:\n```python\n{PROGRAM}```").correct
    for reply in ("", "(" * 5000, "1+" * 5000, "raise SystemExit", "\x00", "x" * 30_000):
        assert check(row, reply).score < 0.9


@pytest.mark.parametrize(
    ("reply", "explanation", "code"),
    [
        ("It adds.\n```python\nx = 1\n```", "It adds.\n```python", "x = 1"),
        ("3+4=7\nanswer: 3+4", "3+4=7", "3+4"),
        ("3+4", "", "3+4"),
    ],
)
def test_a_reply_is_an_explanation_and_a_program(reply: str, explanation: str, code: str) -> None:
    found = read_refinement(reply)
    assert (found.explanation, found.code) == (explanation, code)


def test_tasks_show_the_wrong_program_and_how_it_fails() -> None:
    task = Debugging(source("code:3")).task("train", 0)
    first, wrong, why = task.prompt
    assert isinstance(first, dict) and isinstance(wrong, dict) and isinstance(why, dict)
    assert wrong["content"] == task.given["mistake"] and "gives" in why["content"]
    with pytest.raises(ValueError, match="no tests of programs"):
        Debugging(source("sort"))


def test_good_refinements_are_remembered_and_saved() -> None:
    task = Task("question", "?", {"demo": "why\nanswer: 1+2"}, "k")
    memory = Refinements()
    assert memory.of(task) == [Refinement("why", "1+2", 4)]
    for i in range(6):
        memory.add(task, Refinement(f"e{i}", f"c{i}", 0))
    again = Refinements()
    again.load_state_dict(memory.state_dict())
    assert [one.code for one in again.of(task)] == ["c2", "c3", "c4", "c5"]
    assert explained("same words", ["same words"]) == pytest.approx(1.0) and explained("", ["x y"]) == 0
    assert explained("anything", []) == 0.7


def replied(at: int, **scores: float) -> Trace:
    """A prompt of one token and a reply of four, whose refinement begins at a position."""
    trace = Trace((Turn(torch.zeros(1, dtype=torch.long), "task"), Turn(torch.arange(4), "policy")), scores=scores)
    trace.note[START] = at
    for name, values in (("old", [0.0, -1, -1, -1, -1]), ("ref", [0.0, -1, -1, -2, -1]), ("value", [0.0, 1, 2, 3, 4])):
        trace.streams[name] = torch.tensor(values)
    return trace


def nothing() -> Step:
    return Step(Clock(0, 1), None, SMALL)  # type: ignore[arg-type]


def test_no_reward_reaches_the_other_part() -> None:
    """lambda 1, gamma 1: A = what the part still earns - V; the KL costs 0.1 x 1 at the third token."""
    trace = replied(3, code=2.0, explanation=1.0)
    part = gae_of_parts("explanation", "code", START, kl=0.1, lam=1.0)
    part.call([Group(Task("q", "?", {}, "?"), [trace])], nothing())
    assert trace.streams["adv"][1:].tolist() == pytest.approx([1 - 1, 1 - 2, 1.9 - 3, 2 - 4])
    assert trace.streams["returns"][1:].tolist() == pytest.approx([1, 1, 1.9, 2])


def test_without_an_explanation_it_is_the_credit_of_ppo() -> None:
    ours, plain = replied(1, code=2.0, explanation=1.0), replied(1, reward=2.0)
    groups = [Group(Task("q", "?", {}, "?"), [trace]) for trace in (ours, plain)]
    gae_of_parts("explanation", "code", START, kl=0.1).call(groups[:1], nothing())
    for one in (token_rewards(kl=0.1), gae()):
        one.call(groups[1:], nothing())
    for stream in ("adv", "returns"):
        assert torch.equal(ours.streams[stream][1:], plain.streams[stream][1:])


def test_the_demonstration_earns_the_most(small_model: Path) -> None:
    """Its program passes and equals the reference, its explanation too: 5 + 5. The wrong program earns less."""
    task = Debugging(source("code:1"))
    models = build_cast(self_debug(source("code:1")), small_model)
    chat = models["policy"].chat
    asked = next(one for one in (task.task("train", i) for i in range(50)) if "\n" in one.given["demo"])
    group = Group(asked, [])
    for text in (asked.given["demo"], asked.given["mistake"]):
        group.traces.append(Trace((Turn(chat.prompt(asked), "task"), Turn(chat.reply(text), "policy"))))
    debugged(task, Refinements()).call([group], Step(Clock(0, 1), models, SMALL))
    good, bad = group.traces
    assert good.scores["reward"] == pytest.approx(5.0) and good.scores["explanation"] == pytest.approx(5.0)
    assert good.scores["correct"] == 1 and bad.scores["correct"] == 0
    assert bad.scores["reward"] < 1
    start = good.note[START]
    assert chat.text(good.tokens[start:]).startswith("answer:")


def test_phases_follow_each_other(small_model: Path) -> None:
    method: Any = self_debug(source("code:1"), n=2, sft_steps=1, updates=1)
    models = build_cast(method, small_model)
    ran = [sorted(report.metrics) for report in loop(method, models, SMALL, steps=2, seed=0)]
    assert len(ran) == 2
