"""Advantages from comparisons of all pairs of a group."""

from __future__ import annotations

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.baselines import spread
from burnish.judges.vote import pair_advantages

ROW = "leads"  # the note that score/judges/pairs.py writes


@supplies("stream:adv")
def by_leads(eps: float = 1e-6) -> Part:
    """A_i = (1/G) sum_j d_ij / sqrt( sum over ordered pairs of d^2 / (2 G (G - 1)) + eps ) (Think-RM, 2505.16265).

    With d_ij = r_i - r_j it is (r_i - mean r) / sqrt(var r + eps), var unbiased: GRPO's advantage but for the eps.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for trace, advantage in zip(
                group.traces, pair_advantages([t.note[ROW] for t in group.traces], eps), strict=True
            ):
                spread(trace, advantage)
        return groups

    return Part(name="by_leads", call=call, reads=frozenset({"score:lead"}), writes=frozenset({"stream:adv"}))
