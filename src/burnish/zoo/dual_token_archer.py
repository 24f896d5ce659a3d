"""Stabilizing Knowledge, Promoting Reasoning: Dual-Token Constraints for RLVR (arXiv 2507.15778).

Terms that treat two kinds of tokens differently: "reasoning" tokens, where the policy is undecided, and the rest.

A token is a reasoning token where the policy's entropy, as it is now, reaches its reply's quantile (arXiv 2507.15778).
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.learn import maths
from burnish.learn.maths.policy import was_clipped
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.rows import note_drift
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

DUAL_TOKEN_ARCHER = Paper(
    "dual-token-archer", "2507.15778", "Stabilizing Knowledge, Promoting Reasoning: Dual-Token Constraints for RLVR"
)


def row_quantile(live: Live, x: Tensor, share: float) -> Tensor:
    """[N] -> [N]: for every token, the quantile (by linear interpolation) of x over its own reply's claimed tokens."""
    sizes = torch.bincount(live.row, minlength=live.rows).tolist()
    found = [torch.full_like(part, float(torch.quantile(part, share))) for part in x.detach().split(sizes) if len(part)]
    return torch.cat(found) if found else x.detach()


def by_kind(live: Live, quantile: float, reasoning: float, knowledge: float) -> Tensor:
    """[N]: one number for tokens whose entropy is at or above the quantile of their reply, another for the rest."""
    undecided = live.entropy.detach() >= row_quantile(live, live.entropy, quantile)
    return torch.where(undecided, reasoning, knowledge).to(live.logp.dtype)


def pg_clip_by_kind(
    quantile: float,
    eps_reasoning: float,
    eps_knowledge: float,
    *,
    norm: Norm = token_mean,
    on: Authors = "policy",
    name: str = "pg",
) -> Term:
    """PPO's clipped surrogate with a clip range for each kind of token."""

    def loss(live: Live) -> Tensor:
        eps = by_kind(live, quantile, eps_reasoning, eps_knowledge)
        live.note("clipped", was_clipped(live.logp, live.old, live.adv, eps, eps))
        note_drift(live)
        return maths.clipped_surrogate(live.logp, live.old, live.adv, eps, eps)

    return Term(name=name, on=on, unit="token", loss=loss, live=("logp", "entropy"), streams=("adv", "old"), norm=norm)


def kl_by_kind(
    quantile: float,
    beta_reasoning: float,
    beta_knowledge: float,
    *,
    norm: Norm = token_mean,
    on: Authors = "policy",
    name: str = "kl",
) -> Term:
    """k3 to the reference (stream "ref") with a coefficient for each kind of token, in one mean over all tokens."""

    def loss(live: Live) -> Tensor:
        return by_kind(live, quantile, beta_reasoning, beta_knowledge) * maths.k3(live.logp, live.ref)

    coef = 0.0 if beta_reasoning == beta_knowledge == 0 else 1.0
    needs = ("logp", "entropy")
    return Term(name=name, on=on, unit="token", loss=loss, live=needs, streams=("ref",), norm=norm, coef=coef)


@register(
    DUAL_TOKEN_ARCHER,
    family="policy",
    summary="A wide clip and no KL for undecided tokens, a narrow clip and a KL for the rest.",
    when="Facts should keep still while reasoning moves: undecided tokens explore, sure ones are held.",
)
def dual_token_archer(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    quantile: Annotated[float, Option("Where, in a reply's entropies, reasoning begins.", at_least=0, at_most=1)] = 0.8,
    eps_reasoning: Annotated[float, Option("The clip range of reasoning tokens.", at_least=0, unlimited=True)] = 0.5,
    eps_knowledge: Annotated[float, Option("The clip range of the rest.", at_least=0, unlimited=True)] = 0.2,
    beta_reasoning: Annotated[float, Option("Weight of the KL on reasoning tokens.", at_least=0)] = 0.0,
    beta_knowledge: Annotated[float, Option("Weight of the KL on the rest.", at_least=0)] = 0.001,
    minibatches: opt.Minibatches = 2,
) -> Method:
    """Archer's dual-token constraints (not the ArCHer of multi-turn agents, which is `archer`).

    a token is "reasoning" where the entropy of pi reaches the quantile of its reply, "knowledge" elsewhere
    L = mean over all tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A) + beta k3(pi, ref)
    eps and beta by the token's kind

    A_i = (r_i - mean r) / std r. The entropy is that of the policy at each update. A token exactly at the quantile
    is reasoning, and the KL stands in the common mean, as in the paper; the released code takes the boundary as
    knowledge, averages the KL over knowledge tokens alone, bounds k3 and adds a dual clip of 10. The paper samples
    16 replies, makes two updates of a batch, and its code passes over each batch three times.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.behaviour(), credit.ref()),
        learn=learn.Learn(
            pg_clip_by_kind(quantile, eps_reasoning, eps_knowledge),
            kl_by_kind(quantile, beta_reasoning, beta_knowledge),
            minibatches=minibatches,
        ),
        models=roles(ref=frozen("policy")),
    )
