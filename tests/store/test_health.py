"""Each health detector warns about its case and does not warn about a healthy run."""

from __future__ import annotations

import math
from typing import Any

import pytest

from burnish.store.health import DETECTORS, RECENT, WINDOW, Health, HealthLimits, worries

LIMITS = HealthLimits(max_new_tokens=8, logp_apart=1e-3)


def ramp(start: float, end: float, n: int = 20) -> list[float]:
    return [start + (end - start) * i / (n - 1) for i in range(n)]


def steps(**series: list[float]) -> list[dict[str, Any]]:
    """Metrics of each step; `a__b` stands for a/b."""
    names = {name.replace("__", "/"): values for name, values in series.items()}
    return [dict(zip(names, row, strict=True)) for row in zip(*names.values(), strict=True)]


ILL = {
    "canary": ([{"canaries_passed": 2.0}], "2 replies passed canary tests"),
    "collapse": (steps(reward=[0.5] * 10 + [0.0] * 10), "0.50 to 0.00"),
    "solved": (steps(reward=[1.0] * 5, zero_variance_groups=[1.0] * 5), "harder"),
    "flat": (steps(reward=[0.0] * 5, zero_variance_groups=[1.0] * 5), "easier"),
    "unread": (steps(judge_unread=[0.9] * 5, zero_variance_groups=[1.0] * 5, reward=[0.0] * 5), "90% of the judge's"),
    "dropped": (steps(dropped__all_the_same=[0.9] * 5), "90% is dropped before learning (all the same)"),
    "cut": (steps(cut_off=[0.9] * 5), "cut off at 8 tokens: raise --max-new-tokens"),
    "infinite": (steps(reward=[0.1] * 5, pg__loss=[0.1] * 4 + [math.inf]), "pg/loss is not finite"),
    "entropy": (steps(pg__entropy=ramp(0.8, 0.001, 60), reward=[0.3] * 60), "0.77 to 0.028"),
    "unlearned": (steps(reply__chosen_logp=ramp(-10, -60)), "from -15.3 to -54.7"),
    "hacking": (steps(reward=ramp(0.2, 0.9), correct=ramp(0.4, 0.3)), "correctness does not"),
    "over_optimised": (
        [
            {"reward": 0.3 + 0.03 * i, **({"heldout/accuracy": [0.5, 0.7, 0.6, 0.5][i // 5]} if i % 5 == 4 else {})}
            for i in range(20)
        ],
        "from 70.0% to 50.0%",
    ),
    "mismatch": (steps(mismatch__logp=[0.01] * 5), "0.0100 apart, where rounding explains 0.001"),
    "length": (steps(length=ramp(20, 90), reward=[0.3] * 20), "without a better reward"),
    "drift": (steps(kl__loss=ramp(0, 4)), "nats a token"),
    "clipped": (steps(pg__clipped=[0.7] * 5), "70% of the tokens are clipped"),
    "diverged": (steps(sft__nll=ramp(8.0, 215.0)), "the NLL has risen from 8.00 to"),
    "spike": (steps(grad_norm=[0.5] * 30 + [60.0]), "jumped to 60.0, usually 0.50"),
}

WELL = {
    "a run that learns": steps(
        reward=ramp(0.3, 0.95),
        correct=ramp(0.3, 0.95),
        pg__entropy=ramp(0.5, 0.02),
        kl__loss=ramp(0, 0.05),
        length=ramp(20, 22),
        pg__clipped=[0.01] * 20,
        pg__old_kl=[1e-9] * 20,
        mismatch__logp=[1e-6] * 20,
        zero_variance_groups=ramp(0.1, 0.7),
        grad_norm=ramp(0.3, 0.9),
        cut_off=[0.02] * 20,
    ),
    "longer and better": steps(length=ramp(20, 90), reward=ramp(0.2, 0.8)),
    "shaped and right": steps(reward=ramp(-0.8, 0.6), correct=ramp(0.2, 0.8)),
    "sure and right": steps(pg__entropy=ramp(0.8, 0.001, 60), reward=[0.97] * 60),
    "certain on given pairs": steps(reply__entropy=ramp(0.8, 0.001, 60), reply__chosen_logp=ramp(-10, -12, 60)),
    "too short to tell": steps(reward=[0.0] * 4, zero_variance_groups=[1.0] * 4, cut_off=[1.0] * 4),
    "noise on held-out": [
        {"reward": 0.5, **({"heldout/accuracy": [0.70, 0.69, 0.68][i // 5]} if i % 5 == 4 else {})} for i in range(15)
    ],
}


def test_every_detector_has_a_case() -> None:
    assert ILL.keys() == DETECTORS.keys()


@pytest.mark.parametrize("kind", ILL)
def test_a_detector_warns(kind: str) -> None:
    history, said = ILL[kind]
    found = worries(history, LIMITS)
    assert kind in found and said in found[kind]
    assert "\n" not in found[kind]


@pytest.mark.parametrize("kind", WELL)
def test_a_healthy_run_has_no_warning(kind: str) -> None:
    assert worries(WELL[kind], LIMITS) == {}


def test_an_unread_judge_is_not_a_level_that_is_too_hard() -> None:
    found = worries(ILL["unread"][0], LIMITS)
    assert found.keys() == {"unread"} and "easier" not in found["unread"]


def test_lower_precision_allows_a_larger_mismatch() -> None:
    assert "mismatch" not in worries(ILL["mismatch"][0], HealthLimits(logp_apart=2e-2))
    assert "1.050" in worries(steps(mismatch__ratio=[1.05] * 5), LIMITS)["mismatch"]


def test_incremental_warnings_equal_those_of_the_whole_history() -> None:
    for history, _ in ILL.values():
        health = Health(LIMITS)
        news = [worry.kind for step, metrics in enumerate(history) for worry in health.news(step, metrics)]
        assert len(news) == len(set(news))
        assert health.worries() == worries(history, LIMITS)
        assert health.worries().keys() <= set(news)


def test_a_long_run_is_judged_by_its_first_and_last_steps() -> None:
    history = steps(reward=ramp(0.2, 0.9, WINDOW + 100), correct=[0.3] * (WINDOW + 100))
    short = history[:RECENT] + history[-WINDOW:]
    assert worries(history, LIMITS) == worries(short, LIMITS) and "hacking" in worries(history, LIMITS)


def test_missing_metrics_give_no_warning() -> None:
    assert worries([{}] * 30, LIMITS) == {}
    assert "not finite" in worries([{"reward": 0.5}] * 5 + [{"reward": None}], LIMITS)["infinite"]
