"""The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models (arXiv 2505.22617).

Which tokens drive the policy's entropy: the covariance of log-prob and advantage (arXiv 2505.22617).
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import Part, supplies
from burnish.core.randomness import key_of, uniform
from burnish.core.schedules import Schedule
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Term
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import Arguments, opt, register, variant
from burnish.papers import Paper

CLIP_COV = Paper(
    "clip-cov", "2505.22617", "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models"
)


Masked = list[tuple[Trace, Tensor]]


def stay(weight: str, *, coef: Schedule, norm: Norm = token_mean, on: Authors = "policy", name: str = "stay") -> Term:
    """KL-Cov's penalty |log pi - log pi_old| on the tokens that the stream `weight` marks (arXiv 2505.22617)."""

    def loss(live: Live) -> Tensor:
        return live.streams[weight] * (live.logp - live.old).abs()

    return Term(
        name=name, on=on, unit="token", loss=loss, live=("logp",), streams=("old", weight), norm=norm, coef=coef
    )


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


def _by_covariance(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    marks: Part,
    terms: tuple[Term, ...],
    minibatches: opt.Minibatches = 4,
) -> Method:
    """Group advantages, and `terms` that read what `marks` says of each token's covariance; mixed groups alone."""
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        select=select.mixed(),
        credit=chain(
            credit.group_relative(),
            credit.behaviour(),
            covariance(),
            marks,
            *(credit.claim(term.name, "policy", tag="mixed") for term in terms),
        ),
        learn=learn.Learn(*terms, minibatches=minibatches),
        models=roles(),
    )


@register(
    CLIP_COV,
    family="policy",
    summary="A few tokens whose log-prob and advantage go together lose their gradient.",
    when="Entropy collapses early, and you want to leave out the few tokens that do it.",
)
@variant(_by_covariance)
def clip_cov(
    *,
    eps: opt.ClipRange = 1.0,
    share: Annotated[float, Option("Share of the tokens that are drawn.", at_least=0, at_most=1)] = 2e-4,
    low: Annotated[float, Option("The band's lower end.")] = 1.0,
    high: Annotated[float, Option("The band's upper end.", unlimited=True)] = 5.0,
) -> Arguments:
    """Clip-Cov: entropy is kept by sparing the policy some of the updates that would make it surer.

    cov_t = (log pi_old(y_t) - mean)(A_t - mean), means over all tokens of the batch;  A_i = (r_i - mean r) / std r
    drawn: share x N tokens at random, one at least, from those with low <= cov <= high;  keep = 0 there, else 1
    L = mean over all tokens of -keep min(rho A, clip(rho, 1-eps, 1+eps) A);  mixed groups alone, no KL

    Not the tokens of largest covariance: a random draw inside a band. The ratio's own clip stands open, as in the
    released code. Departures: the covariance is taken once, before the batch's updates, where the code takes it
    again for each micro-batch of each update and draws only among tokens that are not clipped already. The paper
    makes 8 updates of a batch.
    """
    cut = learn.pg_clip(eps, norm=learn.token_mean, weight="keep", on=learn.CLAIMED)
    return {"marks": drop_from_band(low, high, share), "terms": (cut,)}


@register(
    CLIP_COV,
    family="policy",
    summary="The tokens whose log-prob and advantage go most together are held near the old policy.",
    when="As `clip_cov`, with a soft hold instead of a cut.",
)
@variant(_by_covariance)
def kl_cov(
    *,
    share: Annotated[float, Option("Share of the tokens that are penalised.", at_least=0, at_most=1)] = 2e-3,
    beta: Annotated[float, Option("Weight of the penalty.", at_least=0)] = 1.0,
) -> Arguments:
    """KL-Cov: a penalty on the tokens that would lower the entropy most.

    cov_t as in `clip_cov`;  top = 1 for the share of the batch's tokens with the largest cov (one at least), else 0
    L = mean over all tokens of -rho A + beta top |log(pi/pi_old)|;  no clip, mixed groups alone, no KL to a reference

    The share is that of the paper's 7B runs (2e-4 at 32B). The covariance is taken once, before the batch's
    updates, where the released code takes it again for each micro-batch. The paper makes 8 updates of a batch.
    """
    free = learn.pg_clip(math.inf, norm=learn.token_mean, on=learn.CLAIMED)
    held = stay("top", coef=beta, norm=learn.token_mean, on=learn.CLAIMED)
    return {"marks": top_share(share), "terms": (free, held)}
