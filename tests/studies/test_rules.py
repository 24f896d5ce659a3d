"""Each rule on planted runs, with the number and the verdict derived by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from burnish.compare.budget import Budget
from burnish.compare.job import Mark, RunResult
from burnish.compare.statistics import interval, signed_test, t_quantile
from burnish.studies.measures import Missing, Runs
from burnish.studies.relations import Agreement, Best, Correlation, Ratio, Share, kendall, spearman, wilson
from burnish.studies.rules import (
    FAILS,
    HOLDS,
    UNDECIDED,
    AllOf,
    AnyOf,
    Contrast,
    Difference,
    Equivalent,
    Level,
    NoWorse,
)
from burnish.studies.study import Claim, Study
from burnish.studies.summary import deciding, placed
from burnish.studies.verdicts import Verdict, judge

BUDGET = Budget("tokens", 100.0)


def run(
    label: str, seed: int, right: Sequence[int], *, replies: int = 10, start: str = "", **more: object
) -> RunResult:
    """A finished run whose held-out tasks had so many right replies of `replies`."""
    marks = (Mark(0, 0.0, start.count("1") / max(1, len(start)), start),)
    value = sum(right) / (len(right) * replies)
    row = RunResult(label, "grpo", "add", seed, BUDGET, "done", value=value, replies=replies, right=tuple(right))
    return RunResult(**{**vars(row), "curve": marks, **more})


def runs(by_arm: Mapping[str, Sequence[Sequence[int]]], **more: object) -> Runs:
    """by_arm: arm -> for each seed the right replies of each task."""
    rows = {
        arm: {"add": [run(arm, s, right, **more) for s, right in enumerate(seeds)]} for arm, seeds in by_arm.items()
    }
    return Runs(rows, ("add",))


def verdict_of(rule: object, data: Runs, times: int = 1) -> str:
    """The verdict of a claim that stands beside times - 1 others like it."""
    claims = tuple(Claim(str(i), "", rule) for i in range(times))
    study = Study("s", None, "", (), (), "tiny", {}, {}, None, None, claims, "sha")
    return judge(study, data)[0].verdict


# ------------------------------------------------------------------------------------------------------- differences

HIGH, LOW = [[9] * 40] * 4, [[5] * 40] * 4
BETTER = Difference(Contrast({"a": 1.0, "b": -1.0}), 0.03)


def test_a_difference_holds_where_it_is_large_and_significant() -> None:
    """0.9 - 0.5 with four seeds each: of the 70 labellings of 8 runs two are as far apart, p = 2/70 = 0.0286."""
    (part,) = BETTER.parts(runs({"a": HIGH, "b": LOW}))
    assert part.mean == pytest.approx(0.4) and part.p == pytest.approx(2 / 70)
    assert verdict_of(BETTER, runs({"a": HIGH, "b": LOW})) == HOLDS


def test_holm_counts_all_claims_of_the_study() -> None:
    """Two claims with p = 2/70 each: corrected 4/70 = 0.057, above 0.05. The same runs then decide nothing."""
    assert verdict_of(BETTER, runs({"a": HIGH, "b": LOW}), times=2) == UNDECIDED


def test_a_difference_fails_where_the_sign_is_the_opposite() -> None:
    assert verdict_of(BETTER, runs({"a": LOW, "b": HIGH})) == FAILS


def test_a_difference_fails_where_the_90_percent_interval_is_within_the_margin() -> None:
    """Seed means 0.50, 0.51, 0.49, 0.50 on both sides; the difference of each seed is 0 or 0.01: inside 3 points."""
    near = [[5] * 9 + [n] for n in (5, 6, 4, 5)]
    (part,) = BETTER.parts(runs({"a": near, "b": near[::-1]}))
    assert -0.03 < part.low90 < part.high90 < 0.03 and part.low <= part.low90 and part.high90 <= part.high
    assert verdict_of(BETTER, runs({"a": near, "b": near[::-1]})) == FAILS


def test_a_difference_is_undecided_where_seeds_scatter() -> None:
    """Means 0.9, 0.1, 0.9, 0.1 against 0.5: the difference is 0 and the interval is wide."""
    wild = [[9] * 40, [1] * 40] * 2
    assert verdict_of(BETTER, runs({"a": wild, "b": LOW})) == UNDECIDED


def test_the_smallest_effect_that_counts_is_the_margin() -> None:
    """0.52 - 0.50 is significant and smaller than 3 points; its interval is a point inside the margin: it fails."""
    data = runs({"a": [[26] * 40] * 4, "b": [[25] * 40] * 4}, replies=50)
    (part,) = BETTER.parts(data)
    assert part.mean == pytest.approx(0.02) and part.p == pytest.approx(2 / 70)
    assert verdict_of(BETTER, data) == FAILS


def test_equivalence_holds_inside_and_fails_outside() -> None:
    same = Equivalent(Contrast({"a": 1.0, "b": -1.0}), 0.03)
    assert verdict_of(same, runs({"a": LOW, "b": LOW})) == HOLDS
    assert verdict_of(same, runs({"a": HIGH, "b": LOW})) == FAILS
    assert verdict_of(same, runs({"a": [[9] * 40, [1] * 40] * 2, "b": LOW})) == UNDECIDED


def test_no_worse_has_a_margin_and_a_loss_at_which_it_fails() -> None:
    rule = NoWorse(Contrast({"a": 1.0, "b": -1.0}), 0.05, 0.10)
    little, much = [[5] * 32 + [4] * 8] * 4, [[4] * 40] * 4  # 0.48 and 0.40 against 0.50
    middle = [[5] * 12 + [4] * 28] * 4  # 0.43: a loss of 7 points, between the two
    assert verdict_of(rule, runs({"a": little, "b": LOW})) == HOLDS
    assert verdict_of(rule, runs({"a": much, "b": LOW})) == FAILS
    assert verdict_of(rule, runs({"a": middle, "b": LOW})) == UNDECIDED


def test_a_contrast_of_three_arms_is_an_interaction() -> None:
    """(0.9 - 0.5) - (0.7 - 0.5) written as a - 2 b/... : weights 1, -1, and 0.5: 0.9 - 0.5 + 0.5 x 0.4 = 0.6."""
    rule = Contrast({"a": 1.0, "b": -1.0, "c": 0.5})
    part = rule.part(runs({"a": HIGH, "b": LOW, "c": [[4] * 40] * 4}), 0.1)
    assert part.mean == pytest.approx(0.6) and part.p == pytest.approx(2 / 16)  # all signs: 2 of 2^4 as large


def test_signs_by_hand() -> None:
    """Contrasts of three seeds 1, 2, 3: of the 8 signs only +++ and --- have a sum of 6 in size: p = 1/4."""
    assert signed_test([[1.0], [2.0], [3.0]]).runs == pytest.approx(0.25)
    assert signed_test([[1.0], [-1.0], [0.0]]).runs == 1.0


def test_the_interval_of_equivalence_is_the_90_percent_one() -> None:
    """Student's t with 3 degrees of freedom: 3.182 for 95%, 2.353 for 90%. One task: the ratio of widths is theirs."""
    assert t_quantile(3) == pytest.approx(3.182, abs=1e-3) and t_quantile(3, 0.9) == pytest.approx(2.353, abs=1e-3)
    x = np.array([[0.1], [0.2], [0.3], [0.4]])  # mean 0.25, standard error sqrt(1/60)/2 = 0.0645
    near = interval(x, None, 0.9)
    assert near.high - near.mean == pytest.approx(2.353 * 0.0645, rel=0.12)  # resampled percentiles, then widened


# ------------------------------------------------------------------------------------------- levels, ratios and shares


def test_a_level_holds_where_both_ends_of_the_interval_are_beyond_the_bound() -> None:
    data = runs({"a": HIGH})
    assert verdict_of(Level("a", "accuracy", at_least=0.8), data) == HOLDS
    assert verdict_of(Level("a", "accuracy", at_least=0.95), data) == FAILS
    assert verdict_of(Level("a", "accuracy", at_most=0.95), data) == HOLDS
    assert verdict_of(Level("a", "accuracy", at_least=0.5), runs({"a": [[9] * 40, [1] * 40] * 2})) == UNDECIDED


def test_a_ratio_by_hand() -> None:
    """Gains of 0.3 and 0.4, the same for all: 0.75, which is at least 0.7, and not at most 0.5."""
    start = "0" * 40
    data = runs({"a": [[3] * 40] * 4, "b": [[4] * 40] * 4}, start=start)
    (part,) = Ratio("a", "b", "gain", 0.7, 0.5).parts(data)
    assert (part.mean, part.low, part.high) == pytest.approx((0.75, 0.75, 0.75))
    assert verdict_of(Ratio("a", "b", "gain", 0.7, 0.5), data) == HOLDS
    assert verdict_of(Ratio("a", "b", "gain", 0.9, 0.8), data) == FAILS
    assert verdict_of(Ratio("a", "b", "gain", 0.5, 0.7), data) == FAILS  # at most 0.5, fails from 0.7 on
    assert verdict_of(Ratio("a", "b", "gain", 0.8, 0.9), data) == HOLDS


def test_a_ratio_to_nothing_is_undecided() -> None:
    data = runs({"a": [[3] * 40] * 4, "b": [[0] * 40] * 4}, start="0" * 40)
    assert verdict_of(Ratio("a", "b", "gain", 0.7, 0.5), data) == UNDECIDED


def test_wilson_by_hand() -> None:
    """7 of 8, z^2 = 3.8416: (0.875 + 0.2401 -+ 1.96 sqrt(0.875 x 0.125 / 8 + 3.8416 / 256)) / 1.4802."""
    assert wilson(7, 8, 1.96) == pytest.approx((0.5291, 0.9776), abs=1e-4)


def test_a_share_of_runs() -> None:
    """Three of four runs have 0.6 or more: 75%."""
    data = runs({"a": [[6] * 40, [7] * 40, [6] * 40, [2] * 40]})
    (part,) = Share(("a",), "accuracy", 0.75, at_least=0.6).parts(data)
    assert part.mean == 0.75
    assert verdict_of(Share(("a",), "accuracy", 0.75, at_least=0.6), data) == HOLDS
    assert verdict_of(Share(("a",), "accuracy", 0.8, at_least=0.6), data) == UNDECIDED
    assert verdict_of(Share(("a",), "accuracy", 0.8, at_least=0.9), data) == FAILS  # 0 of 4: at most 0.49


# ------------------------------------------------------------------------------------------------------------- ranks


def test_spearman_by_hand() -> None:
    """x = 1, 2, 3, 4 and y = 1, 3, 2, 4: 1 - 6 (0 + 1 + 1 + 0) / (4 x 15) = 0.8. Ties have their mean rank."""
    assert spearman(np.array([1, 2, 3, 4]), np.array([10, 30, 20, 40])) == pytest.approx(0.8)
    assert spearman(np.array([1.0, 1.0, 2.0]), np.array([1.0, 1.0, 5.0])) == pytest.approx(1.0)
    assert np.isnan(spearman(np.array([1.0, 1.0]), np.array([1.0, 2.0])))


def test_kendall_by_hand() -> None:
    """Of the six pairs of 1, 3, 2, 4 against 1, 2, 3, 4 five agree and one does not: 4/6."""
    assert kendall(np.array([1, 2, 3, 4]), np.array([1, 3, 2, 4])) == pytest.approx(4 / 6)


def test_a_correlation_over_arms() -> None:
    arms = tuple("abcdef")
    rising = runs({arm: [[i + 1] * 40] * 4 for i, arm in enumerate(arms)}, start="0" * 40)
    assert verdict_of(Correlation(arms, "accuracy", "gain", 0.5, at_least=0.8), rising) == HOLDS
    assert verdict_of(Correlation(arms, "accuracy", "gain", 0.9, at_most=0.5), rising) == FAILS
    with pytest.raises(Missing, match="the same for all arms"):
        Correlation(arms, "start", "gain", 0.5, at_least=0.8).parts(rising)


def test_the_arms_of_x_may_be_others() -> None:
    """Models m1 to m4 with accuracies 1 to 4, policies p1 to p4 with 4 to 1: the correlation is -1."""
    data = runs({f"m{i}": [[i] * 40] * 4 for i in range(1, 5)} | {f"p{i}": [[5 - i] * 40] * 4 for i in range(1, 5)})
    rule = Correlation(
        tuple(f"p{i}" for i in range(1, 5)),
        "accuracy",
        "accuracy",
        0.9,
        at_most=0.7,
        x_of=tuple(f"m{i}" for i in range(1, 5)),
    )
    (part,) = rule.parts(data)
    assert part.mean == pytest.approx(-1.0) and rule.verdict([part]) == HOLDS


def test_the_best_of_several_pays_for_the_choice() -> None:
    """Two candidates, one 0.4 above: its p = 2/70 is doubled for the choice, 4/70 > 0.05: undecided, not held."""
    rule = Best(("a", "c"), "b", "accuracy", 0.03)
    data = runs({"a": HIGH, "c": LOW, "b": LOW})
    (part,) = rule.parts(data)
    assert part.mean == pytest.approx(0.4) and part.p == pytest.approx(4 / 70)
    assert verdict_of(rule, data) == UNDECIDED
    many = runs({"a": [[9] * 40] * 5, "c": [[5] * 40] * 5, "b": [[5] * 40] * 5})  # 2 x 2/252 = 0.016
    assert verdict_of(rule, many) == HOLDS
    assert verdict_of(rule, runs({"a": LOW, "c": LOW, "b": LOW})) == FAILS


def test_agreement_of_two_tasks() -> None:
    """Rankings 1, 2, 3, 4 and 1, 3, 2, 4: 4/6 in every resample of identical seeds."""
    rows = {
        arm: {
            task: [run(arm, s, [value] * 10) for s in range(4)] for task, value in zip(("x", "y"), values, strict=True)
        }
        for arm, values in {"a": (1, 1), "b": (2, 3), "c": (3, 2), "d": (4, 4)}.items()
    }
    rule, data = Agreement(("a", "b", "c", "d"), "accuracy", 0.5), Runs(rows, ("x", "y"))
    (part,) = rule.parts(data)
    assert part.mean == pytest.approx(4 / 6) and rule.verdict([part]) == HOLDS


# ----------------------------------------------------------------------------------------- several rules, and measures


def test_all_of_and_any_of() -> None:
    yes, no = Level("a", "accuracy", at_least=0.8), Level("a", "accuracy", at_least=0.95)
    data = runs({"a": HIGH})
    assert verdict_of(AllOf((yes, yes)), data) == HOLDS and verdict_of(AllOf((yes, no)), data) == FAILS
    assert verdict_of(AnyOf((yes, no)), data) == HOLDS and verdict_of(AnyOf((no, no)), data) == FAILS


def test_too_few_seeds_decide_nothing() -> None:
    """Two seeds that are equal would be equivalent by their interval of width 0."""
    same = Equivalent(Contrast({"a": 1.0, "b": -1.0}), 0.03)
    assert verdict_of(same, runs({"a": LOW[:2], "b": LOW[:2]})) == UNDECIDED


def test_a_check_that_fails_gives_its_own_verdict() -> None:
    claim = Claim("c", "", BETTER, (Level("b", "accuracy", at_least=0.8),), "needs scale")
    study = Study("s", None, "", (), (), "tiny", {}, {}, None, None, (claim,), "sha")
    (one,) = judge(study, runs({"a": HIGH, "b": LOW}))
    assert one.verdict == "needs scale" and "accuracy of b is 0.5" in one.why


def test_the_gain_is_over_the_tasks_that_were_answered_at_the_start() -> None:
    """Four tasks at the end, the first two at the start: (1.0 - 1) and (0.5 - 0), not the other two."""
    row = run("a", 0, [10, 5, 0, 0], start="10")
    data = Runs({"a": {"add": [row]}}, ("add",))
    assert data.matrix("a", "gain").tolist() == [[0.0, 0.5]]


def test_the_fall_is_not_the_luck_of_the_highest_point() -> None:
    """Tasks 0 and 2 choose the highest point for tasks 1 and 3, and the other way round.

    Points 1010, 0101, and the end 0000: by tasks 0, 2 the first point is the highest, where tasks 1, 3 have 0, as at
    the end; by tasks 1, 3 the second is, where tasks 0, 2 have 0. No fall, though every point looks 50 points high.
    """
    marks = tuple(Mark(i, float(i), 0.5, right) for i, right in enumerate(("1010", "0101")))
    end = Mark(2, 2.0, 0.0)
    row = run("a", 0, [0, 0, 0, 0])
    data = Runs({"a": {"add": [RunResult(**{**vars(row), "curve": (*marks, end)})]}}, ("add",))
    assert data.matrix("a", "fall").tolist() == [[0.0]]
    real = tuple(Mark(i, float(i), 0.5, right) for i, right in enumerate(("1111", "0000")))
    data = Runs({"a": {"add": [RunResult(**{**vars(row), "curve": (*real, end)})]}}, ("add",))
    assert data.matrix("a", "fall").tolist() == [[1.0]]


def test_measures_of_recorded_metrics_and_probes() -> None:
    """20 values 0, 1, ..., 19: a tenth are two, so the end is 18.5, the start 0.5, the change 18."""
    more = {"recorded": {"m": tuple(float(i) for i in range(20))}, "probed": {"kinds": (1.0, 3.0)}}
    data = runs({"a": [[5, 5]]}, **more)
    values = {name: float(data.matrix("a", f"m@{name}")[0, 0]) for name in ("start", "end", "change", "max", "mean")}
    assert values == {"start": 0.5, "end": 18.5, "change": 18.0, "max": 19.0, "mean": 9.5}
    assert data.matrix("a", "kinds").tolist() == [[1.0, 3.0]]
    with pytest.raises(Missing, match="have no 'other'; besides the accuracy there are kinds, m@end"):
        data.matrix("a", "other")
    data = Runs({"a": {"add": [run("a", 0, [5], **more), run("a", 1, [5])]}}, ("add",))
    for measure in ("m@end", "kinds"):  # which only one of two runs has
        with pytest.raises(Missing, match=f"have no {measure!r}; besides the accuracy there are kinds, m@end"):
            data.matrix("a", measure)


def test_after_and_reach() -> None:
    """The metric is 1 at step 2, when the curve is at 0.4; it ends at 0.9: 0.5 more. 0.65 is reached at 60 of 100."""
    curve = (Mark(0, 0.0, 0.2), Mark(2, 40.0, 0.4), Mark(4, 80.0, 0.9))
    row = RunResult(**{**vars(run("a", 0, [5])), "curve": curve, "recorded": {"m": (0.5, 1.0, 1.0, 1.0)}})
    data = Runs({"a": {"add": [row]}}, ("add",))
    assert data.matrix("a", "after(m, 0.99)")[0, 0] == pytest.approx(0.5)
    assert data.matrix("a", "reach(0.65)")[0, 0] == pytest.approx(0.6)
    assert data.matrix("a", "reach(0.95)")[0, 0] == 1.0


def test_one_number_a_run_is_averaged_over_the_tasks() -> None:
    """Runs with 1 and 3 on two tasks: one column of 2, not two columns that would be resampled as a sample of tasks."""
    rows = {"a": {task: [run("a", 0, [5], probed={"n": (value,)})] for task, value in (("x", 1.0), ("y", 3.0))}}
    assert Runs(rows, ("x", "y")).matrix("a", "n").tolist() == [[2.0]]
    assert Runs(rows, ("x", "y")).matrix("a", "n", "y").tolist() == [[3.0]]


def test_the_forest_plot_has_the_claim_at_one_and_its_failure_at_zero() -> None:
    """A loss of 7 points between a margin of 5 and a failure at 10: (-0.07 + 0.10) / (-0.05 + 0.10) = 0.6."""
    rule = NoWorse(Contrast({"a": 1.0, "b": -1.0}), 0.05, 0.10)
    (part,) = rule.parts(runs({"a": [[43] * 40] * 4, "b": [[50] * 40] * 4}, replies=100))
    assert placed(part, part.mean) == pytest.approx(0.6)
    weak, strong = Level("a", "accuracy", at_least=0.9), Level("a", "accuracy", at_least=0.1)
    parts = tuple(part for level in (weak, strong) for part in level.parts(runs({"a": [[5] * 40] * 4})))
    of_all = Verdict(Claim("c", "", AllOf((weak, strong))), UNDECIDED, parts)
    of_any = Verdict(Claim("c", "", AnyOf((weak, strong))), UNDECIDED, parts)
    assert deciding(of_all) == parts[0] and deciding(of_any) == parts[1]
