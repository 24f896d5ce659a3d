"""A held-out outcome in words: the measure first, then what was measured beside it, and how many replies were cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from burnish.evals.better import ACCURACY, GREEDY, REWARD, SAMPLED, SUCCESS, is_share, label, written

if TYPE_CHECKING:
    from burnish.evals.evaluate import Interval
    from burnish.evals.heldout import Outcome, Sampled

BESIDE = ("margin", "perplexity", SAMPLED, ACCURACY)  # of Outcome.also, what stands on the line of the measure
CUT_MANY = 0.05  # a larger share of replies that are cut is worth a word about the limit


def measured(before: Outcome | None, after: Outcome) -> list[str]:
    """The measure on the first line, then what was measured beside it."""
    name, several = after.measure, after.sampled
    rows: list[tuple[str, Interval | None, Interval]] = [(name, before.value if before else None, after.value)]
    greedy = GREEDY.get(name, ACCURACY)
    if after.greedy is not None and greedy != name:
        rows.append((greedy, before.greedy if before else None, after.greedy))
    if several is not None and greedy == ACCURACY:
        first = before.sampled if before else None
        if name != SAMPLED:
            rows.append((SAMPLED, first.accuracy if first else None, several.accuracy))
        if several.k > 1:
            rows.append((f"pass@{several.k} {SAMPLED}", first.passed if first else None, several.passed))
            rows.append((f"majority@{several.k} {SAMPLED}", first.majority if first else None, several.majority))
    lines = []
    for i, (title, was, now) in enumerate(rows):
        reached = interval_of(title, now) + ("" if i else _ties(after))
        start = interval_of(title, was) + ("" if i or not before else _ties(before)) if was else ""
        changed = f"{start} -> {reached}" if was else reached
        lines.append(f"held-out {named(title, several)}: {changed}" + (f", {_gain(title, was, now)}" if was else ""))
    old = before.also if before else {}
    told = []
    for key in (one for one in BESIDE if one in after.also):
        start = f"{written(key, old[key])} -> " if key in old else ""
        told.append(f"{label(key)} {start}{written(key, after.also[key])}")
    lines[0] = ", ".join([lines[0], *told])
    return lines


def named(name: str, several: Sampled | None) -> str:
    """The name of a measure with how replies were sampled: "accuracy, sampled at temperature 1"."""
    at = f" at temperature {several.temperature:g}" if several else ""
    if name.endswith(SAMPLED):
        return f"{name.removesuffix(SAMPLED).strip() or 'accuracy'}, sampled{at}"
    return f"{name}, sampled{at}" if name in (REWARD, SUCCESS) and several else label(name)


def _gain(name: str, was: Interval, now: Interval) -> str:
    gain = now.mean - was.mean
    return f"{100 * gain:+.1f} points" if is_share(name) else f"{gain:+.3f}"


def cut(before: Outcome | None, after: Outcome, longest: int) -> list[str]:
    """How many replies of the evaluation ran into the limit; nothing where none did."""
    was, now = (before.also.get("cut_off", 0.0) if before else 0.0), after.also.get("cut_off", 0.0)
    if not was and not now:
        return []
    share = f"{was:.1%} -> {now:.1%}" if before else f"{now:.1%}"
    remedy = "; they have no end to judge: raise --max-new-tokens" if now > CUT_MANY else ""
    return [f"replies cut at {longest or '--max-new-tokens'} tokens: {share}{remedy}"]


def estimate(outcome: Outcome) -> str:
    """A held-out score with its interval, if it has one, and the share of ties, if there are any."""
    return f"{interval_of(outcome.name, outcome.value)}{_ties(outcome)}"


def _ties(outcome: Outcome) -> str:
    return f" ({outcome.also['ties']:.0%} ties)" if outcome.also.get("ties") else ""


def interval_of(name: str, value: Interval) -> str:
    """A value with its interval, if it has one."""
    if value.low == value.high:
        return written(name, value.mean)
    return f"{written(name, value.mean)} [{written(name, value.low)}, {written(name, value.high)}]"
