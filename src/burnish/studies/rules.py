"""Decision rules: what is measured on the runs of a study, and which verdict follows from it.

A rule first measures its parts, each an estimate with a 95% interval, the 90% interval of equivalence and, where it
tests a difference, a p-value. The p-values of all claims of a study are corrected together (Holm). Then the rule gives
a verdict; nothing else does.

    holds               the effect is as large as the margin, and significant
    does not hold here  the 90% interval lies within the margin on both sides, or the effect is significant the other
                        way round
    undecided           anything else
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from burnish.compare.board import LEVEL
from burnish.compare.statistics import interval, paired_test, signed_test
from burnish.studies.measures import Runs

HOLDS, FAILS, UNDECIDED, SCALE = "holds", "does not hold here", "undecided", "needs scale"
VERDICTS = (HOLDS, FAILS, UNDECIDED, SCALE)
TINY = 1e-9  # of rounding
WITHIN = 0.90  # the level of the interval of an equivalence test: two one-sided tests of 5% each


@dataclass(frozen=True)
class Part:
    """One estimate. unit: points, ratio, share, rank or number; p: before Holm's correction, None without a test.

    zero, one  where the forest plot has its 0 (no effect) and its 1 (enough for the claim)
    """

    what: str
    mean: float
    low: float
    high: float
    low90: float
    high90: float
    unit: str = "points"
    p: float | None = None
    adjusted: float | None = None
    least: float = 0.0
    zero: float = 0.0
    one: float = 1.0

    @property
    def significant(self) -> bool:
        return self.adjusted is not None and self.adjusted <= LEVEL

    def inside(self, margin: float) -> bool:
        """Whether the 90% interval lies within the margin on both sides of 0."""
        return -margin < self.low90 and self.high90 < margin


class Rule(Protocol):
    """What a claim is decided by."""

    @property
    def arms(self) -> tuple[str, ...]: ...

    def parts(self, runs: Runs) -> list[Part]:
        """What is measured."""
        ...

    def verdict(self, parts: Sequence[Part]) -> str:
        """What follows from it."""
        ...

    def said(self) -> str:
        """The rule as a sentence."""
        ...


@dataclass(frozen=True)
class Contrast:
    """The weighted sum of the arms' means: {a: 1, b: -1} is a less b, and one arm alone is its mean."""

    weights: Mapping[str, float]
    measure: str = "accuracy"

    @property
    def arms(self) -> tuple[str, ...]:
        return tuple(self.weights)

    def part(self, runs: Runs, one: float) -> Part:
        matrices = runs.together(self.arms, self.measure)
        total = sum(weight * x for weight, x in zip(self.weights.values(), matrices, strict=True))
        pair = list(self.weights.values()) == [1.0, -1.0]
        test = paired_test(*matrices) if pair else signed_test(total)
        near, mean = interval(total, bounds=None, level=WITHIN), test.difference
        unit = unit_of(self.measure)
        return Part(
            str(self), mean.mean, mean.low, mean.high, near.low, near.high, unit, test.p, None, test.least, 0.0, one
        )

    def __str__(self) -> str:
        words = ""
        for arm, weight in self.weights.items():
            sign = " - " if weight < 0 else " + " if words else ""
            size = "" if abs(weight) == 1 else f"{abs(weight):g} "
            words += f"{sign.strip() if not words and sign else sign}{size}{arm}"
        return words if self.measure == "accuracy" else f"{self.measure}: {words}"


@dataclass(frozen=True)
class OfContrast:
    """What is decided by one contrast beside a margin."""

    contrast: Contrast
    margin: float

    @property
    def arms(self) -> tuple[str, ...]:
        return self.contrast.arms

    def parts(self, runs: Runs) -> list[Part]:
        return [self.contrast.part(runs, self.margin)]


class Difference(OfContrast):
    """`contrast` is at least `margin`."""

    def verdict(self, parts: Sequence[Part]) -> str:
        (part,) = parts
        if part.mean >= self.margin - TINY and part.significant:
            return HOLDS
        return FAILS if part.inside(self.margin) or (part.mean < 0 and part.significant) else UNDECIDED

    def said(self) -> str:
        d = amount(self.margin, unit_of(self.contrast.measure))
        return (
            f"{self.contrast} is at least {d} (p <= 0.05 after Holm's correction); it does not hold if the 90% "
            f"interval lies within {d} of 0, or the sign is the opposite with p <= 0.05"
        )


class Equivalent(OfContrast):
    """`contrast` is within `margin` of 0."""

    def verdict(self, parts: Sequence[Part]) -> str:
        (part,) = parts
        if part.inside(self.margin):
            return HOLDS
        return FAILS if abs(part.mean) >= self.margin - TINY and part.significant else UNDECIDED

    def said(self) -> str:
        d = amount(self.margin, unit_of(self.contrast.measure))
        return (
            f"the 90% interval of {self.contrast} lies within {d} of 0; it does not hold if the difference is {d} or "
            "more with p <= 0.05 after Holm's correction"
        )


@dataclass(frozen=True)
class NoWorse(OfContrast):
    """`contrast` costs at most `margin`, that is, it is above -margin; it fails where it costs `fails` or more."""

    fails: float

    def parts(self, runs: Runs) -> list[Part]:
        return [replace(self.contrast.part(runs, -self.margin), zero=-self.fails)]

    def verdict(self, parts: Sequence[Part]) -> str:
        (part,) = parts
        if part.low90 > -self.margin:
            return HOLDS
        return FAILS if part.mean <= TINY - self.fails and part.significant else UNDECIDED

    def said(self) -> str:
        unit = unit_of(self.contrast.measure)
        return (
            f"the lower end of the 90% interval of {self.contrast} is above -{amount(self.margin, unit)}; it does not "
            f"hold if it is -{amount(self.fails, unit)} or less with p <= 0.05 after Holm's correction"
        )


@dataclass(frozen=True)
class Level:
    """The mean of a measure over one arm's runs is at least, or at most, a number."""

    arm: str
    measure: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def arms(self) -> tuple[str, ...]:
        return (self.arm,)

    def parts(self, runs: Runs) -> list[Part]:
        x = runs.matrix(self.arm, self.measure)
        wide, near = interval(x, bounds=None), interval(x, bounds=None, level=WITHIN)
        unit = unit_of(self.measure)
        return [Part(str(self), wide.mean, wide.low, wide.high, near.low, near.high, unit, one=self.bound)]

    @property
    def bound(self) -> float:
        bound = self.at_least if self.at_least is not None else self.at_most
        assert bound is not None
        return bound

    def met(self, value: float) -> bool:
        return value >= self.bound if self.at_least is not None else value <= self.bound

    def verdict(self, parts: Sequence[Part]) -> str:
        (part,) = parts
        ends = [self.met(part.low), self.met(part.high)]
        return HOLDS if all(ends) else FAILS if not any(ends) else UNDECIDED

    def __str__(self) -> str:
        return f"{self.measure} of {self.arm}"

    def said(self) -> str:
        side = "at least" if self.at_least is not None else "at most"
        return (
            f"{self} is {side} {amount(self.bound, unit_of(self.measure))}: both ends of the 95% interval are; it does "
            "not hold if neither is"
        )


@dataclass(frozen=True)
class Several:
    """Several rules, each on its own parts."""

    rules: tuple[Rule, ...] = field(default_factory=tuple)

    @property
    def arms(self) -> tuple[str, ...]:
        return tuple(arm for rule in self.rules for arm in rule.arms)

    def parts(self, runs: Runs) -> list[Part]:
        return [part for rule in self.rules for part in rule.parts(runs)]


class AllOf(Several):
    """Every one of several rules holds; one that fails is enough for the claim to fail."""

    def verdict(self, parts: Sequence[Part]) -> str:
        each = verdicts(self.rules, parts)
        return FAILS if FAILS in each else HOLDS if all(one == HOLDS for one in each) else UNDECIDED

    def said(self) -> str:
        return "all of: " + "; and ".join(rule.said() for rule in self.rules)


class AnyOf(Several):
    """At least one of several rules holds; the claim fails where all of them do."""

    def verdict(self, parts: Sequence[Part]) -> str:
        each = verdicts(self.rules, parts)
        return HOLDS if HOLDS in each else FAILS if all(one == FAILS for one in each) else UNDECIDED

    def said(self) -> str:
        return "any of: " + "; or ".join(rule.said() for rule in self.rules)


def count(rule: Rule) -> int:
    """How many parts a rule measures."""
    return sum(map(count, rule.rules)) if isinstance(rule, Several) else 1


def verdicts(rules: Sequence[Rule], parts: Sequence[Part]) -> list[str]:
    """The verdict of each rule on its own parts."""
    each, at = [], 0
    for rule in rules:
        each.append(rule.verdict(parts[at : at + count(rule)]))
        at += count(rule)
    return each


def unit_of(measure: str) -> str:
    """points of a share, number of anything else."""
    shares = ("accuracy", "start", "gain", "fall")
    heads = ("accuracy on ", "pass@", "after(", "maj@", "share", "ranked_", "dip")
    return "points" if measure in shares or measure.startswith(heads) else "number"


def amount(value: float, unit: str) -> str:
    """A number in its unit."""
    return f"{100 * value:.3g} points" if unit == "points" else f"{value:.3g}"
