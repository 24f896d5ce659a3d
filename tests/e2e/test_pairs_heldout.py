"""What a preference run says about held-out pairs: ties are chance, not errors, and margins are shown."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from runs import go, rows

from burnish.cli import main
from burnish.core.types import Clock
from burnish.evals.heldout import Outcome
from burnish.learn.term import Live
from burnish.learn.terms.compared import Replies, _first_is_best
from burnish.report import final_message

PAIRS = [{"prompt": f"{i} + 1 =", "chosen": f"It is {i + 1}.", "rejected": f"I like {i}."} for i in range(40)]


def test_a_tie_counts_one_half() -> None:
    """Two right, one wrong, one tie: (2 + 0.5) / 4."""
    none = torch.zeros(0)
    live = Live(outputs={}, streams={}, row=none.long(), rows=0, pairs=none, lists=[], group=none, clock=Clock(0, 1))
    live.note_order(torch.tensor([2.0, 1.0, 0.0, 1.0]), torch.tensor([1.0, 0.0, 1.0, 1.0]))
    noted = {name: x.tolist() for name, (x, _) in live.noted.items()}
    assert noted == {"accuracy": [1.0, 1.0, 0.0, 0.5], "ties": [0, 0, 0, 1]}


def test_a_list_that_ties_shares_the_first_place() -> None:
    """The first of three is the largest alone, one of two largest, one of three; or it is not the largest."""
    for ratios, wanted in (([2.0, 1, 0], 1.0), ([1.0, 1, 0], 0.5), ([1.0, 1, 1], 1 / 3), ([0.0, 1, 0], 0.0)):
        replies = Replies(torch.zeros(3), torch.tensor(ratios), torch.ones(3))
        assert float(_first_is_best(replies)) == pytest.approx(wanted)


def test_dpo_starts_from_chance_and_shows_ties_and_margins(small_model: Path, tmp_path: Path) -> None:
    task = rows(tmp_path / "pairs.jsonl", *PAIRS)
    result = go("dpo", small_model, tmp_path / "run", task=task, steps=3, eval_tasks=8, eval_every=2, prompts=8)
    before, after = result.before, result.after
    assert before is not None and after is not None
    assert before.value.mean == 0.5 and before.also == {"margin": 0.0, "ties": 1.0}
    assert after.value.mean > 0.5 and after.also["ties"] == 0.0 and after.also["margin"] > 0
    measured = [{k: v for k, v in row.items() if k.startswith("heldout/")} for row in result.metrics]
    assert list(measured[1]) == ["heldout/reply/accuracy", "heldout/reply/margin", "heldout/reply/ties"]
    sentence = final_message.verdict(result, 8)[0]
    assert sentence.startswith("held-out reply/accuracy: 50.0% (100% ties) -> ") and ", margin 0.000 -> " in sentence
    assert Outcome.from_json(before.to_json()) == before
    stored = before.to_json()
    del stored["also"]  # as an older version wrote it
    assert Outcome.from_json(stored).also == {}


def test_the_list_of_runs_shows_the_accuracy(
    small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the margin, which is measured with it, while the run has no final evaluation."""
    monkeypatch.setenv("COLUMNS", "200")
    task = rows(tmp_path / "pairs.jsonl", *PAIRS)
    result = go("dpo", small_model, tmp_path / "run", task=task, steps=3, eval_tasks=8, eval_every=2, prompts=8)
    (result.folder / "evaluation.json").unlink()
    assert main(["runs", str(tmp_path)]) == 0
    assert f"{result.metrics[1]['heldout/reply/accuracy']:.1%} so far" in capsys.readouterr().out
