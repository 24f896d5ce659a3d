"""What a preference run says about held-out pairs: ties are chance, not errors, and margins are shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from runs import go, rows

from burnish.cli import main
from burnish.core.step import Notes
from burnish.core.types import Clock
from burnish.evals.evaluate import Interval, interval, ratio
from burnish.evals.heldout import Outcome
from burnish.learn.batch import Micro, Row
from burnish.learn.term import Live
from burnish.learn.terms.compared import Replies, _first_is_best, pair_term
from burnish.learn.units import note_tasks
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


def test_the_notes_of_tasks_add_up_to_those_of_all() -> None:
    """Three pairs of two groups, one right, one tied, one wrong: group 4 has 1.5 of 2 right, group 7 none of 1."""
    rows_of = [Row(None, group, 1, {}, {}) for group in (7, 7, 4, 4, 4)]  # type: ignore[arg-type]
    pairs = torch.tensor([[2, 3], [2, 4], [0, 1]])
    none = torch.zeros(0)
    live = Live(outputs={}, streams={}, row=none.long(), rows=5, pairs=pairs, lists=[], group=none, clock=Clock(0, 1))
    live.note_order(torch.tensor([2.0, 1.0, 0.0]), torch.tensor([1.0, 1.0, 1.0]))
    notes, term = Notes(), pair_term(lambda chosen, rejected, beta: none)
    note_tasks(notes, term, live, torch.ones(3, dtype=torch.float64), Micro(tuple(rows_of)))
    told = {name: value for name, value in notes.sums().items() if "/accuracy" in name}
    assert told == {"reply/accuracy@4": (1.5, 2.0), "reply/accuracy@7": (0.0, 1.0)}


def test_a_ratio_is_drawn_by_tasks() -> None:
    """Tasks of 1 and 3 tokens with sums 2 and 3: the mean is 5 / 4; drawn twice the same, 2 and 1."""
    found = ratio([(2.0, 1.0), (3.0, 3.0)])
    assert (found.mean, found.low, found.high) == (1.25, 1.0, 2.0)
    assert ratio([(1.0, 2.0)] * 5) == Interval(0.5, 0.5, 0.5)
    assert interval([0.0, 1.0, 1.0]) == ratio([(0.0, 1.0), (1.0, 1.0), (1.0, 1.0)])


@pytest.mark.parametrize(("method", "flags"), [("sft", []), ("dpo", ["--reference"])])
def test_intervals_are_those_of_burnish_eval(
    method: str, flags: list[str], small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run measures rows by its terms, `burnish eval` by log-probs: value and interval agree."""
    data = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in PAIRS] if method == "sft" else PAIRS
    task = rows(tmp_path / "rows.jsonl", *data)
    result = go(method, small_model, tmp_path / "run", task=task, steps=2, eval_tasks=9, prompts=8, lr=1e-5)
    assert result.after is not None and result.after.value.low < result.after.value.high or method == "dpo"
    flags = [*flags, str(small_model)] if flags else ["--measure", "likelihood"]
    assert main(["eval", str(result.model_path), "--task", task, "--tasks", "9", "--json", *flags]) == 0
    told = json.loads(capsys.readouterr().out)
    found = told["accuracy" if method == "dpo" else "nll"]
    value = result.after.value  # the run draws the nine held-out rows in another order, which moves the resamples
    assert value.mean == pytest.approx(found["mean"], rel=1e-4)
    assert [value.low, value.high] == pytest.approx([found["low"], found["high"]], rel=5e-3)
