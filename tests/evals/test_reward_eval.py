"""Measures of a reward: accuracy and slices, calibration, consistency, best-of-n against a gold standard."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from conftest import make_model
from judge_server import serving
from test_judge_scorers import at, judging
from test_reward_models import reward_model

from burnish.cli import main
from burnish.core.types import Task
from burnish.evals.evaluate import best_of_k
from burnish.evals.reward_eval import (
    Pair,
    accuracy,
    best_of_curve,
    expected_gold,
    length_baseline,
    nearest,
    reliability,
    slices,
)
from burnish.score.maths.calibration import calibration_error


def pair(chosen: float, rejected: float, lengths: tuple[int, int] = (1, 1), prompt: int = 1, **given: object) -> Pair:
    return Pair(chosen, rejected, lengths, prompt, dict(given))


PAIRS = [
    pair(1.0, 0.0, (5, 3), 1, kind="a"),
    pair(0.0, 1.0, (2, 3), 2, kind="a"),
    pair(1.0, 1.0, (4, 4), 9, kind="b"),
    pair(2.0, 1.0, (1, 3), 9, kind="b"),
]


def test_a_tie_is_half_right_and_slices_are_apart() -> None:
    assert accuracy(PAIRS).mean == pytest.approx(2.5 / 4)
    assert length_baseline(PAIRS).mean == pytest.approx(1.5 / 4)
    found = {name: accuracy(some).mean for name, some in slices(PAIRS, ["kind", "absent"]).items()}
    assert found["kind: a"] == 0.5 and found["kind: b"] == 0.75
    assert found["length: chosen is longer"] == 1.0 and found["length: rejected is longer"] == 0.5
    assert found["length: both as long"] == 0.5 and found["prompt: short"] == 0.5 and found["prompt: long"] == 0.75


def test_confidence_is_compared_with_what_is_right() -> None:
    """Margins log 3 (confidence 3/4), twice right and once wrong, and 0 (1/2, half right): ECE = 3/4 x 1/12."""
    curve = reliability([math.log(3), math.log(3), -math.log(3), 0.0])
    assert [(one.count, round(one.confidence, 6)) for one in curve] == [(1, 0.5), (3, 0.75)]
    assert calibration_error(curve) == pytest.approx(0.75 * (0.75 - 2 / 3))
    assert calibration_error(reliability([1e6, 1e6])) == pytest.approx(0.0)


def test_the_best_by_the_proxy_is_worth_what_gold_says() -> None:
    """Proxy 1, 2, 3 with gold 0, 1, 0: best of 1 is worth 1/3, of 2: (1, 2) -> 1, (1, 3), (2, 3) -> 0: 1/3, of 3: 0."""
    proxy, gold = [1.0, 2.0, 3.0], [0.0, 1.0, 0.0]
    assert [expected_gold(proxy, gold, k) for k in (1, 2, 3)] == pytest.approx([1 / 3, 1 / 3, 0.0])
    assert [expected_gold(proxy, proxy, k) for k in (1, 2, 3)] == pytest.approx(
        [best_of_k(proxy, k) for k in (1, 2, 3)]
    )
    assert expected_gold([1.0, 1.0], [0.0, 1.0], 2) == 0.5, "replies that tie share their gold"
    with pytest.raises(ValueError, match="best of 4 needs at least 4"):
        expected_gold(proxy, gold, 4)
    curve = best_of_curve([proxy, proxy], [gold, gold])
    assert [(one.n, round(one.kl, 6)) for one in curve] == [
        (1, 0.0),
        (2, round(math.log(2) - 0.5, 6)),
        (3, round(math.log(3) - 2 / 3, 6)),
    ]
    assert curve[2].gold.mean == 0.0 and curve[2].proxy.mean == 3.0


def test_the_most_similar_instruction_with_another_reply() -> None:
    tasks = [Task("q", text, {}, text) for text in ("sort a b c", "sort a b d", "say hello", "sort a b c now")]
    found = nearest(tasks, ["1", "2", "3", "1"])
    assert [(i, j) for i, j, _ in found] == [(0, 1), (1, 0), (2, 0), (3, 1)]
    assert found[0][2] == pytest.approx(3 / 5)


def test_the_command_measures_a_reward_model_and_a_reward_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"prompt": f"{i} and {i}?", "chosen": f"it is {2 * i}", "rejected": "no", "kind": i % 2} for i in range(40)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    one, other = (reward_model(tmp_path / f"rm{i}", 1, seed=i) for i in (3, 4))
    words = ["eval-reward", str(one), "--task", str(tmp_path / "pairs.jsonl"), "--tasks", "8", "--device", "cpu"]
    sampled = ["--policy", str(one.parent / "policy"), "--n", "4", "--prompts", "2", "--max-new-tokens", "4"]
    make_model(tmp_path / "policy", seed=1)
    gold = ["--gold", f"ensemble({one}, {other}, how=worst)", "--svg", str(tmp_path / "curve")]
    assert main([*words, "--slice", "kind", "--json", *sampled, *gold]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 <= found["accuracy"]["mean"] <= 1 and any(name.startswith("kind: ") for name in found["slices"])
    assert 0 <= found["ece"] <= 1 and found["consistency"]["pairs"] > 0
    assert [one["n"] for one in found["best_of_n"]] == [1, 2, 4]
    proxies = [one["proxy"]["mean"] for one in found["best_of_n"]]
    assert proxies == sorted(proxies) and all(Path(name).is_file() for name in found["files"])
    assert main([*words[:1], f"ensemble({one}, {other})", *words[2:]]) == 0
    assert "contrast instructions" in capsys.readouterr().out
    assert main(["eval-reward"]) == 2 and "say which reward" in capsys.readouterr().err
    assert main([*words, *sampled]) == 2, "pairs alone have no verifier"
    assert "pass --gold REWARD (a reward model or a reward by name)" in capsys.readouterr().err


def test_a_judge_behind_an_endpoint_is_measured_on_rows_of_reward_bench(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It likes replies with "sure": right in one subset, wrong in the other; replies are read whole, however long."""
    long = "word " * 700
    rows = [
        {"prompt": f"q{i}", "chosen": f"{long} sure {i}" if i % 2 else f"{long} no {i}", "rejected": f"sure {i}" if not
         i % 2 else f"maybe {i}", "subset": "chat" if i % 2 else "safety"}
        for i in range(8)
    ]  # fmt: skip
    file = tmp_path / "bench.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with serving(judging(lambda blocks: f"Score: {9 if 'sure' in blocks['reply'] else 2}")) as server:
        words = [f"rubric({at(server)})", "--task", f"{file},heldout=0.9", "--slice", "subset", "--json"]
        assert main(["eval-reward", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["slices"]["subset: chat"]["mean"] == 1.0 and found["slices"]["subset: safety"]["mean"] == 0.0
