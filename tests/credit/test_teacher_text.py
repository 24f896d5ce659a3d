"""A teacher with another tokenizer: the same text, aligned where tokens of both end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, make_model

from burnish.config.options import configure
from burnish.core.loop import loop
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.credit import teacher_logp
from burnish.credit.teacher_text import aligned
from burnish.methods.table import METHODS, find, load_all
from burnish.models.same_tokens import BY_TEXT
from burnish.run.plan import plan
from burnish.tasks.resolve import resolve_task


def other_tokens(path: Path) -> Path:
    """A model whose tokenizer has words of several letters, in another order: "answer" is one token."""
    make_model(path, seed=1, vocab_size=320)
    file = path / "tokenizer.json"
    told = json.loads(file.read_text())
    vocabulary = told["model"]["vocab"]
    merges = [("a", "n"), ("s", "w"), ("e", "r"), ("an", "sw"), ("answ", "er")]
    for one, other in merges:
        vocabulary[one + other] = max(*vocabulary.values(), *(t["id"] for t in told["added_tokens"])) + 1
    told["model"]["merges"] = [list(pair) for pair in merges]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    file.write_text(json.dumps(told))
    return path


def test_spans_lie_between_places_where_tokens_of_both_end() -> None:
    # "answer: b" as answer|: |b|END and as an|sw|er:| b|END
    assert aligned([6, 8, 9, 9], "answer: b", [2, 4, 7, 9, 9], "answer: b") == [(0, 3, 0, 4), (3, 4, 4, 5)]
    assert aligned([6, 7, 9, 9], "answer: b", [2, 6, 7, 9, 9], "answer: b") == [
        (0, 1, 0, 2),
        (1, 2, 2, 3),
        (2, 3, 3, 4),
        (3, 4, 4, 5),
    ]
    # no end of the turn; a space that one of them does not write; a character over two tokens
    assert aligned([2, 4], "ab c", [4], "ab c") == [(0, 2, 0, 1)]
    assert aligned([1, 2, 3], " ab", [1, 2], "ab") == [(0, 2, 0, 1), (2, 3, 1, 2)]
    assert aligned([-1, 1, 2], "\u00e9b", [1, 2], "\u00e9b") == [(0, 2, 0, 1), (2, 3, 1, 2)]
    # a teacher that read the beginning alone, and other words
    assert aligned([1, 2, 3, 4], "abcd", [2], "ab") == [(0, 2, 0, 1)]
    assert aligned([1, 2], "ab", [1, 2, 3], "xyz") == [(0, 2, 0, 3)]


def test_the_difference_of_each_token_is_that_of_its_span(small_model: Path, tmp_path: Path) -> None:
    teacher = other_tokens(tmp_path / "teacher")
    method = find("opd").build(resolve_task("sort"), teacher=str(teacher))
    models = build_cast(method, small_model)
    chat, theirs = models["policy"].chat, models["teacher"].chat
    task = Task("question", "Sort up: b a", {}, "k")
    said = chat.reply("answer: a b")
    assert len(theirs.reply("answer: a b")) == len(said) - 5
    prompt = Turn(chat.prompt(task), "task")
    own = torch.linspace(-2.0, -1.0, len(said))
    trace = Trace((prompt, Turn(said, "policy", logp=own, parent=prompt)))
    trace.streams["old"] = torch.cat([torch.full((len(prompt),), float("nan")), own])
    (group,) = teacher_logp().call([Group(task, [trace])], Step(Clock(0, 1, 0), models, SMALL))
    gain = (group.traces[0].streams["teacher"] - trace.streams["old"])[len(prompt) :]

    begun = Turn(theirs.prompt(task), "task")
    again = Trace((begun, Turn(theirs.reply("answer: a b"), "policy", parent=begun)))
    ((found),) = models["teacher"].streams([again], [again.by("policy")], {"logp"}, 4096)
    logp = found["logp"][again.by("policy")]
    word = float(logp[0] - own[:6].sum())
    assert gain[:6].tolist() == pytest.approx([word] * 6, abs=1e-4)
    assert gain[6:].tolist() == pytest.approx((logp[1:] - own[6:]).tolist(), abs=1e-4)


@pytest.mark.parametrize("name", ["opd", "kdrl"])
def test_methods_that_read_the_text_learn_from_any_teacher(name: str, small_model: Path, tmp_path: Path) -> None:
    teacher = other_tokens(tmp_path / "teacher")
    method = find(name).build(resolve_task("sort"), teacher=str(teacher), n=2)
    (report,) = loop(method, build_cast(method, small_model), SMALL, steps=1)
    assert report.metrics["grad_norm"] > 0 and not report.refusals


def test_every_other_method_with_a_teacher_refuses_it_and_names_those(small_model: Path, tmp_path: Path) -> None:
    load_all()
    teacher = other_tokens(tmp_path / "teacher")
    for name, entry in METHODS.items():
        given = {"model": str(small_model), "task": "sort", "teacher": str(teacher), "steps": 2, "eval_tasks": 0}
        if "teacher" not in entry.build.__code__.co_varnames or name in BY_TEXT.split(" and "):
            continue
        with pytest.raises(ValueError, match="opd and kdrl read the text in the teacher's own tokens, and sft learns"):
            plan(entry, configure(entry, name, given), loads=False)
