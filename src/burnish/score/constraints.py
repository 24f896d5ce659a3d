"""Judges as constraints, and rewards relative to a baseline reply: the scores of CGPO (arXiv 2409.20370)."""

from __future__ import annotations

from collections.abc import Sequence

from burnish.core.parts import Part, supplies
from burnish.core.scorer import named_reward
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.score.maths.multipliers import sigmoid

COLUMN = "judges"  # the column of a row that names its own judges


@supplies("score:satisfied")
def satisfied(judges: Sequence[str], *, above: float = 0.5) -> Part:
    """scores["satisfied"] = 1 where every judge gives a reply more than `above`, else 0: an AND of all judges.

    judges  names of rewards of the run, or "correct"; a row with a list in its column `judges` has its own
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            own = group.task.given.get(COLUMN)
            names = [str(name) for name in own] if isinstance(own, list | tuple) else judges
            for trace in group.traces:
                trace.scores["satisfied"] = float(all(named_reward(trace, name) > above for name in names))
        return groups

    return Part(
        name=f"satisfied({', '.join(judges)})",
        call=call,
        reads=frozenset({"score:reward"}),
        writes=frozenset({"score:satisfied"}),
    )


@supplies("score:calibrated")
def calibrated(tag: str = "baseline") -> Part:
    """scores["calibrated"] = sigmoid(R - R_0), R_0 the reward of the group's tagged reply, the baseline (Eq. 5).

    It makes rewards of different prompts comparable: 1/2 is as good as the baseline.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            base = next(trace.scores["reward"] for trace in group.traces if tag in trace.tags)
            for trace in group.traces:
                trace.scores["calibrated"] = sigmoid(trace.scores["reward"] - base)
        return groups

    return Part(
        name="calibrated",
        call=call,
        reads=frozenset({"score:reward", f"tag:{tag}"}),
        writes=frozenset({"score:calibrated"}),
    )


@supplies("score:log_ratio")
def ratio_to_reference(ref: str = "ref", *, author: str = "policy") -> Part:
    """scores["log_ratio"] = log pi(y) - log ref(y) of the whole reply, pi as it was sampled; 0 for other authors."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        masks = [trace.by(author) for trace in traces]
        found = step.models[ref].streams(traces, masks, {"logp"}, step.settings.token_budget)
        for trace, mask, output in zip(traces, masks, found, strict=True):
            sampled = [turn.logp for turn in trace.turns if turn.author == author and turn.logp is not None]
            total = sum(float(logp.double().sum()) for logp in sampled)
            trace.scores["log_ratio"] = total - float(output["logp"][mask].double().sum()) if sampled else 0.0
        return groups

    return Part(
        name="ratio_to_reference",
        call=call,
        reads=frozenset({f"tokens:{author}", f"mu:{author}", f"model:{ref}.logp"}),
        writes=frozenset({"score:log_ratio"}),
    )
