"""The benchmark harness: turns are interleaved, failures recorded, runs kept; the work and the floors are what they
say.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from guards import guards

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))  # scripts there import each other by name

import harness  # noqa: E402
import plots  # noqa: E402
import records  # noqa: E402
import tables  # noqa: E402
import workload  # noqa: E402
from harness import Goal, Part, Side, compete, disagreements  # noqa: E402

pytestmark = guards("util/processes.py")

SIDES = """
    import time

    def steady(work, turns):
        while turns.begin():
            print("libraries may print what they like")
            open(work["log"], "a").write(work["name"])
            turns.end(samples=work["samples"], sampled_tokens=10)

    def breaks(work, turns):
        for turn in range(2):
            assert turns.begin()
            open(work["log"], "a").write(work["name"])
            if turn:
                raise ValueError("out of paper")
            turns.end(samples=1, sampled_tokens=10)

    def sleeps(work, turns):
        while turns.begin():
            time.sleep(60)
"""


@pytest.fixture
def contest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a part whose sides are the functions above, and the record it writes into."""
    monkeypatch.setattr(harness, "SCRATCH", tmp_path)
    (tmp_path / "sides_for_tests.py").write_text(textwrap.dedent(SIDES))

    def make(**sides: str) -> tuple[Part, dict[str, Any]]:
        found = [
            Side(name, f"sides_for_tests:{target}", {"name": name[0]}, paths=(str(tmp_path),))
            for name, target in sides.items()
        ]
        work = {"log": str(tmp_path / "log"), "samples": 4}
        part = Part("part", "a part", found, work, rate="samples", same={"samples": 0.0})
        return part, {"sides": {}, "rate": "samples", "same": {"samples": 0.0}}

    return make


def run(part: Part, record: dict[str, Any], repeats: int, warmup: int = 1, limit: float = 60) -> list[int]:
    saved: list[int] = []
    save = lambda: saved.append(sum(len(side["runs"]) for side in record["sides"].values()))  # noqa: E731
    compete(part, list(part.sides), record, save, repeats=repeats, warmup=warmup, limit=limit)
    return saved


def test_sides_take_turns_and_every_turn_is_saved(contest: Any, tmp_path: Path) -> None:
    part, record = contest(burnish="steady", peer="steady")
    assert run(part, record, repeats=3) == [1, 2, 3, 4, 5, 6]
    assert (tmp_path / "log").read_text() == "bp" + "bpbpbp"  # a warm-up turn each, then by turns
    assert all(
        run["seconds"] > 0 and run["peak_bytes"] > 0 for side in record["sides"].values() for run in side["runs"]
    )


def test_what_is_there_is_not_measured_again(contest: Any, tmp_path: Path) -> None:
    part, record = contest(burnish="steady", peer="steady")
    run(part, record, repeats=1, warmup=0)
    assert run(part, record, repeats=1, warmup=0) == []
    run(part, record, repeats=2, warmup=0)
    assert (tmp_path / "log").read_text() == "bpbp"


def test_other_settings_are_another_measurement(contest: Any, tmp_path: Path) -> None:
    part, record = contest(burnish="steady")
    run(part, record, repeats=1, warmup=0)
    record["sides"]["burnish"]["options"] = {"name": "x"}
    run(part, record, repeats=1, warmup=0)
    assert (tmp_path / "log").read_text() == "bb" and len(record["sides"]["burnish"]["runs"]) == 1


def test_a_side_that_fails_is_recorded_and_the_others_go_on(contest: Any) -> None:
    part, record = contest(burnish="steady", peer="breaks")
    run(part, record, repeats=3, warmup=0)
    assert len(record["sides"]["burnish"]["runs"]) == 3
    assert record["sides"]["peer"]["error"] == "ValueError: out of paper"


def test_a_side_that_hangs_is_given_up_and_named(contest: Any) -> None:
    part, record = contest(peer="sleeps")
    run(part, record, repeats=1, warmup=0, limit=5)
    assert record["sides"]["peer"]["error"] == "no answer within 5 s while waiting for a turn of peer"


def test_different_work_is_told(contest: Any) -> None:
    part, record = contest(burnish="steady", peer="breaks")
    run(part, record, repeats=1, warmup=0)
    assert disagreements(record) == ["samples a turn: burnish 4, peer 1"]


def entry(**seconds: list[float]) -> dict[str, Any]:
    """The record of a part with 100 tokens a turn."""
    sides = {
        name: {"runs": [{"seconds": s, "sampled_tokens": 100, "peak_bytes": 2**30} for s in found]}
        for name, found in seconds.items()
    }
    return {"title": "work", "rate": "sampled_tokens", "sides": sides, "goals": [], "floor_seconds": 0.5, "facts": {}}


def test_medians_ratios_and_goals() -> None:
    """Medians 2 s and 10 s for 100 tokens: 50 and 10 tok/s, five times; a floor of 0.5 s is reached to a quarter."""
    parts = {"part": entry(burnish=[1.0, 2.0, 3.0], peer=[10.0, 10.0, 40.0]), "other": entry(burnish=[4.0])}
    assert records.quartiles([1.0, 2.0, 3.0]) == (1.5, 2.0, 2.5)
    assert records.times_better(parts["part"], "burnish", "peer") == 5.0
    assert records.reached(Goal("rate", 6, "peer"), "part", parts) == (5.0, False)
    assert records.reached(Goal("rate", 2, "burnish@other"), "part", parts) == (2.0, True)
    assert records.reached(Goal("seconds", 2.0), "part", parts) == (2.0, True)
    assert records.reached(Goal("floor", 0.3), "part", parts) == (0.25, False)
    assert records.reached(Goal("rate", 2, "absent"), "part", parts) is None
    later = parts | {"other": {**parts["other"], "stamp": {"code": "another"}}}
    assert records.reached(Goal("rate", 2, "burnish@other"), "part", later) is None


def test_results_of_other_code_or_work_are_not_continued(tmp_path: Path) -> None:
    kept = records.Records(tmp_path / "cpu.json")
    kept.part(Part("part", "", (), {"n": 1}), again=False)["sides"]["peer"] = {"runs": [1]}
    kept.save()
    assert records.Records(kept.path).part(Part("part", "", (), {"n": 1}), again=False)["sides"]
    assert not records.Records(kept.path).part(Part("part", "", (), {"n": 1}), again=True)["sides"]
    assert not records.Records(kept.path).part(Part("part", "", (), {"n": 2}), again=False)["sides"]


def test_nothing_about_the_host_is_recorded() -> None:
    import platform

    found = json.dumps(records.environment())
    assert platform.node() not in found and str(Path.home()) not in found and str(BENCHMARKS.parent) not in found


def test_uneven_lengths_have_the_mean_they_promise() -> None:
    lengths = workload.uneven(20000, 256)
    assert statistics.mean(lengths) / 256 == pytest.approx(0.3, abs=0.005)
    assert min(lengths) >= 1 and max(lengths) == 256


@pytest.mark.parametrize("shape", workload.SHAPES)
def test_costs_count_the_weights_of_the_model(shape: str, tmp_path: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    given = dict(workload.SHAPES[shape])
    config = AutoConfig.for_model(given.pop("model_type"), **given)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    config.save_pretrained(tmp_path)
    assert workload.Costs.of(tmp_path).weights == sum(p.numel() for p in model.parameters())


def test_the_sampling_floor_by_hand() -> None:
    """1000 weights, 10 numbers a token, 2 bytes, 1 byte a second, arithmetic free. Two rows share a prompt of 5 and say
    2
    and 3 tokens. Step 1: both live, 1000 + (5 + 2 x 1) x 10 numbers; step 2: one, 1000 + (5 + 2) x 10. In bytes: 4280.
    """
    costs = workload.Costs(weights=1000, kv=10, attention=1)
    top = workload.Ceiling(bandwidth=1.0, flops=math.inf)
    assert costs.sampling_floor([5], [2, 3], 2, top) == 4280


def test_words_are_tokens(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    path = workload.model_directory("quick", tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(path)
    [ids] = workload.prompts(1, 50, 512, "test")
    assert tokenizer(workload.text(ids))["input_ids"] == ids


def test_the_page_is_filled_between_its_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = entry(burnish=[1.0, 1.0], peer=[4.0, 4.0])
    part["goals"] = [vars(Goal("rate", 3, "peer"))]
    (tmp_path / "box.json").write_text(json.dumps({"parts": {"part": part}}))
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    page = (
        "before\n<!-- table:box -->\nold\n<!-- end -->\n<!-- goals:box -->\n<!-- end -->\n"
        "<!-- table:none -->\n<!-- end -->\nafter"
    )
    once = tables.filled(page)
    assert "| work | **burnish** | 100 tok/s | 100 .. 100 | 2 | 1.00 |  |" in once and "old" not in once
    assert "| work | >= 3x peer | 4x | yes |" in once and tables.NOTHING in once
    short = tables.filled("<!-- summary:box -->\n<!-- end -->\n")
    assert "| work | 100 tok/s | peer 25 tok/s | 4x | 1.00 / 1.00 |" in short
    assert "All goals are reached." in tables.filled("<!-- missed:box -->\n<!-- end -->\n")
    assert once.startswith("before\n") and once.endswith("after") and tables.filled(once) == once


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.name)
def test_the_performance_pages_are_up_to_date(page: Path) -> None:
    text = page.read_text()
    assert "<!-- table:" in text or "<!-- summary:" in text
    assert tables.filled(text) == text, "run python benchmarks/tables.py"


def test_pictures_are_drawn_from_what_was_measured() -> None:
    picture = plots.bars({"part": entry(burnish=[1.0, 1.0], peer=[4.0, 4.0])}, "title")
    assert picture and "25 tok/s  (burnish 4x)" in picture and picture.startswith("<svg")
    sweep = entry(burnish=[1.0])
    sweep["facts"]["points"] = [{"axis": "batch", "x": x, "tokens": 10 * x, "floor_seconds": 0.1} for x in (1, 8)]
    sweep["sides"]["burnish"]["runs"][0]["points"] = [0.5, 0.5]
    drawn = plots.curves(sweep, "title")
    assert drawn and "rows sampled together" in drawn and "at most" in drawn
