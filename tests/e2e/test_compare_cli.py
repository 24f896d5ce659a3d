"""burnish compare, sweep and ablate as separate processes: run, stopped and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from guards import guards

import burnish
from burnish.cli import main
from burnish.compare.job import Job
from burnish.compare.single import run_job

pytestmark = guards("compare", "commands")

SMALL = [
    "--task",
    "reverse",
    "--prompts",
    "4",
    "--eval-tasks",
    "8",
    "--replies",
    "2",
    "--points",
    "2",
    "--device",
    "cpu",
    "--workers",
    "1",
]
SRC = Path(burnish.__file__).parent.parent  # the processes run what is tested here
LIMIT = 240  # seconds that anything here may take


def run(*words: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "burnish.cli", *words],
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SRC)},
    )


def said(process: subprocess.Popen[str], code: int = 0) -> str:
    text, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == code, text
    return text


def results(folder: Path) -> list[dict[str, Any]]:
    """The results without the values that differ between runs."""
    rows = json.loads((folder / "results.json").read_text())["runs"]
    return [{**row, "spent": {**row["spent"], "seconds": 0}} for row in rows]


def wait_for(what: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + LIMIT
    while not what():
        assert time.monotonic() < end, "it took too long"
        assert process.poll() is None, said(process)
        time.sleep(0.05)


def test_a_stopped_comparison_resumes_with_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C during a run: exit code 130 and the command that resumes; then the same numbers as without a stop."""
    (tmp_path / "mine.py").write_text(
        "from dataclasses import replace\nfrom burnish.methods.imitation import sft\n\n"
        "def broken(task, *, times: int = 1):\n    made = sft(task)\n    phase = made.phases[0]\n"
        "    return replace(made, phases=(replace(phase, draw=replace(phase.draw, call=lambda step: 1 // 0)),))\n"
    )
    words = ["compare", "sft", "mine.py:broken", *SMALL, "--seeds", "1", "--out", "here", "--budget", "tokens=2k"]
    process = run(*words, cwd=tmp_path)
    folder = tmp_path / "here" / "runs" / "sft-seed0"
    steps = folder / "spent.jsonl"
    wait_for(lambda: steps.is_file() and len(steps.read_text().splitlines()) >= 4, process)
    process.send_signal(signal.SIGINT)
    text = said(process, 130)
    assert "Stopped: you asked to stop" in text and "burnish compare sft" in text and "failed" not in text
    assert list((folder / "checkpoints").iterdir()) and not (folder / "found.json").exists()
    text = said(run(*words, cwd=tmp_path))
    broken, found = results(tmp_path / "here")
    assert broken["status"] == "failed" and "ZeroDivisionError" in broken["reason"] and "ZeroDivisionError" in text
    job = Job.from_json(json.loads((folder / "job.json").read_text()))
    straight = json.loads(json.dumps(run_job(replace(job, out=str(tmp_path / "straight")), lambda *_: None).to_json()))
    assert {**straight, "spent": {**straight["spent"], "seconds": 0}} == found
    assert all((tmp_path / "here" / name).is_file() for name in ("report.html", "board.json", "runs.csv"))
    monkeypatch.chdir(tmp_path)
    assert main([*words[:-1], "tokens=9k"]) == 2
    assert "holds runs with another budget" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_a_sweep_and_an_ablation(tmp_path: Path) -> None:
    few = [*SMALL, "--seeds", "2", "--budget", "steps=3"]
    text = said(
        run(
            "sweep",
            "sft",
            "--grid",
            "lr=1e-5,1e-3",
            "--random",
            "weight_decay=0:0.1",
            "--trials",
            "4",
            *few,
            "--out",
            "s",
            cwd=tmp_path,
        )
    )
    assert "What each value does" in text and "partly luck" in text and len(results(tmp_path / "s")) == 10
    assert "What each value does" in (tmp_path / "s" / "report.html").read_text()
    text = said(run("ablate", "neftune", *few, "--out", "a", cwd=tmp_path))
    assert "neftune is sft with" in text and "embed as in sft" in text
    assert {row["label"] for row in results(tmp_path / "a")} == {"neftune", "sft", "embed as in sft"}


@pytest.mark.slow
def test_a_time_limit_stops_and_a_worker_that_dies_is_a_row(tmp_path: Path) -> None:
    """A method that exits the process fails one run; at the time limit the other run saves and can be resumed."""
    (tmp_path / "mine.py").write_text(
        "import os, sys\nfrom burnish.methods.imitation import sft\n\n"
        "def deadly(task, *, times: int = 1):\n"
        "    return os._exit(7) if 'worker' in sys.argv[0] else sft(task)\n"
    )
    words = ["compare", "mine.py:deadly", "sft", *SMALL, "--seeds", "1", "--budget", "tokens=1M", "--out", "d"]
    text = said(run(*words, "--limit-seconds", "25", cwd=tmp_path), 130)
    assert "ended with code 7" in text and "the time limit is reached" in text
    assert not (tmp_path / "d" / "runs" / "sft-seed0" / "found.json").exists()


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    for command, words in (("compare", "tokens=2M"), ("sweep", "--grid lr=1e-5,1e-4"), ("ablate", "--parent")):
        assert main([command, "--help"]) == 0
        assert words in capsys.readouterr().out
    for words in (["compare"], ["sweep", "grpo"], ["ablate"], ["sweep", "grpo", "--grid"]):
        assert main(words) == 2
