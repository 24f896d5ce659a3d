"""Rules as a claim file writes them: {difference: {of: clean, less: noisy, margin: 0.05}}."""

from __future__ import annotations

from collections.abc import Callable

from burnish.studies.fields import Fields
from burnish.studies.relations import Agreement, Best, Correlation, Ratio, Share
from burnish.studies.rules import AllOf, AnyOf, Contrast, Difference, Equivalent, Level, NoWorse, Rule

_PAIR = ("of", "less", "contrast", "measure", "margin")


def read_rule(stored: object, where: str) -> Rule:
    """The rule of a mapping with one key, its kind."""
    kinds = (*_KINDS, "all", "any")
    fields = Fields.of(f"{where}: the rule", stored, kinds)
    if len(fields.values) != 1:
        raise ValueError(f"{where}: the rule should name one kind: {', '.join(kinds)}")
    kind, value = next(iter(fields.values.items()))
    if kind in ("all", "any"):
        if not isinstance(value, list) or not value:
            raise ValueError(f"{where}: `{kind}:` should be a list of rules")
        rules = tuple(read_rule(one, where) for one in value)
        return AllOf(rules) if kind == "all" else AnyOf(rules)
    return _KINDS[kind](value, f"{where}: the rule `{kind}`")


def read_level(stored: object, where: str) -> Level:
    """The mean of a measure of one arm, and a bound."""
    fields = Fields.of(where, stored, ("arm", "measure", "at_least", "at_most"))
    _one_bound(fields)
    return Level(
        fields.text("arm"), fields.text("measure", "accuracy"), fields.optional("at_least"), fields.optional("at_most")
    )


def _contrast(fields: Fields) -> Contrast:
    measure = fields.text("measure", "accuracy")
    if ("contrast" in fields.values) == ("of" in fields.values):
        raise ValueError(
            f"{fields.where} needs either `of:` and `less:`, two arms, or `contrast:` with arms and weights"
        )
    if "of" in fields.values:
        weights = {fields.text("of"): 1.0}
        return Contrast(weights | ({fields.text("less"): -1.0} if "less" in fields.values else {}), measure)
    inner = Fields.of(f"{fields.where}: `contrast`", fields.values["contrast"])
    return Contrast({name: inner.number(name) for name in inner.values}, measure)


def _margin(fields: Fields) -> float:
    margin = fields.number("margin")
    if margin <= 0:
        raise ValueError(f"{fields.where}: the margin is {margin:g}; it must be above 0 (0.03 is 3 points)")
    return margin


def _difference(stored: object, where: str) -> Rule:
    fields = Fields.of(where, stored, _PAIR)
    return Difference(_contrast(fields), _margin(fields))


def _equivalent(stored: object, where: str) -> Rule:
    fields = Fields.of(where, stored, _PAIR)
    return Equivalent(_contrast(fields), _margin(fields))


def _no_worse(stored: object, where: str) -> Rule:
    fields = Fields.of(where, stored, (*_PAIR, "fails"))
    margin, fails = _margin(fields), fields.number("fails")
    if fails < margin:
        raise ValueError(f"{where}: it fails at a loss of {fails:g}, which is below its margin of {margin:g}")
    return NoWorse(_contrast(fields), margin, fails)


def _ratio(stored: object, where: str) -> Rule:
    fields = Fields.of(where, stored, ("of", "to", "measure", "holds", "fails"))
    numbers = fields.number("holds"), fields.number("fails")
    return Ratio(fields.text("of"), fields.text("to"), fields.text("measure", "gain"), *numbers)


def _share(stored: object, where: str) -> Rule:
    fields = Fields.of(where, stored, ("of", "measure", "at_least", "at_most", "holds"))
    _one_bound(fields)
    return Share(
        fields.texts("of"),
        fields.text("measure", "accuracy"),
        fields.number("holds"),
        fields.optional("at_least"),
        fields.optional("at_most"),
    )


def _correlation(stored: object, where: str) -> Rule:
    fields = Fields.of(where, stored, ("of", "x", "y", "at_least", "at_most", "bound", "x_of"))
    _one_bound(fields)
    arms = fields.texts("of")
    if len(arms) < 4:
        raise ValueError(f"{where} has {len(arms)} arms; a correlation over fewer than 4 says nothing")
    others = fields.texts("x_of")
    if others and len(others) != len(arms):
        raise ValueError(f"{where}: `x_of` has {len(others)} arms and `of` has {len(arms)}; there is one for each")
    return Correlation(
        arms,
        fields.text("x"),
        fields.text("y"),
        fields.number("bound"),
        fields.optional("at_least"),
        fields.optional("at_most"),
        others,
    )


def _best(stored: object, where: str) -> Rule:
    fields = Fields.of(where, stored, ("of", "against", "measure", "margin"))
    return Best(fields.texts("of"), fields.text("against"), fields.text("measure", "accuracy"), _margin(fields))


def _agreement(stored: object, where: str) -> Rule:
    fields = Fields.of(where, stored, ("of", "measure", "holds", "fails"))
    measure = fields.text("measure", "accuracy")
    return Agreement(fields.texts("of"), measure, fields.number("holds"), fields.number("fails", 0.0))


def _one_bound(fields: Fields) -> None:
    if ("at_least" in fields.values) == ("at_most" in fields.values):
        raise ValueError(f"{fields.where} needs either `at_least:` or `at_most:`, with a number")


_KINDS: dict[str, Callable[[object, str], Rule]] = {
    "difference": _difference,
    "equivalent": _equivalent,
    "no_worse": _no_worse,
    "ratio": _ratio,
    "level": read_level,
    "share": _share,
    "correlation": _correlation,
    "best": _best,
    "agreement": _agreement,
}
