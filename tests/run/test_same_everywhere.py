"""Ranks that have something else than rank 0 are named before the run starts, with what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import make_model

from burnish.models.ranks import Ranks
from burnish.run.same_everywhere import Facts, facts, require_same_everywhere


class Gathered(Ranks):
    """Ranks that have these facts."""

    others: list[Facts]

    @property
    def connected(self) -> bool:
        return True

    def gather_values(self, head: Any, tensors: Any = ()) -> Any:
        return [(one, []) for one in (head, *self.others)]


def told(base: Path, **changed: Any) -> Facts:
    known: dict[str, Any] = {
        "base": base,
        "config": {"method": "sft", "lr": 1e-5, "out": "run", "token_budget": 8192},
        "rows": {"train.jsonl": "12 rows abc"},
        "rewards": {"mine.py:f": "77"},
        "computing": {"sha256": "k1"},
    }
    return facts(**{**known, **changed})


def ranks(*others: Facts) -> Ranks:
    made = Gathered(0, 1 + len(others))
    object.__setattr__(made, "others", list(others))
    return made


def test_ranks_with_the_same_may_write_elsewhere_and_have_other_memory(small_model: Path) -> None:
    other = told(small_model, config={"method": "sft", "lr": 1e-5, "out": "elsewhere", "token_budget": 4096})
    require_same_everywhere(ranks(told(small_model), other), told(small_model))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"rows": {"train.jsonl": "11 rows xyz"}},
            r"another data train.jsonl than rank 0 \(11 rows xyz, not 12 rows abc\)",
        ),
        ({"rows": {}}, r"another data train.jsonl than rank 0 \(none, not 12 rows abc\).*; copy the file"),
        ({"rewards": {"mine.py:f": "78"}}, "another reward mine.py:f than rank 0 .*; copy the reward's file"),
        ({"computing": {"sha256": "k2"}}, r"another kernel library than rank 0 \(k2, not k1\)"),
        (
            {"config": {"method": "sft", "lr": 2e-5}},
            "another config than rank 0 .*; start all ranks with the same file",
        ),
    ],
)
def test_a_rank_with_something_else_is_named(changed: dict[str, Any], said: str, small_model: Path) -> None:
    same = told(small_model)
    with pytest.raises(ValueError, match=f"^rank 2 has {said}"):
        require_same_everywhere(ranks(same, told(small_model, **changed)), same)


def test_a_model_that_is_not_whole_on_one_machine_is_named(tmp_path: Path) -> None:
    base = make_model(tmp_path / "m")
    same = told(base)
    file = base / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(ValueError, match="^rank 1 has another model m than rank 0 .*; copy the model's directory"):
        require_same_everywhere(ranks(told(base)), same)
