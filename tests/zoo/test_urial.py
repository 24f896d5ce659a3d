"""Alignment in the context: the text before a question, where an answer ends; and the report of token shifts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast
from torch import tensor

from burnish.cli import main
from burnish.core.roles import frozen, roles
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Task
from burnish.evals.token_shift import Shifts, kind_of, ranks_of, token_shifts
from burnish.models.build import build
from burnish.tasks.table import source
from burnish.zoo.urial import answer_length, in_context_prompt, urial


def test_the_text_before_a_question() -> None:
    task = Task("question", "2 + 2?", {}, "sum")
    wanted = (
        "# Instruction\n\nBe brief.\n\n# Query:\n```\nHi\n```\n\n# Answer:\n```\nHello\n```\n\n"
        "# Query:\n```\n2 + 2?\n```\n\n# Answer:\n```\n"
    )
    assert in_context_prompt(task, [("Hi", "Hello")], "Be brief.") == wanted
    assert in_context_prompt(task, [], "") == "# Query:\n```\n2 + 2?\n```\n\n# Answer:\n```\n"


def test_a_conversation_becomes_blocks() -> None:
    said = ({"role": "system", "content": "S"}, {"role": "user", "content": "a"})
    more = ({"role": "assistant", "content": "b"}, {"role": "user", "content": "c"})
    found = in_context_prompt(Task("question", (*said, *more), {}, "talk"), [], "I")
    assert found.startswith("# Instruction\n\nI\n\nS\n\n# Query:\n```\na\n```\n\n# Answer:\n```\nb\n```\n\n# Query:")


def test_where_an_answer_ends(small_model: Path) -> None:
    chat = build(roles(), small_model, SMALL, device="cpu")["policy"].chat

    def answer(text: str) -> str:
        tokens = chat.written(text)
        return chat.text(tokens[: answer_length(tokens, chat)])

    assert answer("four\n```\n\n# Query:\n```\nmore") == "four"
    assert answer("four\n# Query") == "four"
    assert answer("four\n```\n") == "four"
    assert answer("see\n```\ncode\n```\nso four") == "see\n```\ncode\n```\nso four", "code inside of an answer stays"
    assert answer("# Query:") == "#", "at least one token"


def test_replies_are_judged_by_the_question_alone(small_model: Path) -> None:
    built = urial(source("sort"), examples=0, instruction="", n=2)
    models = build_cast(built, small_model)
    phase, step = built.phases[0], Step(Clock(0, 1), models, SMALL)
    tasks = phase.draw.call(step)
    groups = phase.rollout.call(tasks, step)
    assert [group.task for group in groups] == tasks
    for trace in (trace for group in groups for trace in group.traces):
        assert "# Answer:" in models["policy"].chat.text(trace.turns[0].tokens)
        assert trace.note["stopped"] in ("stop", "length")
        assert "# Query" not in models["policy"].chat.text(trace.turns[-1].tokens)


def test_examples_of_a_file(small_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "examples.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"q{i}", "completion": f"a{i}"}) + "\n" for i in range(4)))
    built = urial(source("sort"), examples=2, examples_file=str(file), instruction="")
    models = build_cast(built, small_model)
    step = Step(Clock(0, 1), models, SMALL)
    (group, *_) = built.phases[0].rollout.call(built.phases[0].draw.call(step), step)
    text = models["policy"].chat.text(group.traces[0].turns[0].tokens)
    assert all(word in text for word in ("q0", "a0", "q1", "a1")) and "q2" not in text
    long = urial(source("sort"), examples=3)
    with pytest.raises(ValueError, match="with 3 examples the prompt of task .* take fewer examples"):
        long.phases[0].rollout.call(long.phases[0].draw.call(step), step)
    file.write_text('{"prompt": "q"}\n')
    with pytest.raises(ValueError, match="row 1 of .*examples.jsonl has no text in column 'completion'"):
        urial(source("sort"), examples_file=str(file))


def test_ranks_and_kinds_by_hand() -> None:
    logits = tensor([[0.1, 0.5, 0.2, 0.0]] * 4)
    assert ranks_of(logits, tensor([1, 2, 0, 3])).tolist() == [1, 2, 3, 4]
    assert [kind_of(rank) for rank in (1, 2, 3, 4, 99)] == ["unshifted", "marginal", "marginal", "shifted", "shifted"]
    found = Shifts(((1, 1, 2, 9, 1), (4,)), ())
    assert found.shares() == pytest.approx({"unshifted": 3 / 6, "marginal": 1 / 6, "shifted": 2 / 6})
    assert list(found.by_position()) == ["1-4", "5-16"] and found.by_position()["5-16"]["unshifted"] == 1


def test_a_model_is_not_shifted_from_itself(small_model: Path, other_model: Path) -> None:
    for base, own in ((small_model, True), (other_model, False)):
        models = build(roles(ref=frozen(str(base))), small_model, SMALL, device="cpu")
        found = token_shifts(models, source("sort"), Settings(max_new_tokens=12), 5)
        assert (found.shares()["unshifted"] == 1) is own
        assert sum(count for _, count in found.shifted) == sum(rank > 3 for ranks in found.ranks for rank in ranks)
    assert isinstance(found.ranks[0][0], int) and torch.tensor(found.ranks[0]).min() >= 1


def test_the_command(small_model: Path, other_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eval", str(small_model), "--task", "sort", "--measure", "shift", "--tasks", "4", "--device", "cpu"]
    assert main([*words, "--reference", str(other_model), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["unshifted"] + found["marginal"] + found["shifted"] == pytest.approx(1) and found["tasks"] == 4
    assert main([*words, "--reference", str(other_model)]) == 0
    assert "unshifted tokens" in capsys.readouterr().out
    assert main(words) == 2
    assert "add --reference BASE" in capsys.readouterr().err
