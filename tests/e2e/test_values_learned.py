"""Value models that are trained on replies of tiny guide it: more of its sampled replies are right."""

from __future__ import annotations

from pathlib import Path

import pytest

import burnish


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trains", "steps", "decodes", "options"),
    [
        ("vas_value", 20, "vas", {"beta": 3.0, "k": 3}),
        ("q_sharp_value", 10, "q_sharp", {"k": 3, "temperature": 1.0, "top_p": 1.0}),
    ],
)
def test_a_value_model_guides(trains: str, steps: int, decodes: str, options: dict, tmp_path: Path) -> None:
    common = {"task": "add", "device": "cpu", "save_every": 0, "eval_every": 0}
    narrow = {"k": 3} if trains == "q_sharp_value" else {}
    trained = burnish.train(trains, **common, **narrow, steps=steps, eval_tasks=0, out=str(tmp_path / "value"))
    found = burnish.train(
        decodes, **common, **options, steps=1, prompts=2, value_model=str(trained.model), out=str(tmp_path / "guided")
    )
    assert found.before is not None and found.after is not None
    assert found.after.value.mean - found.before.as_sampled.mean > 0.12
