"""Advantages in a game of preferences: how often a reply beats the opponent's, less the regulariser still to come."""

from __future__ import annotations

from functools import partial

import torch

from burnish.core.parts import Part, supplies
from burnish.core.preferences import FromScores, chance
from burnish.core.schedules import Schedule, at, is_zero
from burnish.core.step import Step
from burnish.core.types import Group


@supplies("stream:adv")
def nash_advantage(
    preference: FromScores, tau: Schedule | None, *, rival: str, author: str = "policy", score: str = "reward"
) -> Part:
    """A_t = P(y > y') - 1/2 - tau sum over m >= t of log pi(y_m)/ref(y_m), as stream "adv" on the author's tokens.

    P is the mean over the group's traces by the rival, of an oracle's chances or of what `preference` makes of scores.
    The log-ratio is that of streams "old" and "ref": the tokens from t on are those that token t can still influence
    (Munos et al., arXiv 2312.00886, appendix F.2). With tau None there is no regulariser and no reference is asked for.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            rivals = [trace for trace in group.traces if bool(trace.by(rival).any())]
            for trace in group.traces:
                adv = torch.full((len(trace),), float("nan"))
                mask = trace.by(author)
                if bool(mask.any()):
                    wins = sum(chance(trace, other, preference, score) for other in rivals) / len(rivals)
                    adv[mask] = wins - 0.5
                    if tau is not None:
                        logratio = (trace.streams["old"] - trace.streams["ref"])[mask]
                        adv[mask] -= at(tau, step.clock) * logratio.flip(0).cumsum(0).flip(0)
                    step.notes.add("wins", wins)
                trace.streams["adv"] = adv
        return groups

    compared = frozenset({"stream:old", "stream:ref"}) if tau is not None else frozenset()
    unregularised = partial(nash_advantage, preference, rival=rival, author=author, score=score)
    return Part(
        name=f"nash_advantage(against {rival})",
        call=call,
        reads=frozenset({f"score:{score}", f"tokens:{author}", f"tokens:{rival}"}) | compared,
        writes=frozenset({"stream:adv"}),
        idle=unregularised(tau=None) if is_zero(tau) else None,
    )
