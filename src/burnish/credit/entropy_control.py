"""Holding the policy's entropy at a target by what it is rewarded for (AEPO, arXiv 2510.08141).

A meter remembers the entropy of the last update. The rollout samples some replies hotter than the policy where it lies
below the target, cooler where it lies above; credit lets the good ones among them take the place of plain samples.
"""

from __future__ import annotations

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.baselines import spread
from burnish.rollout.tempered import EntropyMeter


@supplies("tag:trained")
def swap_in_tempered(meter: EntropyMeter, *, above: float, most: int, author: str = "policy") -> Part:
    """Tags "trained" what is learned from: plain samples, the first of them replaced by good tempered ones.

    A tempered reply is good where its advantage among the tempered replies to its prompt exceeds `above`. At most
    `most` are taken in, and half as many (rounded down) while entropy lies above the target, in the order of the batch,
    each with advantage 1 and in the place of one plain sample. Then the meter takes the entropy of what is trained.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        plain = [trace for trace in traces if "tempered" not in trace.tags]
        good = [t for t in traces if "tempered" in t.tags and float(t.streams["adv"][0]) > above]
        taken = min(most, len(good)) if meter.low() else min(most, len(good)) // 2
        good = good[: min(taken, len(plain))]
        for trace in good:
            spread(trace, 1.0)
        trained = [*good, *plain[len(good) :]]
        for trace in trained:
            trace.tags |= {"trained"}
        step.notes.add("tempered_share", len(good), max(1, len(trained)))
        _measure(meter, trained, author, step)
        return groups

    return Part(
        name="swap_in_tempered",
        call=call,
        reads=frozenset({"stream:adv", "stream:old", "tag:tempered", f"tokens:{author}"}),
        writes=frozenset({"tag:trained", f"store:{meter.name}"}),
        updates=frozenset({"stream:adv"}),
        state=(meter,),
    )


def _measure(meter: EntropyMeter, traces: list[Trace], author: str, step: Step) -> None:
    tokens = sum(int(trace.by(author).sum()) for trace in traces)
    if tokens:
        meter.entropy = -sum(float(trace.streams["old"][trace.by(author)].sum()) for trace in traces) / tokens
        step.notes.add("sampled_entropy", meter.entropy)
