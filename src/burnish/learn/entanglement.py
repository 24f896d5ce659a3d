"""Costly diagnostics of preference runs, every `diagnose_every` steps: gradient entanglement and top-k mass.

A preference loss pushes log pi(y_w) up and log pi(y_l) down. With g = the gradient of a reply's log-prob, one step of
DPO changes log pi(y_w) in proportion to |g_w|^2 - <g_w, g_l>: where the inner product exceeds |g_w|^2, the preferred
reply becomes less likely, too (gradient entanglement, arXiv 2410.13828).

The gradients are those of the head's matrix W alone, which need no backward pass. With h_t the hidden state that token
t is predicted from, p_t the policy's distribution there and e_t the one-hot vector of the token,

    g = sum over t of (e_t - p_t) h_t^T,   <g_w, g_l> = sum over t, s of <e_t - p_t, e_s - p_s> <h_t, h_s>

Log-probs are summed over the reply at temperature 1, whatever the loss makes of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor

from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.learn.term import Term
from burnish.models.model import Model

PAIRS = 8  # of a step are looked at, one after the other: the cost does not grow with the batch
TOP = 10


def note_entanglement(groups: list[Group], terms: tuple[Term, ...], step: Step) -> None:
    """Note TERM/gradient_inner, gradient_cosine, raises_chosen and top10_mass of the first pairs, where it is time."""
    every = step.settings.diagnose_every
    if not every or step.clock.step % every:
        return
    for term in terms:
        if term.unit not in ("pair", "list") or "logp" not in term.live or not term.authors:
            continue
        for better, worse in islice(_compared(groups), PAIRS):
            chosen, rejected = (_states(step.models[term.trainee], trace, term.authors) for trace in (better, worse))
            if chosen is None or rejected is None:
                continue
            inner, cosine, raises = entanglement(chosen, rejected)
            step.notes.add(f"{term.name}/gradient_inner", inner)
            step.notes.add(f"{term.name}/gradient_cosine", cosine)
            step.notes.add(f"{term.name}/raises_chosen", raises)
            for reply in (chosen, rejected):
                mass = top_mass(reply[1])
                step.notes.add(f"{term.name}/top10_mass", float(mass.sum()), len(mass))


def entanglement(chosen: tuple[Tensor, ...], rejected: tuple[Tensor, ...]) -> tuple[float, float, float]:
    """<g_w, g_l>, its cosine, and 1 if |g_w|^2 > <g_w, g_l>. A reply: h [T, H], p [T, V], its tokens [T]."""
    states, errors = zip(*((h, _error(p, tokens)) for h, p, tokens in (chosen, rejected)), strict=True)

    def product(a: int, b: int) -> float:
        return float(((errors[a] @ errors[b].T) * (states[a] @ states[b].T)).sum())

    inner, own, other = product(0, 1), product(0, 0), product(1, 1)
    size = (own * other) ** 0.5
    return inner, inner / size if size else 0.0, float(own > inner)


def top_mass(p: Tensor, k: int = TOP) -> Tensor:
    """[T, V] -> [T]: the probability of the k likeliest tokens together."""
    return p.topk(min(k, p.shape[-1]), -1).values.sum(-1)


def _error(p: Tensor, tokens: Tensor) -> Tensor:
    """e_t - p_t."""
    return torch.nn.functional.one_hot(tokens, p.shape[-1]).to(p.dtype) - p


def _compared(groups: list[Group]) -> Iterator[tuple[Trace, Trace]]:
    """The pairs of all groups, or the first and the last of each list."""
    for group in groups:
        for better, worse in group.pairs or [(one[0], one[-1]) for one in group.lists or () if len(one) > 1]:
            yield group.traces[better], group.traces[worse]


@torch.no_grad()
def _states(model: Model, trace: Trace, authors: tuple[str, ...]) -> tuple[Tensor, ...] | None:
    """h, p and tokens of the authors' tokens; None where there are none."""
    mask = trace.by(*authors)
    if not bool(mask.any()):
        return None
    out = model.outputs([trace.tokens], [mask], {"hidden", "logits"}, 1.0)
    p = torch.softmax(out["logits"].float(), -1)
    return out["hidden"].float(), p, trace.tokens[mask].to(p.device)
