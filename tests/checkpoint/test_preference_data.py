"""Preference methods on data as it comes: labelled replies, ranked lists, pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from guards import guards

import burnish
from burnish.checkpoint.diff import log_rows
from burnish.store.reader import open_store

pytestmark = guards("draw", "select", "score", "learn/terms", "tasks/data", "store/health.py")


def written(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def train(name: str, data: str, model: Path, out: Path, **options: Any) -> list[dict[str, Any]]:
    small = {"steps": 2, "prompts": 3, "lr": 1e-3, "eval_tasks": 0, "device": "cpu", **options}
    burnish.train(name, task=data, model=str(model), out=str(out), **small)
    return log_rows(out, "metrics")


@pytest.mark.parametrize("name", ["kto", "bco", "aot_unpaired"])
def test_rows_with_a_reply_and_a_label(name: str, small_model: Path, tmp_path: Path) -> None:
    """Every second reply is good: both sides are noted apart, and nothing asks for pairs."""
    rows = [{"prompt": f"say {i}", "completion": f"yes {i}", "label": i % 2 == 0} for i in range(12)]
    metrics = train(name, written(tmp_path / "labels.jsonl", rows), small_model, tmp_path / "run", prompts=6)
    assert all("reply/loss" in row and row["grad_norm"] > 0 for row in metrics)
    assert any("reply/chosen_logp" in row and "reply/rejected_logp" in row for row in metrics)


@pytest.mark.parametrize("name", ["kto", "bco", "aot_unpaired", "dpo", "simpo"])
def test_pairs(name: str, small_model: Path, tmp_path: Path) -> None:
    rows = [{"prompt": f"say {i}", "chosen": f"yes {i}", "rejected": f"no {i}"} for i in range(12)]
    metrics = train(name, written(tmp_path / "pairs.jsonl", rows), small_model, tmp_path / "run")
    assert all(row["grad_norm"] > 0 for row in metrics)


@pytest.mark.parametrize("name", ["lipo", "pro", "nca_rewards", "exo_rewards"])
@pytest.mark.parametrize("worth", ["scores", "ranks"])
def test_ranked_lists(name: str, worth: str, small_model: Path, tmp_path: Path) -> None:
    """The data's own replies are compared: nothing is sampled."""
    numbers = {"scores": [0.1, 0.9, 0.5], "ranks": [3, 1, 2]}[worth]
    rows = [{"prompt": f"say {i}", "responses": ["no", f"yes {i}", "perhaps"], worth: numbers} for i in range(12)]
    metrics = train(name, written(tmp_path / "lists.jsonl", rows), small_model, tmp_path / "run")
    assert all(row["grad_norm"] > 0 and "sampled_tokens" not in row for row in metrics)
    assert all(0 <= row["list/accuracy"] <= 1 for row in metrics)


def _conversation(*texts: str) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in zip(("user", "assistant"), texts, strict=False)]


CONVENTIONS: dict[str, Any] = {
    "hh-rlhf": lambda p, w, r: {
        "chosen": f"\n\nHuman: {p}\n\nAssistant: {w}",
        "rejected": f"\n\nHuman: {p}\n\nAssistant: {r}",
    },
    "explicit prompt, texts": lambda p, w, r: {"prompt": p, "chosen": w, "rejected": r},
    "explicit prompt, messages": lambda p, w, r: {
        "prompt": _conversation(p),
        "chosen": _conversation(p, w)[1:],
        "rejected": _conversation(p, r)[1:],
    },
    "implicit prompt, messages": lambda p, w, r: {"chosen": _conversation(p, w), "rejected": _conversation(p, r)},
    "UltraFeedback": lambda p, w, r: {
        "instruction": p,
        "completions": [{"response": r, "overall_score": 2.0}, {"response": w, "overall_score": 9.0}],
    },
    "UltraFeedback, binarised": lambda p, w, r: {
        "prompt": p,
        "chosen": _conversation(p, w),
        "rejected": _conversation(p, r),
        "score_chosen": 9.0,
        "score_rejected": 2.0,
    },
    "ranked lists": lambda p, w, r: {"prompt": p, "responses": [r, w], "ranks": [2, 1]},
}


def test_every_convention_is_the_same_data(small_model: Path, tmp_path: Path) -> None:
    """Equal pairs, named in each of the usual ways, give equal runs, number by number."""
    pairs = [(f"say {i}", f"yes {i}", f"no {i} of them") for i in range(12)]
    found = {}
    for number, (name, row) in enumerate(CONVENTIONS.items()):
        file = written(tmp_path / f"{number}.jsonl", [row(*pair) for pair in pairs])
        metrics = train("dpo", file, small_model, tmp_path / f"run{number}")
        found[name] = [{key: row[key] for key in ("reply/loss", "reply/chosen_logp", "grad_norm")} for row in metrics]
    assert all(row["grad_norm"] > 0 for row in found["hh-rlhf"])
    assert {name: metrics == found["hh-rlhf"] for name, metrics in found.items()} == dict.fromkeys(CONVENTIONS, True)


def test_pairs_and_their_labels_are_the_same_to_kto_but_for_the_batch(small_model: Path, tmp_path: Path) -> None:
    """A pair is a good and a bad reply to one prompt: rows with labels say the same."""
    pairs = [{"prompt": f"say {i}", "chosen": f"yes {i}", "rejected": f"no {i}"} for i in range(12)]
    labels = [
        {"prompt": row["prompt"], "completion": row[side], "label": side == "chosen"}
        for row in pairs
        for side in ("chosen", "rejected")
    ]
    one = train("kto", written(tmp_path / "p.jsonl", pairs), small_model, tmp_path / "p", prompts=11, steps=1)
    two = train("kto", written(tmp_path / "l.jsonl", labels), small_model, tmp_path / "l", prompts=22, steps=1)
    assert one[0]["reply/chosen_logp"] == pytest.approx(two[0]["reply/chosen_logp"], rel=1e-4)
    assert one[0]["reply/loss"] == pytest.approx(two[0]["reply/loss"], rel=1e-4)
    assert one[0]["grad_norm"] == pytest.approx(two[0]["grad_norm"], rel=1e-3)


def test_a_run_says_when_it_unlearns_both_sides_of_its_pairs(tmp_path: Path) -> None:
    """A learning rate that is far too high makes preferred replies of `tiny` unlikely: the run warns in words."""
    metrics = train("dpo", "sort", Path("tiny"), tmp_path / "run", steps=20, lr=5e-4, prompts=4)
    start, end = (metrics[i]["reply/chosen_logp"] for i in (0, -1))
    assert end < 2 * start - 1
    with open_store(tmp_path / "run") as store:
        said = " ".join(event["text"] for event in store.events() if event["level"] == "warning")
    assert "the log-prob of preferred replies has collapsed" in said and "unlearns both sides" in said
