"""Scores of a reply relative to the other replies of its group, and scores less a price for length."""

from __future__ import annotations

from collections.abc import Callable

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.score.lengths import reply_length

Preference = Callable[[float, float], float]  # (score of y, score of y') -> P(y preferred to y')


@supplies("score:wins")
def win_rates(preference: Preference, *, score: str = "reward", own: str | None = None) -> Part:
    """scores["wins"] = the mean over the replies y' of the group of P(y > y').

    The reply itself is among them and counts 1/2.

    own  only the replies by this author are opponents: r(y) = E over y' ~ policy of P(y > y')
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            rivals = [t.scores[score] for t in group.traces if own is None or bool(t.by(own).any())]
            for trace in group.traces:
                wins = [preference(trace.scores[score], rival) for rival in rivals]
                trace.scores["wins"] = sum(wins) / max(1, len(wins))
        return groups

    return Part(name="win_rates", call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"score:wins"}))


@supplies("score:net")
def less_length(price: float, *, score: str = "reward", author: str = "policy") -> Part:
    """scores["net"] = score - price |y|, |y| the tokens of the reply: RLHFlow's length penalty (arXiv 2405.07863)."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.scores["net"] = trace.scores[score] - price * reply_length(trace, author)

    return per_trace(
        write,
        name=f"less_length({price:g})",
        reads=frozenset({f"score:{score}", f"tokens:{author}"}),
        writes=frozenset({"score:net"}),
    )


@supplies("score:gap")
def mean_logp_of(who: str, *, author: str = "demo") -> Part:
    """scores["gap"] = the mean log-prob that a model gives to the author's tokens: how well it knows the reply."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        masks = [trace.by(author) for trace in traces]
        found = step.models[who].streams(traces, masks, {"logp"}, step.settings.token_budget)
        for trace, mask, output in zip(traces, masks, found, strict=True):
            trace.scores["gap"] = float(output["logp"][mask].mean()) if "logp" in output else 0.0
        return groups

    return Part(
        name=f"mean_logp_of({who})",
        call=call,
        reads=frozenset({f"tokens:{author}", f"model:{who}.logp"}),
        writes=frozenset({"score:gap"}),
    )


@supplies("score:gap")
def as_gap(score: str = "reward") -> Part:
    """scores["gap"] = another score."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.scores["gap"] = trace.scores[score]

    return per_trace(write, name="as_gap", reads=frozenset({f"score:{score}"}), writes=frozenset({"score:gap"}))
