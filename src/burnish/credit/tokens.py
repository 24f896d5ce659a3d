"""Which tokens drive the policy's entropy: the covariance of log-prob and advantage (arXiv 2505.22617)."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.core.parts import Part, supplies
from burnish.core.randomness import key_of, uniform
from burnish.core.step import Step
from burnish.core.types import Group, Trace

Masked = list[tuple[Trace, Tensor]]


@supplies("stream:cov")
def covariance(*, author: str = "policy") -> Part:
    """cov_t = (log pi_old(y_t) - mean)(A_t - mean), the means over all of the author's tokens in the batch, as stream
    "cov".
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = _masked(groups, author)
        logp, adv = pooled(traces, "old"), pooled(traces, "adv")
        spread(traces, "cov", (logp - logp.mean()) * (adv - adv.mean()))
        return groups

    return Part(
        name="covariance",
        call=call,
        reads=frozenset({"stream:old", "stream:adv", f"tokens:{author}"}),
        writes=frozenset({"stream:cov"}),
    )


@supplies("stream:keep")
def drop_from_band(low: float, high: float, share: float, *, author: str = "policy") -> Part:
    """Stream "keep": 0 for tokens drawn at random from those with low <= cov <= high, 1 for the others.

    As many are drawn as `share` of all the author's tokens in the batch, one at least, and never more than there are.
    A token's lot depends on its task, its reply and its place alone.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = _masked(groups, author)
        cov, lots = pooled(traces, "cov"), _lots(groups, author, step)
        inside = (cov >= low) & (cov <= high)
        count = min(max(1, int(share * len(cov))), int(inside.sum()))
        drawn = torch.where(inside, lots, torch.inf).argsort()[:count]
        keep = torch.ones(len(cov))
        keep[drawn] = 0.0
        spread(traces, "keep", keep)
        step.notes.add("clipped_by_covariance", count, max(1, len(cov)))
        return groups

    return Part(
        name="drop_from_band",
        call=call,
        reads=frozenset({"stream:cov", f"tokens:{author}"}),
        writes=frozenset({"stream:keep"}),
    )


@supplies("stream:top")
def top_share(share: float, stream: str = "cov", *, author: str = "policy") -> Part:
    """Stream "top": 1 for the share of the author's tokens with the largest values in the batch (one at
    least), else 0.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = _masked(groups, author)
        values = pooled(traces, stream)
        count = min(max(1, int(share * len(values))), len(values))
        top = torch.zeros(len(values))
        top[values.argsort(descending=True, stable=True)[:count]] = 1.0
        spread(traces, "top", top)
        return groups

    return Part(
        name=f"top_share({stream})",
        call=call,
        reads=frozenset({f"stream:{stream}", f"tokens:{author}"}),
        writes=frozenset({"stream:top"}),
    )


def pooled(traces: Masked, stream: str) -> Tensor:
    """The stream's values at the masked tokens of all traces, as one vector."""
    return torch.cat([trace.streams[stream][mask] for trace, mask in traces]) if traces else torch.zeros(0)


def spread(traces: Masked, stream: str, values: Tensor) -> None:
    """The reverse: one vector onto the masked tokens of all traces, nan elsewhere."""
    for (trace, mask), mine in zip(traces, values.split([int(mask.sum()) for _, mask in traces]), strict=True):
        trace.streams[stream] = torch.full((len(trace),), float("nan"))
        trace.streams[stream][mask] = mine.float()


def _masked(groups: list[Group], author: str) -> Masked:
    return [(trace, trace.by(author)) for group in groups for trace in group.traces]


def _lots(groups: list[Group], author: str, step: Step) -> Tensor:
    """A number in [0, 1) for each of the author's tokens."""
    clock = step.clock
    found = [torch.zeros(0, dtype=torch.float64)]
    for group in groups:
        for trace in group.traces:
            places = trace.by(author).nonzero()[:, 0]
            key = key_of(clock.seed, "band", clock.step, clock.tick, group.task.key, trace.index)
            found.append(uniform(torch.full_like(places, key), places))
    return torch.cat(found)
