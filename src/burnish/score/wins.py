"""Scores of a reply relative to the other replies of its group, and scores less a price for length."""

from __future__ import annotations

from burnish.core.parts import Part, supplies
from burnish.core.preferences import FromScores, chance
from burnish.core.step import Step
from burnish.core.types import Group


@supplies("score:wins")
def win_rates(preference: FromScores, *, score: str = "reward", own: str | None = None) -> Part:
    """scores["wins"] = the mean over the replies y' of the group of P(y > y').

    The reply itself is among them and counts 1/2. P is that of the run's oracle; without one, of the two scores.

    own  only the replies by this author are opponents: r(y) = E over y' ~ policy of P(y > y')
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            rivals = [t for t in group.traces if own is None or bool(t.by(own).any())]
            for trace in group.traces:
                wins = [chance(trace, rival, preference, score) for rival in rivals]
                trace.scores["wins"] = sum(wins) / max(1, len(wins))
        return groups

    return Part(name="win_rates", call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"score:wins"}))
