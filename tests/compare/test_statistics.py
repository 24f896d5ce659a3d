"""Statistics of comparisons: numbers derived by hand, and simulated coverage and error rates (fixed seeds)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from burnish.compare.statistics import (
    contrast,
    crossed_draws,
    holm,
    interval,
    paired_test,
    pass_matrix,
    reached,
    t_quantile,
)
from burnish.core.randomness import generator


def scores(key: object, seeds: int, tasks: int, *, by_seed: float, by_task: float, mean: float = 0.5) -> np.ndarray:
    """Scores with variance components of the seed, of the task, and of the residual."""
    draw = generator("simulated", key)
    luck = (
        draw.normal(0, by_seed, (seeds, 1)) + draw.normal(0, by_task, (1, tasks)) + draw.normal(0, 0.1, (seeds, tasks))
    )
    return mean + luck


def test_students_quantiles_are_those_of_the_tables() -> None:
    for freedom, value in ((1, 12.706), (2, 4.303), (4, 2.776), (10, 2.228), (30, 2.042), (10_000, 1.960)):
        assert t_quantile(freedom) == pytest.approx(value, abs=0.002)


def test_draws_have_the_spread_that_theory_gives_crossed_samples() -> None:
    """For x = a_s + b_t the variance of a mean is var(a)/S + var(b)/T, with divisor n: 1/4 (1 + 1)/2 + ... by hand.

    a = (0, 1): variance 1/4, over S = 2 seeds 1/8. b = (0, 0, 3): variance 2, over T = 3 tasks 2/3. Together 0.7917.
    """
    x = np.array([[0.0], [1.0]]) + np.array([[0.0, 0.0, 3.0]])
    draws = crossed_draws(x)
    assert draws.mean() == pytest.approx(1.5, abs=0.06)
    assert draws.var() == pytest.approx(1 / 8 + 2 / 3, rel=0.08)


def test_an_interval_of_one_number_everywhere_is_that_number() -> None:
    found = interval(np.full((3, 10), 0.7))
    assert (found.mean, found.low, found.high) == pytest.approx((0.7, 0.7, 0.7))


def test_an_interval_stays_where_scores_can_be() -> None:
    x = np.ones((3, 40))
    x[0, 0] = x[1, 3] = 0.0
    found = interval(x)
    assert found.high <= 1.0 and 0.9 < found.low < found.mean


def test_with_seeds_alone_the_interval_is_students() -> None:
    """Five seeds, one score each: mean +- t(4) s / sqrt(5). For 1..5: s = 1.5811, 3 +- 2.776 x 0.7071 = 3 +- 1.963."""
    found = interval(np.array([[1.0], [2.0], [3.0], [4.0], [5.0]]), bounds=None)
    assert found.mean == 3.0
    assert (found.high - found.low) / 2 == pytest.approx(1.963, rel=0.06)


@pytest.mark.parametrize(("seeds", "by_seed", "by_task"), [(3, 0.1, 0.02), (5, 0.05, 0.3), (5, 0.0, 0.3)])
def test_intervals_cover_the_truth_as_often_as_they_say(seeds: int, by_seed: float, by_task: float) -> None:
    """Nominal coverage is 95%, with variance in seeds, tasks or both; at least 90% in 200 simulations."""
    hits = 0
    for i in range(200):
        found = interval(scores((i, seeds), seeds, 40, by_seed=by_seed, by_task=by_task), bounds=None)
        hits += found.low <= 0.5 <= found.high
    assert hits / 200 >= 0.90


def test_plain_percentiles_would_not_cover() -> None:
    """Without the widening, the coverage of the percentiles is far below 95% with three seeds."""
    hits = 0
    for i in range(150):
        low, high = np.quantile(crossed_draws(scores((i, 3), 3, 40, by_seed=0.1, by_task=0.02)), (0.025, 0.975))
        hits += low <= 0.5 <= high
    assert hits / 150 < 0.88


def test_a_contrast_covers_the_difference_of_unpaired_sets() -> None:
    hits = 0
    for i in range(150):
        tasks = generator("shared", i).normal(0, 0.2, (1, 30))
        a = scores(("a", i), 4, 30, by_seed=0.1, by_task=0.0, mean=0.6) + tasks
        b = scores(("b", i), 6, 30, by_seed=0.03, by_task=0.0, mean=0.5) + tasks
        found = contrast(a, b)
        hits += found.low <= 0.1 <= found.high
    assert hits / 150 >= 0.89


def test_runs_that_change_sides_are_counted_one_by_one() -> None:
    """a = (3, 4), b = (1, 2): of the C(4, 2) = 6 ways to take two, only {3, 4} and {1, 2} differ as much: p = 2/6."""
    a, b = np.array([[3.0] * 4, [4.0] * 4]), np.array([[1.0] * 4, [2.0] * 4])
    test = paired_test(a, b)
    assert test.runs == pytest.approx(2 / 6) and test.least == pytest.approx(2 / 6)
    assert test.difference.mean == pytest.approx(2.0)


def test_tasks_that_change_sides_are_coins() -> None:
    """Three tasks, all with the same difference: only +++ and --- of the 8 ways are as large: p is about 2/8."""
    a, b = np.ones((4, 3)), np.zeros((4, 3))
    assert paired_test(a, b).tasks == pytest.approx(0.25, abs=0.02)
    assert paired_test(a, b).p == paired_test(a, b).tasks  # the larger of the two questions


def test_the_same_scores_are_never_told_apart() -> None:
    x = scores("same", 5, 30, by_seed=0.1, by_task=0.1)
    assert paired_test(x, x).p == 1.0


def test_scores_that_cannot_be_paired_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_test(np.ones((3, 4)), np.ones((3, 5)))


def test_holm_by_hand() -> None:
    """(0.01, 0.04, 0.03) sorted: 0.01 x 3, 0.03 x 2, 0.04 x 1 -> 0.03, 0.06, and 0.04 may not fall below 0.06."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_keeps_false_alarms_of_a_family_at_one_in_twenty() -> None:
    draw = generator("family")
    shared = draw.random((4000, 1))
    mine = np.where(draw.random((4000, 6)) < 0.5, draw.random((4000, 6)), shared)  # questions that have much in common
    alarms = np.mean([min(holm(list(row))) <= 0.05 for row in mine])
    assert alarms <= 0.06
    assert np.mean(mine.min(1) <= 0.05) > 0.12  # without it there would be many


def test_nothing_is_found_where_there_is_nothing() -> None:
    """Four equal candidates, six pairs, forty simulations: the rate of any false positive is about 5% or less."""
    alarms = 0
    for i in range(40):
        tasks = generator("null", i).normal(0, 0.2, (1, 25))
        x = [scores((i, k), 5, 25, by_seed=0.08, by_task=0.0) + tasks for k in range(4)]
        ps = [paired_test(x[a], x[b]).p for a in range(4) for b in range(a)]
        alarms += min(holm(ps)) <= 0.05
    assert alarms <= 6  # 2 are expected; 7 or more would come once in two hundred times


def test_a_clear_difference_is_found_with_five_seeds() -> None:
    tasks = generator("clear").normal(0, 0.2, (1, 60))
    a = scores("better", 5, 60, by_seed=0.02, by_task=0.0, mean=0.7) + tasks
    b = scores("worse", 5, 60, by_seed=0.02, by_task=0.0, mean=0.5) + tasks
    test = paired_test(a, b)
    assert test.runs == pytest.approx(2 / math.comb(10, 5)) and test.tasks < 0.001
    assert 0.1 < test.difference.low < 0.2 < test.difference.high < 0.3


def test_pass_at_k_is_unbiased() -> None:
    """2 of 4 right: pass@1 = 1/2, pass@2 = 1 - C(2,2)/C(4,2) = 5/6, pass@4 = 1."""
    assert pass_matrix([[2]], 4, 1) == pytest.approx(np.array([[0.5]]))
    assert pass_matrix([[2]], 4, 2) == pytest.approx(np.array([[5 / 6]]))
    assert pass_matrix([[2, 0], [4, 1]], 4, 4).tolist() == [[1.0, 0.0], [1.0, 1.0]]
    draw = generator("pass")
    right = draw.binomial(8, 0.3, (1, 20_000))
    assert pass_matrix(right, 8, 4).mean() == pytest.approx(1 - 0.7**4, abs=0.01)


def test_reaching_a_threshold_is_read_off_straight_lines() -> None:
    curve = [(0.0, 0.2), (100.0, 0.4), (200.0, 0.8)]
    assert reached(curve, 0.6) == pytest.approx(150.0)
    assert reached(curve, 0.2) == 0.0
    assert reached(curve, 0.9) is None
    assert reached([(0.0, 0.5), (10.0, 0.1), (20.0, 0.5)], 0.5) == 0.0
