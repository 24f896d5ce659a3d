"""Methods that return to states, plan, or divide an outcome, on the keys of examples/desk.py.

All start from the embedded model after it has imitated a careless player, which wins less than half of its games.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

import burnish

DESK = Path(__file__).parent.parent.parent / "examples" / "desk.py"
COMMON: dict[str, Any] = {"task": f"{DESK}:Desk", "eval_tasks": 0, "eval_every": 0, "save_every": 0, "seed": 0}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The model that plays carelessly, judges steps, and writes instructions and near misses."""
    folder = tmp_path_factory.mktemp("desk")
    runpy.run_path(str(DESK))["main"](str(folder / "desk.jsonl"))
    options = {**COMMON, "task": str(folder / "desk.jsonl"), "steps": 90, "prompts": 32, "lr": 1e-3}
    return str(burnish.train("sft", model="tiny", max_new_tokens=24, out=str(folder / "run"), **options).model)


def played(model: str, folder: Path, new: int = 16, **options: Any) -> dict[str, float]:
    """Metrics of 200 episodes at temperature 1, without training."""
    options = {"n": 1, "steps": 1, "prompts": 200, "max_new_tokens": new, **COMMON, "seed": 7, **options}
    return burnish.train("armap_best_of_n", model=model, out=str(folder / "played"), **options).metrics[-1]
