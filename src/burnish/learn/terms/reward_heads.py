"""Terms for reward models whose outputs are more than scores: means with deviations, latents of users, goals."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.learn.maths.preference import bradley_terry
from burnish.learn.maths.reward import gaussian_error, kl_to_standard_normal, log_of_mean
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.reward import note_order, row_numbers, row_scores


def uncertain_heads(heads: int, floor: float, likelihood: float, *, trainee: str = "rm", name: str = "heads") -> Term:
    """BRME's second stage: k means and deviations fitted to output 0, held; the mean over heads, by bootstrap sample.

    Outputs 1 .. k are the means, the next k the logarithms of the deviations, which are at least `floor`. Streams:
    "bags" [T, k] and "noise" [T, k].
    """

    def loss(live: Live) -> Tensor:
        scores = row_scores(live)
        target = scores[:, :1].detach()
        mean, std = scores[:, 1 : 1 + heads], scores[:, 1 + heads : 1 + 2 * heads].exp().clamp(min=floor)
        bag, noise = (row_numbers(live, stream).to(scores) for stream in ("bags", "noise"))
        live.note("error", (mean - target).abs().mean(-1))
        live.note("std", std.mean(-1))
        return (bag * gaussian_error(mean, std, noise, target, likelihood)).mean(-1)

    return Term(
        name=name,
        on=(),
        unit="sequence",
        loss=loss,
        live=("score",),
        streams=("bags", "noise"),
        norm=unit_mean,
        trainee=trainee,
    )


def latent_posterior(contexts: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Mean and log variance, both within [-1, 1], of q(z | context) from its encodings [m, 2 size], averaged over m.

    Without any context it is the prior: 0 and 0.
    """
    if not len(contexts):
        return contexts.new_zeros(size), contexts.new_zeros(size)
    mean, log_variance = contexts.mean(0).clamp(-1, 1).split(size)
    return mean, log_variance


def latent_pairs(size: int, beta: float, *, trainee: str = "rm", on: Authors = (), name: str = "end") -> Term:
    """VPL: Bradley-Terry on r(y, z) = r_0(y) + z . U(y), z drawn from q(z | the user's other pairs), and beta KL(q ||
    N).

    Outputs: r_0, U (size), and the encodings of a chosen (2 size) and of a rejected reply (2 size). A group holds the
    pairs of one user; the pair that is judged is never in its own context. Stream "noise" [T, size].
    """
    decode, chosen_side = slice(1, 1 + size), slice(1 + size, 1 + 3 * size)
    rejected_side = slice(1 + 3 * size, 1 + 5 * size)

    def loss(live: Live) -> Tensor:
        scores, noise = row_scores(live), row_numbers(live, "noise")
        first, second = live.pairs[:, 0], live.pairs[:, 1]
        encoded = scores[first][:, chosen_side] + scores[second][:, rejected_side]
        user = live.group[first]
        margins, kls, found = [], [], []
        for p in range(len(live.pairs)):
            others = user == user[p]
            others[p] = False
            mean, log_variance = latent_posterior(encoded[others], size)
            z = mean + (log_variance / 2).exp() * noise[first[p]].to(scores)
            z = z * (size**0.5 / z.norm().clamp(min=1e-6))
            for row in (first[p], second[p]):
                margins.append(scores[row, 0] + scores[row, decode] @ z)
            kls.append(kl_to_standard_normal(mean, log_variance))
            found.append(bradley_terry(margins[-2], margins[-1]))
        if not found:
            return scores[:0].sum(-1)
        note_order(live, torch.stack(margins[::2]), torch.stack(margins[1::2]))
        live.note("kl", torch.stack(kls))
        return torch.stack(found) + beta * torch.stack(kls)

    return Term(
        name=name, on=on, unit="pair", loss=loss, live=("score",), streams=("noise",), norm=unit_mean, trainee=trainee
    )


def goal_contrast(coef: float, *, trainee: str = "rm", name: str = "goal") -> Term:
    """Goal-conditioned contrast (arXiv 2407.13887): -log mean s(cos(source, goal)) - log(1 - mean s(cos(source,
    other))).

    Sources and later goals are states of the chosen reply, others of the rejected one: streams "source", "goal" and
    "other" have how often each token was drawn. The means are over the whole batch, in streams "near" and "far".
    """

    def loss(live: Live) -> Tensor:
        states = torch.nn.functional.normalize(live.outputs["state"], dim=-1)
        near, far = (row_numbers(live, stream).to(states) for stream in ("near", "far"))
        found = []
        for a, b in live.pairs.tolist():
            mine, theirs = live.row == a, live.row == b
            p, q = pair_chances(states[mine], live.source[mine], live.goal[mine], states[theirs], live.other[theirs])
            found.append(-log_of_mean(p, near[a]) - log_of_mean(1 - q, 1 - far[a]))
        return torch.stack(found) if found else states[:0].sum(-1)

    return Term(
        name=name,
        on=(),
        unit="pair",
        loss=loss,
        live=("state",),
        streams=("source", "goal", "other", "near", "far"),
        norm=unit_mean,
        trainee=trainee,
        coef=coef,
    )


def pair_chances(
    states: Tensor, source: Tensor, goal: Tensor, negative_states: Tensor, negative: Tensor
) -> tuple[Tensor, Tensor]:
    """The mean of s(cos) over the drawn (source, goal) and (source, other) of one pair; goals follow their source.

    states [T, H] of the chosen reply and [T', H] of the rejected one, both of length 1; counts [T] and [T'].
    """
    source, goal, negative = (x.to(states) for x in (source, goal, negative))
    weights = (source[:, None] * goal[None]).triu(1)
    near = (torch.sigmoid(states @ states.T) * weights).sum() / weights.sum().clamp(min=1)
    apart = source[:, None] * negative[None]
    far = (torch.sigmoid(states @ negative_states.T) * apart).sum() / apart.sum().clamp(min=1)
    return near, far
