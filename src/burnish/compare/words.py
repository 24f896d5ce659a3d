"""How results are put: numbers as people write them, and sentences that claim no more than was shown."""

from __future__ import annotations

import math

from burnish.compare.board import LEVEL, Board, Pair, Standing
from burnish.compare.budget import written
from burnish.report.numbers import better_is_lower
from burnish.run.evaluate import Interval


def number(value: float, percent: bool) -> str:
    """A score: 91.2% or 0.412."""
    if math.isnan(value):
        return "-"
    return f"{100 * value:.1f}%" if percent else f"{value:.3f}"


def ranged(value: Interval, percent: bool) -> str:
    """low to high."""
    return f"{number(value.low, percent)} to {number(value.high, percent)}"


def gap(value: Interval, percent: bool) -> str:
    """A difference with its interval: +3.2 [-1.0, +7.1] points."""
    if percent:
        return f"{100 * value.mean:+.1f} [{100 * value.low:+.1f}, {100 * value.high:+.1f}]"
    return f"{value.mean:+.3f} [{value.low:+.3f}, {value.high:+.3f}]"


def p_value(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def verdict(pair: Pair, board: Board) -> str:
    """What a pair shows, in words."""
    if not pair.distinct:
        return "not distinguishable" if board.seeds_needed() is None else "too few seeds to tell"
    better = pair.a if (pair.test.difference.mean > 0) != lower_is_better(board) else pair.b
    return f"{better} is better"


def against(one: Standing, board: Board) -> str:
    """A candidate beside the one that it is tested against: better, worse, or can nobody tell?"""
    best = board.against == board.standings[0].label
    if one.label == board.against:
        return "best" if best and len(board.standings) > 1 else "-"
    pair = board.pair(one.label, board.against)
    if pair is None:
        return "not tested"
    if pair.test.difference.mean == 0:
        return "the same"
    if not pair.distinct:
        said = verdict(pair, board)
        return said if said.startswith("too few") else f"{said}, {p_value(pair.adjusted)}"
    better = verdict(pair, board).startswith(f"{one.label} is")
    return f"{'better' if better else 'worse'}, {p_value(pair.adjusted)}"


def against_whom(board: Board) -> str:
    """The head of that column."""
    return "against the best" if board.against == board.standings[0].label else f"against {board.against}"


def lower_is_better(board: Board) -> bool:
    return better_is_lower(board.measure)


def reach(one: Standing, board: Board) -> str:
    """What it took to come to the threshold, and how many seeds did."""
    if board.threshold is None or not one.reach:
        return "-"
    came = sum(taken is not None for taken in one.reach)
    middle = one.reached()
    amount = written(middle) if middle is not None else "not reached"
    return amount if came == len(one.reach) else f"{amount} ({came} of {len(one.reach)} seeds)"


def spread(one: Standing, board: Board) -> str:
    """The lowest and the highest seed."""
    if len(one.by_seed) < 2:
        return "one seed"
    return f"{number(min(one.by_seed), board.percent)} to {number(max(one.by_seed), board.percent)}"


def cautions(board: Board) -> list[str]:
    """What a reader must know before believing the table."""
    found = []
    seeds = min(len(one.rows) for one in board.standings)
    needed = board.seeds_needed()
    if seeds == 1:
        found.append(
            "One seed: the intervals speak of these runs alone, and no difference between methods can be shown."
        )
    elif needed is not None:
        many = f" among {len(board.pairs)} comparisons" if len(board.pairs) > 1 else ""
        found.append(f"{seeds} seeds cannot show any difference at {LEVEL:.0%}{many}; take --seeds {needed} or more.")
    found += _overspent(board)
    if board.percent and sum(one.value.mean > 0.97 for one in board.standings) > 1:
        found.append("More than one candidate is near 100%: a harder task, or a smaller budget, would tell them apart.")
    if lost := len(board.failures):
        found.append(
            f"{lost} run{'s' if lost > 1 else ''} failed and count{'' if lost > 1 else 's'} nowhere; see below."
        )
    return found


def _overspent(board: Board) -> list[str]:
    late = {one.label: _over(one, board) for one in board.standings if _over(one, board) > 1.15}
    if not late:
        return []
    who = "All candidates" if len(late) == len(board.standings) > 1 else ", ".join(late)
    low, high = min(late.values()), max(late.values())
    times = f"{high:.2f}" if high - low < 0.05 else f"{low:.2f} to {high:.2f}"
    whose = "its" if len(late) == 1 else "their"
    return [f"{who} used {times} times {whose} budget: a run ends with a whole step, and {whose} steps are large."]


def _over(one: Standing, board: Board) -> float:
    return one.cost(board.budget.unit) / board.budget.limit


def method_note(board: Board) -> str:
    """One line on how the numbers came about."""
    tasks = board.standings[0].scores.shape[1]
    replies = max(row.replies for one in board.standings for row in one.rows)
    seeds = max(len(one.rows) for one in board.standings)
    asked = f"{tasks} held-out tasks x {replies} replies" if replies else "held-out data"
    return f"{board.task}, {board.budget} a run, {seeds} seed{'s' if seeds > 1 else ''}, {asked}"
