"""The Python snippets of the methods' pages run as they stand there, for one short step."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import burnish

PAGES = {
    page.stem: found[0]
    for page in sorted((Path(__file__).parents[2] / "docs" / "methods").glob("*.md"))
    if (found := re.findall(r"```python\n(import burnish\n.*?)```", page.read_text(), re.S))
}
FAST = {"sft", "dpo", "grpo"}  # one of each kind of data
SHORT = {"steps": 1, "prompts": 2, "eval_tasks": 2, "max_new_tokens": 16}
STEPS = {"prompt": "2 + 3", "completions": ["2 + 3 = 5\n", "Answer: 5"], "labels": [True, True]}


def test_every_recommended_method_has_a_snippet() -> None:
    assert len(PAGES) >= 45 and PAGES.keys() >= FAST


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in PAGES])
def test_the_snippet_of_a_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Only the length of the run is changed; a model of an earlier run is one that was trained for a step."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "steps.jsonl").write_text(
        "".join(json.dumps({**STEPS, "prompt": f"{i} + 3"}) + "\n" for i in range(24))
    )
    train = burnish.train
    monkeypatch.setattr(burnish, "train", lambda *given, **named: train(*given, **{**named, **SHORT, "out": "run"}))
    if "runs/DIR/model" in PAGES[name]:
        train("sft", model="tiny", task="add", lr=1e-2, out="runs/DIR", **SHORT)
    exec(compile(PAGES[name], f"{name}.md", "exec"), {})  # noqa: S102
    assert capsys.readouterr().out.startswith("TrainResult: ") and (tmp_path / "run" / "config.yaml").is_file()
