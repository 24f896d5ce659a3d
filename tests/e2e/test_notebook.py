"""The page in examples/ works as it is shown: its cells are executed in order, and it shows its plot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from guards import guards
from notebook import execute

PAGE = Path(__file__).parent.parent.parent / "examples" / "quickstart.ipynb"


@guards("api", "report")
def test_the_quickstart_page_runs_and_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the run goes into runs/
    page = json.loads(PAGE.read_text())
    stored = [sorted(output.get("data", {})) for cell in page["cells"] for output in cell.get("outputs", ())]
    names = execute(page)
    result, correct = names["result"], names["result"].metrics["reward/correct"]
    assert sum(correct[-5:]) / 5 > sum(correct[:5]) / 5 + 0.2
    assert result.metrics["reward"][0] == pytest.approx(correct[0] + 0.1 * result.metrics["reward/form"][0])
    shown = [output["data"] for cell in page["cells"] for output in cell.get("outputs", ()) if "data" in output]
    assert any(
        "reward/correct" in "".join(one["text/plain"]) and "<svg" in "".join(one["text/html"])
        for one in shown
        if "text/html" in one
    )
    assert "TrainResult: grpo on rows, 20 steps of 20" in "".join("".join(one["text/plain"]) for one in shown)
    fresh = [sorted(output.get("data", {})) for cell in page["cells"] for output in cell.get("outputs", ())]
    assert fresh == stored, "store the outputs: python tests/e2e/notebook.py examples/quickstart.ipynb"
