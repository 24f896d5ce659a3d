"""Bridging Supervised Learning and Reinforcement Learning in Math Reasoning (arXiv 2505.18116)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.verdicts import RIGHT
from burnish.learn.norms import Norm, constant
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.rows import note_drift
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

NFT = Paper("nft", "2505.18116", "Bridging Supervised Learning and Reinforcement Learning in Math Reasoning")


def implicit_negative(logp: Tensor, old: Tensor, right: Tensor, rate: Tensor, eps: float) -> Tensor:
    """NFT's likelihoods (arXiv 2505.18116, Eq. 10), per token [N].

        R = pi / pi_old;   right:  -log R;   wrong:  -log max_v(x, eps),  x = (1 - q R) / (1 - q)
        max_v(x, eps) = sg[max(x, eps) - x] + x:  the value of the larger, the gradient of x

    right is 1 or 0, q = rate is the prompt's pass rate, strictly between 0 and 1. x is the ratio of the implicit
    negative policy (pi_old - q pi) / (1 - q) to pi_old. The gradient of a wrong token is q R / ((1 - q) max(x, eps))
    grad logp.
    The log ratio is bounded by +-10.
    """
    assert logp.shape == old.shape == right.shape == rate.shape
    log_ratio = (logp - old).clamp(-10.0, 10.0)
    x = (1 - rate * log_ratio.exp()) / (1 - rate)
    held = (x.clamp(min=eps) - x).detach() + x
    return torch.where(right > 0, -log_ratio, -held.log())


def share_wrong(rate: Tensor) -> Tensor:
    """1 - q: the prompt weight with which NFT is Dr. GRPO on-policy (A is 1 - q or -q)."""
    return 1 - rate


def odds_root(rate: Tensor) -> Tensor:
    """sqrt((1 - q) / q): the prompt weight with which NFT is GRPO on-policy (A divided by the
    population's deviation).
    """
    return ((1 - rate) / rate).sqrt()


@supplies("stream:pass_rate")
def pass_rate(low: float, high: float, score: str = "reward") -> Part:
    """Stream "pass_rate": the share of a group's replies that are right, kept between low and high, on all their
    tokens.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            rate = sum(trace.scores[score] > RIGHT for trace in group.traces) / len(group.traces)
            for trace in group.traces:
                trace.streams["pass_rate"] = torch.full((len(trace),), min(max(rate, low), high))
        return groups

    return Part(
        name="pass_rate", call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"stream:pass_rate"})
    )


def negative_aware(
    eps: float,
    weigh: Callable[[Tensor], Tensor],
    negative: float = 1.0,
    *,
    norm: Norm | None = None,
    on: Authors = "policy",
    name: str = "nft",
) -> Term:
    """NFT: likelihood of right tokens under the policy and of wrong ones under its implicit negative.

    Streams: "right" (1 or 0), "pass_rate" (of the prompt), "old". weigh(pass_rate) weighs prompts, `negative` wrong
    tokens.
    """

    def loss(live: Live) -> Tensor:
        note_drift(live)
        losses = implicit_negative(live.logp, live.old, live.right, live.pass_rate, eps)
        return weigh(live.pass_rate) * torch.where(live.right > 0, 1.0, negative) * losses

    streams = ("right", "pass_rate", "old")
    return Term(
        name=name, on=on, unit="token", loss=loss, live=("logp", "entropy"), streams=streams, norm=norm or constant()
    )


WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {"dr_grpo": share_wrong, "grpo": odds_root}


@register(
    NFT,
    family="policy",
    summary="Supervised learning from right replies and, through an implicit negative policy, from wrong ones.",
    when="You want to stay with supervised learning and still learn from wrong replies.",
)
def nft(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: Annotated[float, Option("The floor under a wrong token's likelihood.", above=0)] = 1.0,
    weight: Annotated[Literal["dr_grpo", "grpo"], Option("How prompts are weighed.")] = "dr_grpo",
    negative: Annotated[float, Option("Weight of wrong replies; 0 leaves rejection fine-tuning.", at_least=0)] = 1.0,
    minibatches: opt.Minibatches = 4,
) -> Method:
    """Negative-aware fine-tuning.

    R = pi/pi_old at the token;  q = share of a prompt's replies that are right, in [0.02, 0.98];  only 0 < q < 1
    right:  -omega log R;   wrong:  -omega log max_v((1 - q R)/(1 - q), eps),  the larger value, the first's gradient
    L = sum over tokens / (replies x longest reply);   omega = 1 - q (dr_grpo) or sqrt((1 - q)/q) (grpo)

    On-policy its gradient is that of Dr. GRPO, or of GRPO, whence the weights' names. eps = 1 is the released
    code's. Departures: the code divides the sum by 1000, a constant as ours is; it counts replies that were cut off
    as wrong, where here the verifier decides. The paper samples 16 replies to 512 prompts and makes 16 updates of
    them.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        select=select.mixed(),
        credit=chain(
            credit.right(), pass_rate(0.02, 0.98), credit.behaviour(), credit.claim("nft", "policy", tag="mixed")
        ),
        learn=learn.Learn(
            negative_aware(eps, WEIGHTS[weight], negative, norm=learn.constant(), on=learn.CLAIMED),
            minibatches=minibatches,
        ),
        models=roles(),
    )
