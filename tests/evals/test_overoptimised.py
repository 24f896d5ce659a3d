"""The curve of RL on a reward: KL from the start, the reward, and the gold standard, at checkpoints of a run."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from conftest import SMALL, make_model
from test_reward_models import reward_model
from transformers import AutoModelForCausalLM

from burnish.cli import main
from burnish.commands.gold import sampled
from burnish.commands.loaded import load_policy
from burnish.evals.evaluate import Interval
from burnish.evals.overoptimised import Point, log_ratios, point, said, turning
from burnish.tasks.table import source


def at(step: int, kl: float, proxy: float, gold: float, width: float = 0.01) -> Point:
    return Point(step, *(Interval(x, x - width, x + width) for x in (kl, proxy, gold)))


def test_log_ratios_are_those_of_transformers_and_0_for_the_start_itself(tmp_path: Path) -> None:
    one, other = make_model(tmp_path / "one", seed=1), make_model(tmp_path / "other", seed=2)
    models = load_policy(str(one), SMALL, "cpu", reference=str(other))
    groups = sampled(models, source("add"), SMALL, 2, 2)
    found = log_ratios(models, groups)

    def logp(place: Path, ids: torch.Tensor, start: int) -> float:
        model = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32)
        with torch.no_grad():
            rows = torch.log_softmax(model(ids[None]).logits[0], -1)
        return float(rows[start - 1 : -1].gather(1, ids[start:, None]).sum())

    for group, row in zip(groups, found, strict=True):
        for trace, ratio in zip(group.traces, row, strict=True):
            ids, start = torch.cat([turn.tokens for turn in trace.turns]), len(trace.turns[0])
            assert ratio == pytest.approx(logp(one, ids, start) - logp(other, ids, start), abs=1e-3)
            assert abs(ratio) > 1e-2
    same = load_policy(str(one), SMALL, "cpu", reference=str(one))
    assert log_ratios(same, groups) == [[0.0, 0.0], [0.0, 0.0]]


def test_each_task_counts_once_and_what_gold_cannot_score_is_left_out() -> None:
    """Tasks with means 1 and 4: 2.5. Of gold's [0, NaN], [1, 1] the means are 0 and 1."""
    found = point(3, [[0.0, 2.0], [4.0]], [[1.0, 3.0], [6.0]], [[0.0, math.nan], [1.0, 1.0]])
    assert (found.step, found.kl.mean, found.proxy.mean, found.gold.mean) == (3, 2.5, 4.0, 0.5)


def test_the_sentence_says_where_the_gold_reward_turns() -> None:
    curve = [at(0, 0.0, 0.0, 0.4), at(10, 2.0, 1.0, 0.7), at(20, 5.0, 2.5, 0.5)]
    assert turning(curve) is curve[1]
    assert said(curve) == (
        "the gold reward is highest after step 10 (KL 2.00); from there to step 20 the reward changes by +1.500 and "
        "the gold reward by -0.200"
    )
    assert said(curve[:2]).endswith("the last: nothing is over-optimised yet")
    assert said([*curve[:2], at(20, 5.0, 2.5, 0.69)]).endswith("-0.010, within its interval")


def test_the_command_trains_measures_and_measures_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four steps at three points: the start has KL 0, and the second time nothing is trained."""
    proxy, start = reward_model(tmp_path / "rm", 1), make_model(tmp_path / "policy", seed=1)
    run, chart = tmp_path / "run", tmp_path / "curve.svg"
    words = ["overoptimise", str(proxy), "--task", "add", "--model", str(start), "--steps", "4", "--points", "3"]
    words += ["--method", "grpo(n=2, prompts=2, lr=1e-2, beta=0)", "--tasks", "3", "--n", "2", "--max-new-tokens", "4"]
    words += ["--device", "cpu", "--out", str(run)]
    assert main([*words, "--json", "--svg", str(chart)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["step"] for one in found["points"]] == [0, 2, 4]
    kl = [one["kl"]["mean"] for one in found["points"]]
    assert kl[0] == 0.0 and abs(kl[2]) > 1e-3
    assert found["best_step"] in (0, 2, 4) and chart.read_text().startswith("<svg")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.safetensors")}
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "KL from the start" in printed and "the gold reward is highest after step" in printed
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*.safetensors")} == before


def test_wrong_words_are_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "\n".join(json.dumps({"prompt": f"q{i}", "completion": "r"}) for i in range(20))
    (tmp_path / "prompts.jsonl").write_text(rows)
    for words, message in (
        ([], "say which reward is optimised"),
        (["rm", "--svg", "curve.png"], "must end in .svg"),
        (["rm", "--task", str(tmp_path / "prompts.jsonl")], "pass --gold REWARD"),
        ([str(tmp_path / "none"), "--task", "add", "--out", str(tmp_path / "run")], "none"),
    ):
        assert main(["overoptimise", *words]) == 2
        error = capsys.readouterr().err
        assert message in error and "Traceback" not in error and error.count("\n") <= 2, error


def test_the_page_says_what_the_raw_file_says() -> None:
    """Start, highest gold reward and end of both runs, and the points of the text."""
    root = Path(__file__).parents[2]
    page = " ".join((root / "docs" / "reward-models.md").read_text().split())
    for name, found in json.loads((root / "benchmarks" / "results" / "overoptimised.json").read_text()).items():
        curve = [Point(one["step"], *(Interval(**one[x]) for x in ("kl", "proxy", "gold"))) for one in found["points"]]
        best, last = turning(curve), curve[-1]
        assert best.step == found["best_step"] and len(curve) == 13
        row = f"| {found['reward_model_accuracy']['mean']:.1%} | {curve[0].gold.mean:.3f} | {best.gold.mean:.3f} "
        row += f"(step {best.step}, KL {best.kl.mean:.2f}) | {last.gold.mean:.3f} (KL {last.kl.mean:.2f}) |"
        assert row in page, (name, row)
        if name == "noisy":
            assert f"from {best.proxy.mean:.3f} to {last.proxy.mean:.3f}, within" in page
            fallen = f"falls by {best.gold.mean - last.gold.mean:.3f}"
            assert f"{fallen}, from [{best.gold.low:.3f}, {best.gold.high:.3f}]" in page
            assert f"to [{last.gold.low:.3f}, {last.gold.high:.3f}]: at" in page
