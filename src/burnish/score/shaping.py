"""Rewards made of other scores: credit for answering at all, and for mending or breaking an earlier reply."""

from __future__ import annotations

import re

import torch

from burnish.nouns import Group, Trace
from burnish.parts import Part, per_trace, supplies
from burnish.score.verify import reply_text
from burnish.step import Step

_STATED = re.compile(r"answer\s*:\s*\S|####\s*\S|\\boxed\s*\{", re.IGNORECASE)


@supplies("score:shaped")
def partial_for_answering(partial: float, *, reader: str = "policy") -> Part:
    """shaped = the reward; where that is 0 and the reply does state an answer, `partial` (R3, arXiv 2402.05808).

    An answer is stated by `answer: ...`, `#### ...` or `\\boxed{...}`.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        stated = _STATED.search(reply_text(trace, step.cast[reader].chat)) is not None
        reward = trace.scores["reward"]
        trace.scores["shaped"] = partial if reward == 0 and stated else reward
        step.notes.add("answered", stated)

    return per_trace(
        write,
        name=f"partial_for_answering({partial:g})",
        reads=frozenset({"score:reward"}),
        writes=frozenset({"score:shaped"}),
    )


@supplies("score:preference")
def squashed_model(member: str = "rm") -> Part:
    """preference = sigmoid of the member's score, standardised over the batch (Satori, arXiv 2502.02508)."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        masks = [torch.arange(len(trace)) == len(trace) - 1 for trace in traces]
        found = step.cast[member].streams(traces, masks, {"score"}, step.settings.token_budget)
        raw = torch.stack([mine["score"][-1].flatten()[0] for mine in found])
        standard = (raw - raw.mean()) / (raw.std(unbiased=False) + 1e-8)
        for trace, value in zip(traces, torch.sigmoid(standard).tolist(), strict=True):
            trace.scores["preference"] = value
        return groups

    return Part(
        name=f"squashed_model({member})",
        call=call,
        reads=frozenset({"tokens:policy", f"cast:{member}.score"}),
        writes=frozenset({"score:preference"}),
    )


@supplies("score:shaped")
def reflection_reward(bonus: float, *adds: str) -> Part:
    """Satori's reward (arXiv 2502.02508): shaped = (1[correct] - 1) + the scores in `adds` + what reflecting did.

    bonus where a restart from a wrong reply ended right, -bonus where one from a right reply ended wrong.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        right = bool(trace.scores["correct"])
        mended = "from wrong" in trace.tags and right
        broken = "from right" in trace.tags and not right
        trace.scores["shaped"] = float(right) - 1 + bonus * (mended - broken) + sum(trace.scores[name] for name in adds)
        if "from wrong" in trace.tags:
            step.notes.add("mended", mended)
        if "from right" in trace.tags:
            step.notes.add("broken", broken)

    return per_trace(
        write,
        name=f"reflection_reward({bonus:g})",
        reads=frozenset({"score:reward", "tag:from right", "tag:from wrong", *(f"score:{name}" for name in adds)}),
        writes=frozenset({"score:shaped"}),
    )
