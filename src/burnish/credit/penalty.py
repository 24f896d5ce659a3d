"""Where a KL penalty stands when there is no critic: in the score of the whole reply, or on tokens."""

from __future__ import annotations

from burnish.core.parts import Part, everything, per_trace, supplies
from burnish.core.schedules import Schedule, at, is_zero
from burnish.core.step import Step
from burnish.core.types import Group, Trace


@supplies("score:penalised")
def kl_in_score(beta: Schedule, *, score: str = "reward", author: str = "policy") -> Part:
    """scores["penalised"] = r - beta log(pi_old / ref)(y), summed over the reply (RLOO, arXiv 2402.14740).

    It comes before the baseline, so that the baseline takes the siblings' penalties off as well.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = trace.by(author)
        kl = float((trace.streams["old"][mask] - trace.streams["ref"][mask]).sum())
        trace.scores["penalised"] = trace.scores[score] - at(beta, step.clock) * kl
        step.notes.add("kl", kl, int(mask.sum()))

    return per_trace(
        write,
        name="kl_in_score",
        reads=frozenset({f"score:{score}", "stream:old", "stream:ref", f"tokens:{author}"}),
        writes=frozenset({"score:penalised"}),
        idle=_unpenalised(score) if is_zero(beta) else None,
    )


def _unpenalised(score: str) -> Part:
    """scores["penalised"] = r."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.scores["penalised"] = trace.scores[score]

    return per_trace(
        write,
        name="unpenalised",
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"score:penalised"}),
    )


def kl_on_tokens(beta: Schedule, *, tag: str, author: str = "policy") -> Part:
    """adv_t <- adv_t - beta log(pi_old / ref)(y_t), on traces with the tag: each token pays for itself
    alone (ReMax).
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for trace in (trace for group in groups for trace in group.traces if tag in trace.tags):
            mask = trace.by(author)
            kl = trace.streams["old"][mask] - trace.streams["ref"][mask]
            trace.streams["adv"][mask] -= at(beta, step.clock) * kl
            step.notes.add("kl", float(kl.sum()), int(mask.sum()))
        return groups

    return Part(
        name="kl_on_tokens",
        call=call,
        reads=frozenset({"stream:adv", "stream:old", "stream:ref", f"tag:{tag}", f"tokens:{author}"}),
        updates=frozenset({"stream:adv"}),
        idle=everything if is_zero(beta) else None,
    )


def rewards_to_go(*, author: str = "policy") -> Part:
    """adv_t = sum of stream "reward" from token t to the end, over the author's tokens (gamma = 1)."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = trace.by(author)
        trace.streams["adv"] = trace.streams["reward"].clone()
        trace.streams["adv"][mask] = trace.streams["reward"][mask].flip(0).cumsum(0).flip(0)

    return per_trace(
        write,
        name="rewards_to_go",
        reads=frozenset({"stream:reward", f"tokens:{author}"}),
        writes=frozenset({"stream:adv"}),
    )
