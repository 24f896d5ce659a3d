"""Format comparison results: numbers, verdicts and warnings that claim no more than the tests show."""

from __future__ import annotations

import math

from burnish.compare.board import LEVEL, Board, Pair, Standing
from burnish.compare.budget import written
from burnish.evals.better import better_is_lower
from burnish.evals.evaluate import Interval


def number(value: float, percent: bool) -> str:
    """Format a score: 91.2% or 0.412."""
    if math.isnan(value):
        return "-"
    return f"{100 * value:.1f}%" if percent else f"{value:.3f}"


def ranged(value: Interval, percent: bool) -> str:
    """Format an interval: low to high."""
    return f"{number(value.low, percent)} to {number(value.high, percent)}"


def gap(value: Interval, percent: bool) -> str:
    """Format a difference with its interval: +3.2 [-1.0, +7.1]."""
    if percent:
        return f"{100 * value.mean:+.1f} [{100 * value.low:+.1f}, {100 * value.high:+.1f}]"
    return f"{value.mean:+.3f} [{value.low:+.3f}, {value.high:+.3f}]"


def p_value(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def verdict(pair: Pair, board: Board) -> str:
    """The result of a pair's test, in words."""
    if not pair.distinct:
        return "not distinguishable" if board.seeds_needed() is None else "too few seeds to tell"
    better = pair.a if (pair.test.difference.mean > 0) != lower_is_better(board) else pair.b
    return f"{better} is better"


def against(one: Standing, board: Board) -> str:
    """A candidate compared with the baseline: better, worse, or not distinguishable."""
    best = board.against == board.standings[0].label
    if one.label == board.against:
        return "best" if best and len(board.standings) > 1 else "-"
    pair = board.pair(one.label, board.against)
    if pair is None:
        return "not tested"
    if pair.test.difference.mean == 0:
        return "the same"
    if not pair.distinct:
        text = verdict(pair, board)
        return text if text.startswith("too few") else f"{text}, {p_value(pair.adjusted)}"
    better = verdict(pair, board).startswith(f"{one.label} is")
    return f"{'better' if better else 'worse'}, {p_value(pair.adjusted)}"


def against_whom(board: Board) -> str:
    """The header of the column that `against` fills."""
    return "against the best" if board.against == board.standings[0].label else f"against {board.against}"


def lower_is_better(board: Board) -> bool:
    return better_is_lower(board.measure)


def reach(one: Standing, board: Board) -> str:
    """Median budget used to reach the threshold, and how many seeds reached it."""
    if board.threshold is None or not one.reach:
        return "-"
    reached = sum(amount is not None for amount in one.reach)
    median = one.reached()
    text = written(median) if median is not None else "not reached"
    return text if reached == len(one.reach) else f"{text} ({reached} of {len(one.reach)} seeds)"


def spread(one: Standing, board: Board) -> str:
    """The scores of the lowest and the highest seed."""
    if len(one.by_seed) < 2:
        return "one seed"
    return f"{number(min(one.by_seed), board.percent)} to {number(max(one.by_seed), board.percent)}"


def cautions(board: Board) -> list[str]:
    """Warnings about the reliability of the table."""
    warnings = []
    seeds = min(len(one.rows) for one in board.standings)
    needed = board.seeds_needed()
    if seeds == 1:
        warnings.append(
            "One seed: the intervals apply to these runs only, and no difference between methods can be shown."
        )
    elif needed is not None:
        many = f" among {len(board.pairs)} comparisons" if len(board.pairs) > 1 else ""
        warnings.append(
            f"{seeds} seeds cannot show any difference at {LEVEL:.0%}{many}; take --seeds {needed} or more."
        )
    warnings += _overspent(board)
    if board.percent and sum(one.value.mean > 0.97 for one in board.standings) > 1:
        warnings.append(
            "More than one candidate is near 100%: a harder task, or a smaller budget, would distinguish them."
        )
    if failures := len(board.failures):
        warnings.append(f"{failures} run{'s' if failures > 1 else ''} failed and {_is(failures)} excluded; see below.")
    return warnings


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _overspent(board: Board) -> list[str]:
    over = {one.label: _over(one, board) for one in board.standings if _over(one, board) > 1.15}
    if not over:
        return []
    names = "All candidates" if len(over) == len(board.standings) > 1 else ", ".join(over)
    low, high = min(over.values()), max(over.values())
    times = f"{high:.2f}" if high - low < 0.05 else f"{low:.2f} to {high:.2f}"
    whose = "its" if len(over) == 1 else "their"
    return [f"{names} used {times} times {whose} budget: a run ends with a whole step, and {whose} steps are large."]


def _over(one: Standing, board: Board) -> float:
    return one.cost(board.budget.unit) / board.budget.limit


def method_note(board: Board) -> str:
    """Task, budget, seeds and evaluation of the comparison in one line."""
    tasks = board.standings[0].scores.shape[1]
    replies = max(row.replies for one in board.standings for row in one.rows)
    seeds = max(len(one.rows) for one in board.standings)
    evaluation = f"{tasks} held-out tasks x {replies} replies" if replies else "held-out data"
    return f"{board.task}, {board.budget} a run, {seeds} seed{'s' if seeds > 1 else ''}, {evaluation}"
