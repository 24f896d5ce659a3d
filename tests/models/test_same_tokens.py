"""Teachers whose tokens are not the student's are refused before weights are loaded; padded embeddings are cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, make_model

from burnish.config.options import configure
from burnish.core.loop import loop
from burnish.engine.mixture import arithmetic
from burnish.learn.maths.distillation import generalised_jsd
from burnish.methods.table import find
from burnish.models.same_tokens import difference
from burnish.run.plan import plan
from burnish.tasks.resolve import resolve_task

SORT = resolve_task("sort")


def changed(path: Path, change: object) -> Path:
    """A model whose tokenizer.json has been changed."""
    make_model(path, seed=1)
    file = path / "tokenizer.json"
    told = json.loads(file.read_text())
    change(told)  # type: ignore[operator]
    file.write_text(json.dumps(told))
    return path


def swapped(told: dict) -> None:
    vocabulary = told["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]


def renamed(told: dict) -> None:
    vocabulary = told["model"]["vocab"]
    vocabulary["other"] = vocabulary.pop("a")


def special_swapped(told: dict) -> None:
    one, other = told["added_tokens"][1], told["added_tokens"][2]
    one["content"], other["content"] = other["content"], one["content"]


def one_special_more(told: dict) -> None:
    told["added_tokens"].append({**told["added_tokens"][0], "id": 260, "content": "<|think|>"})


def one_token_more(told: dict) -> None:
    told["model"]["vocab"]["more"] = 260


@pytest.mark.parametrize(
    ("method", "change"),
    [("gkd", swapped), ("gkd", renamed), ("minillm", special_swapped), ("minillm", one_token_more)],
)
def test_another_tokenizer_of_the_same_size_is_refused_before_loading(
    method: str, change: object, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = changed(tmp_path / "teacher", change)
    (teacher / "model.safetensors").write_bytes(b"no weights")
    entry = find(method)
    given = {"model": str(small_model), "task": "sort", "teacher": str(teacher), "steps": 2, "eval_tasks": 0}
    with pytest.raises(ValueError, match=r"\(teacher\) has another tokenizer than the model that it is to read"):
        plan(entry, configure(entry, method, given), loads=False)


def test_what_means_the_same_is_no_difference(small_model: Path, other_model: Path, tmp_path: Path) -> None:
    assert difference(small_model, other_model) == ""
    assert difference(small_model, changed(tmp_path / "more", one_special_more)) == ""
    assert "'a' is" in difference(small_model, changed(tmp_path / "swapped", swapped))
    assert "'<|end|>' is 1 in one and 2" in difference(small_model, changed(tmp_path / "specials", special_swapped))


def test_a_judge_may_have_any_tokenizer(small_model: Path, tmp_path: Path) -> None:
    judge, entry = changed(tmp_path / "judge", swapped), find("pairwise_grpo")
    given = {"model": str(small_model), "task": "sort", "judge": str(judge), "steps": 2, "eval_tasks": 0}
    plan(entry, configure(entry, "pairwise_grpo", given))


@pytest.mark.parametrize(("student", "teacher"), [(260, 324), (324, 260)])
def test_padded_embeddings_are_cut_to_the_tokens_of_both(student: int, teacher: int, tmp_path: Path) -> None:
    """Qwen2.5 has 151,936 rows in one size and 152,064 in another, for the same tokens."""
    # a random student with more rows samples ids without a token, which no teacher can read: it learns from given texts
    base = make_model(tmp_path / "base", vocab_size=student)
    other = make_model(tmp_path / "teacher", seed=1, vocab_size=teacher)
    for name, more in (("gkd", {"lam": float(student < teacher)}), ("minillm", {"n": 2, "updates": 1})):
        method = find(name).build(SORT, teacher=str(other), **more)
        (report,) = loop(method, build_cast(method, base), SMALL, steps=1)
        assert report.metrics["grad_norm"] > 0 and not report.refusals


def test_columns_that_only_one_has_count_nothing() -> None:
    """By hand, with beta 1: KL(Q || P) of softmax (1/2, 1/2) and (1/4, 3/4) is log 2 - log(3) / 2."""
    student = torch.tensor([[0.0, 0.0]])
    teacher = torch.tensor([[0.0, 3.0, 50.0]]).log()
    teacher[0, 0] = 0.0
    expected = 0.5 * torch.log(torch.tensor(0.5 / 0.25)) + 0.5 * torch.log(torch.tensor(0.5 / 0.75))
    assert torch.allclose(generalised_jsd(student, teacher, 1.0), expected)
    assert torch.allclose(generalised_jsd(teacher, student, 0.0), expected)
    mixed = arithmetic("teacher", 0.5).mix([student, teacher])
    assert torch.allclose(mixed.exp(), torch.tensor([[0.375, 0.625]]))
