"""The classifier of refusals: its loss by hand, its labels, and what it says of data."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import burnish
from burnish.cli import main
from burnish.datagen.refusals import composition
from burnish.methods.table import find
from burnish.tasks.resolve import resolve_task
from burnish.verifiers.refusal_categories import CANNOT, SHOULD_NOT, Categories, categories_of
from burnish.zoo.refusal_composition import label_entropy

SMALL = Categories(("a", "b"), ("c",))


def test_the_loss_is_the_mean_cross_entropy_of_the_labels() -> None:
    """z = (ln 3, 0), y = (1, 0): -ln(3/4) and ln 2, so (ln(4/3) + ln 2) / 2 = ln(8/3) / 2."""
    found = label_entropy(torch.tensor([[math.log(3), 0.0]]), torch.tensor([[1.0, 0.0]]))
    assert float(found) == pytest.approx(math.log(8 / 3) / 2)


def test_with_one_category_it_is_logistic_regression() -> None:
    logits, labels = torch.randn(5, 1), torch.tensor([[1.0], [0], [1], [1], [0]])
    plain = F.binary_cross_entropy_with_logits(logits[:, 0], labels[:, 0], reduction="none")
    assert torch.allclose(label_entropy(logits, labels), plain)


def test_sixteen_categories_in_two_branches() -> None:
    assert len(CANNOT) + len(SHOULD_NOT) == 16 and not set(CANNOT) & set(SHOULD_NOT)
    assert SMALL.labels(["c", "a"], "row") == SMALL.labels("a, c", "row") == [1.0, 0.0, 1.0]
    assert SMALL.labels([], "row") == [0.0, 0.0, 0.0] and SMALL.places("should_not") == slice(2, None)
    with pytest.raises(ValueError, match="row 3 has the category 'd', which is not among a, b, c"):
        SMALL.labels(["d"], "row 3")
    with pytest.raises(ValueError, match="must be a list of names"):
        SMALL.labels(7, "row")
    with pytest.raises(ValueError, match="a category belongs to one branch"):
        categories_of("a,b", "b")


def test_precision_of_a_branch() -> None:
    """cannot: said of replies 1, 2, 3, true of 1, 3, 4: precision and recall 2/3. A reply counts once for a branch."""
    said = torch.tensor([[0.9, 0.8, 0.1], [0.7, 0.0, 0.0], [0.0, 0.6, 0.9], [0.1, 0.2, 0.3]])
    true = torch.tensor([[1.0, 0, 0], [0, 0, 0], [1, 0, 1], [0, 1, 0]])
    cannot, should_not, *rest = composition(said, true, SMALL)
    assert (cannot.said, cannot.true, cannot.both) == (3, 3, 2)
    assert cannot.precision == cannot.recall == pytest.approx(2 / 3)
    assert should_not.precision == should_not.recall == 1.0 and [one.name for one in rest] == ["a", "b", "c"]
    assert composition(said, None, SMALL)[0].precision is None


REASONS = {
    "input_modality": "I cannot see pictures",
    "knowledge_cutoff": "I do not know what came after my training",
    "privacy": "I will not share private details",
    "legal": "I will not help to break the law",
}


def refusals(path: Path, rows: int = 400) -> Path:
    """Replies that refuse for one or two reasons, or answer."""
    dice = random.Random(0)
    with path.open("w") as file:
        for i in range(rows):
            reasons = dice.sample(sorted(REASONS), dice.choice((0, 1, 1, 2)))
            said = ". ".join(REASONS[name] for name in reasons) or f"It is {i}"
            row = {"prompt": f"Request {i}: {dice.choice('abcd')}", "completion": f"{said}.", "refusal": reasons}
            file.write(json.dumps(row) + "\n")
    return path


@pytest.mark.slow
def test_tiny_learns_to_tell_refusals_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = refusals(tmp_path / "refusals.jsonl")
    run = burnish.train(
        "refusal_classifier", task=str(data), steps=80, prompts=16, out=str(tmp_path / "run"), device="cpu", lr=3e-4
    )
    kept = tmp_path / "kept.jsonl"
    words = ["refusals", str(run.model), "--task", str(data), "--split", "heldout", "--device", "cpu", "--json"]
    capsys.readouterr()
    assert main([*words, "--drop", "should_not", "--out", str(kept)]) == 0
    found = json.loads(capsys.readouterr().out)
    by_name = {one["name"]: one for one in found["counts"]}
    assert all(
        by_name[branch]["precision"] > 0.8 and by_name[branch]["recall"] > 0.8 for branch in ("cannot", "should_not")
    )
    left = [json.loads(line) for line in kept.read_text().splitlines()]
    wrong = [row for row in left if {"privacy", "legal"} & set(row["refusal"])]
    assert len(left) == found["kept"] and len(wrong) <= 0.2 * len(left)
    scored = burnish.train(
        "grpo",
        task="reverse",
        reward=f"refusal({run.model}, branch=cannot)",
        steps=1,
        prompts=2,
        n=2,
        eval_tasks=0,
        out=str(tmp_path / "rl"),
        device="cpu",
    )
    assert "reward/refusal" in scored.metrics[0]


def test_what_the_command_refuses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["refusals"]) == 2 and "say which classifier reads what" in capsys.readouterr().err
    assert main(["refusals", "tiny", "--task", "x.jsonl", "--out", "kept.csv"]) == 2
    assert "must be a new file that ends in .jsonl" in capsys.readouterr().err
    assert main(["refusals", "tiny", "--task", "sort"]) == 2 and "no dataset with replies" in capsys.readouterr().err
    with pytest.raises(ValueError, match="gives no 'refusal', which this method needs"):
        find("refusal_classifier").build(resolve_task("sort"))
