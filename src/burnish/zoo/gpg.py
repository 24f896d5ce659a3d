"""GPG: A Simple and Strong Reinforcement Learning Baseline for Model Reasoning (arXiv 2504.02546)."""

from __future__ import annotations

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.method import Method, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

GPG = Paper("gpg", "2504.02546", "GPG: A Simple and Strong Reinforcement Learning Baseline for Model Reasoning")


def make_up_for_flat_groups(score: str = "reward") -> Part:
    """A times B / (B - M): B groups, M of which score all the same and so say nothing (GPG, arXiv 2504.02546)."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        flat = sum(len({trace.scores[score] for trace in group.traces}) < 2 for group in groups)
        if flat < len(groups):
            for trace in (trace for group in groups for trace in group.traces):
                trace.streams["adv"] = trace.streams["adv"] * (len(groups) / (len(groups) - flat))
        return groups

    return Part(
        name="make_up_for_flat_groups",
        call=call,
        reads=frozenset({"stream:adv", f"score:{score}"}),
        updates=frozenset({"stream:adv"}),
    )


@register(
    GPG,
    family="policy",
    summary="The plain policy gradient with a group baseline, scaled up for groups that say nothing.",
    when="You want the plain policy gradient: no reference, no clip, no critic.",
)
def gpg(task: draw.Source, *, n: opt.GroupSize = 8) -> Method:
    """Group policy gradient.

    A_i = alpha (r_i - mean r),   alpha = B / (B - M):  B groups in the batch, M of them all right or all wrong
    L = mean over all tokens of -A log pi;  no ratio, no clip, no KL, no reference

    One update a batch. The released code also samples again until enough groups are mixed (a share of 0.6 in its
    best row); here the batch is used as it falls.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(std=False), make_up_for_flat_groups()),
        learn=learn.Learn(learn.pg_reinforce(norm=learn.token_mean)),
        models=roles(),
    )
