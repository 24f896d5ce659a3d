"""A whole study of a user's own: planned, run, stopped, resumed, judged and reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from burnish.cli import main
from burnish.studies.claim_file import read_study
from burnish.studies.results import compact, read_raw
from burnish.studies.verdicts import judge

CLAIM = """
paper: {id: mine, title: My own method}
about: Is SFT then RL better than RL?
options: {prompts: 4, max_new_tokens: 24}
record: [correct]
arms:
  rl: {method: grpo, beta: 0, n: 4, lr: 1.0e-4}
  sft: {method: sft, lr: 1.0e-4}
  both: {method: grpo, beta: 0, n: 4, lr: 1.0e-4, model: "{sft}"}
design: {tasks: ["add:2"], seeds: 3, budget: steps=2, held_out: 10, replies: 2, points: 1}
quick: {seeds: 1, arms: [rl, both]}
claims:
  better: {claim: Both is better., rule: {difference: {of: both, less: rl, margin: 0.03}}, guess: yes.}
"""


@pytest.mark.slow
def test_a_study_is_run_resumed_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(CLAIM)
    words = ["study", "run", "mine.yaml", "--quiet", "--device", "cpu", "--workers", "2"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "9 runs in runs/study-mine" in printed and "both - rl" in printed
    file = tmp_path / "runs" / "study-mine" / "results.json"
    study, before = read_study("mine.yaml"), json.loads(file.read_text())
    assert before["about"]["claim_file"] == [study.sha] and len(before["runs"]) == 9
    assert (tmp_path / "runs" / "study-mine" / "report.md").read_text().startswith("# My own method")

    lost = [row for row in before["runs"] if row["label"] == "both" and row["seed"] == 1]
    kept = [row for row in before["runs"] if row not in lost]
    file.write_text(json.dumps({**before, "runs": kept}))
    folder = Path(lost[0]["flags"]["model"]).parents[1] / "both-add-2-seed1"
    (folder / "found.json").unlink()
    assert main(words) == 0
    after = json.loads(file.read_text())
    assert [row for row in after["runs"] if row["label"] != "both" or row["seed"] != 1] == kept
    assert len(after["runs"]) == 9

    raw = read_raw(file, study.full)
    compact(file, tmp_path / "small.json", curves=False, seeds=9)
    small = read_raw(tmp_path / "small.json", study.full)
    assert [one.parts for one in judge(study, small.runs)] == [one.parts for one in judge(study, raw.runs)]
    assert (tmp_path / "small.json").stat().st_size < file.stat().st_size

    (tmp_path / "mine.yaml").write_text(CLAIM.replace("1.0e-4}\n  sft", "1.0e-5}\n  sft"))
    capsys.readouterr()
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "has results of an earlier version of the claim file, in which lr of 'rl' was another" in said
    (tmp_path / "mine.yaml").write_text(CLAIM.replace("margin: 0.03", "margin: 0.05"))
    assert main(["study", "report", "mine.yaml"]) == 0
    page = (tmp_path / "runs" / "study-mine" / "report.md").read_text()
    assert f"it was {study.sha} then" in " ".join(page.split())


def test_a_study_is_shown_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(CLAIM)
    assert main(["study", "show", "mine.yaml"]) == 0
    shown = capsys.readouterr().out
    assert "Holds if both - rl is at least 3 points" in " ".join(shown.split()) and "Not yet run" in shown
    assert main(["study", "run", "mine.yaml", "--quick", "--check"]) == 0
    assert "3 runs in runs/study-mine-quick" in capsys.readouterr().out  # rl, both, and sft, which both starts from
    assert main(["study", "list"]) == 0
    assert "33 studies" in capsys.readouterr().out and not (tmp_path / "runs").exists()
