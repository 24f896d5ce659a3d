"""What is asked of a trained model besides its accuracy, by hand and on tiny."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from conftest import SMALL

from burnish.compare.budget import Budget
from burnish.compare.job import Job
from burnish.compare.probes import PROBES, read_probe
from burnish.compare.single import run_job
from burnish.core.roles import Role
from burnish.evals.pair_steps import pair_steps
from burnish.evals.probed import (
    _CHANGES,
    Asked,
    answers,
    conditional_entropy,
    conditional_kl,
    early_answers,
    right_replies,
)
from burnish.models.build import build
from burnish.models.known_models import resolve
from burnish.tasks.table import source


@pytest.fixture(scope="module")
def tiny() -> Asked:
    settings = replace(SMALL, max_new_tokens=48)
    with torch.no_grad():
        models = build({"policy": Role("frozen", "base")}, resolve("tiny"), settings, device="cpu")
    return Asked(models, source("countdown:2"), settings, 4, "policy", lambda: models)


def test_entropy_and_distance_among_right_replies_by_hand() -> None:
    """pi puts 1/2 on y1 and 1/4 on y2, both right: given right they have 2/3 and 1/3, an entropy of 0.6365.

    pi0 has 1/8 on each: 1/2 and 1/2 given right. KL = 2/3 ln(4/3) + 1/3 ln(2/3) = 0.0566. Samples in the proportion
    2 to 1 give the expectations exactly.
    """
    logps = [math.log(1 / 2), math.log(1 / 2), math.log(1 / 4)]
    exact = -(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3)
    assert conditional_entropy(logps, 3 / 4) == pytest.approx(exact)
    before = [math.log(1 / 8)] * 3
    assert conditional_kl(logps, before, 3 / 4, 1 / 4) == pytest.approx(0.0566, abs=1e-4)
    assert conditional_kl(logps, logps, 3 / 4, 3 / 4) == 0.0


def test_the_start_is_at_no_distance_from_itself(tiny: Asked) -> None:
    """The same samples by the same weights: KL 0 up to the rounding between sampler and trainer."""
    measures = right_replies(tiny, k=16, tasks=4)
    assert measures["right_kl"][0] == pytest.approx(0.0, abs=1e-3) and measures["right_entropy"][0] > 0
    assert len(measures["distinct_right"]) == 4 and max(measures["distinct_right"]) > 1


def test_changes_of_the_working_by_hand() -> None:
    lines = ["10-7=3", "7-3-1=9"]
    assert _CHANGES["none"](lines) == "" and _CHANGES["half"](lines) == "10-7=3\n"
    assert _CHANGES["dots"](lines) == "......\n.......\n"
    assert _CHANGES["wrong"](lines) == "10-7=3\n7-3-1=0\n"  # 9 becomes 0


def test_answers_after_the_working_was_changed(tiny: Asked) -> None:
    measures = early_answers(tiny, tasks=20)
    assert len(measures["share_with_working"]) == 20 and measures["share_unchanged_dots"][0] <= 1
    assert measures["share_unchanged_none"][0] < 1  # three numbers are not combined in the head


def test_another_task_has_a_panel_of_its_own(tiny: Asked) -> None:
    measures = answers(tiny, task="add:2", k=4)
    assert set(measures) == {"accuracy on add:2", "pass@2 on add:2", "pass@4 on add:2", "maj@4 on add:2"}
    one, four = (sum(measures[name]) for name in ("accuracy on add:2", "pass@4 on add:2"))
    assert all(len(values) == 4 for values in measures.values()) and one <= four


def test_a_step_on_a_pair_is_foretold_and_undone(tiny: Asked) -> None:
    """A short step of gradient descent changes log pi(y_w) as |g_w|^2 - <g_w, g_l> says; no weight is left moved."""
    module = tiny.models["policy"].module
    before = [p.detach().clone() for p in module.parameters()]
    measures = pair_steps(tiny, pairs=2)
    assert measures["share_near_foretold"] == (1.0, 1.0) == measures["share_far_foretold"]
    assert all(-1 <= cosine <= 1 for cosine in measures["near_cosine"])
    assert all(torch.equal(old, p) for old, p in zip(before, module.parameters(), strict=True))
    gaps = zip(measures["share_near_falls"], measures["share_far_falls"], strict=True)
    assert measures["share_falls_gap"] == tuple(near - far for near, far in gaps)


def test_probes_are_named() -> None:
    assert read_probe("right_replies(k=8)") == ("right_replies", {"k": 8}) and set(PROBES) >= {"answers", "pair_steps"}
    with pytest.raises(ValueError, match="there is no probe 'x'"):
        read_probe("x")


def test_a_run_keeps_what_it_is_asked_to(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A run with a reward of its own: the plain task judges it, a metric is kept, and a probe looks at the model."""
    out = tmp_path_factory.mktemp("run") / "a"
    flags = {"model": "tiny", "prompts": 2, "n": 2, "reward": "regex('(?!)')", "beta": 0, "device": "cpu"}
    job = Job(
        *("a", "grpo", flags, "add:2", 0, Budget("steps", 2.0), str(out), 8, 2, 1),
        learns="add:2",
        record=("correct", "reward"),
        probes=("answers(task=add:3, k=2)",),
    )
    row = run_job(job, lambda used, steps, value: None)
    assert row.value > 0.1 and row.recorded["reward"] == (0.0, 0.0)  # the regex is never met
    assert len(row.probed["accuracy on add:3"]) == 8
    stored = type(row).from_json(row.to_json())
    assert stored.recorded == row.recorded and stored.probed == row.probed
    assert Job.from_json(job.to_json()) == job
