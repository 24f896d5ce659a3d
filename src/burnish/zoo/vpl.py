"""Personalizing Reinforcement Learning from Human Feedback with Variational Preference Learning (arXiv
2408.10075).

Pairs of one user side by side, so that what one of them says of the user can be used for the others.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from burnish import draw, learn, rollout
from burnish.core.parts import Part, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.reward import normal_noise
from burnish.learn.maths.preference import bradley_terry
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.reward import note_order, row_numbers, row_scores
from burnish.learn.terms.reward_heads import latent_posterior
from burnish.method import Method, Option, chain, method, roles, trained
from burnish.methods import papers, register
from burnish.methods.reward import END
from burnish.select.pairs import given_pairs

METRICS = (("pairs_of_user", "Credit", "mean number of pairs of one user in the batch"),)


def kl_to_standard_normal(mean: Tensor, log_variance: Tensor) -> Tensor:
    """KL( N(mean, variance) || N(0, 1) ) summed over the last dimension: 1/2 (mean^2 + var - 1 - log var)."""
    return 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1)


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


@supplies("pairs", "tag:of a user")
def user_pairs(column: str) -> Part:
    """The data's pairs, in one group for each user of the batch; rows without the column are one user's."""
    given = given_pairs()

    def call(groups: list[Group], step: Step) -> list[Group]:
        merged: dict[str, Group] = {}
        for group in given.call(groups, step):
            mine = merged.setdefault(str(group.task.given.get(column, "")), Group(group.task, [], []))
            start = len(mine.traces)
            mine.traces = [*mine.traces, *group.traces]
            mine.pairs = [*(mine.pairs or ()), *((a + start, b + start) for a, b in group.pairs or ())]
        step.notes.add("pairs_of_user", sum(len(g.pairs or ()) for g in merged.values()), max(1, len(merged)))
        return list(merged.values())

    return Part(
        name=f"user_pairs({column})", call=call, reads=given.reads, writes=given.writes | names("tag", "of a user")
    )


@register(
    papers.VPL,
    family="reward",
    summary="A reward model with a latent variable per user, inferred from the user's other comparisons.",
    when="Users want different things, and some comparisons of each user are known.",
    trial={"user": "answer"},
    example="burnish train vpl --task pairs.jsonl",
)
def vpl(
    task: draw.Source,
    *,
    latent: Annotated[int, Option("Dimensions of the latent variable; 512 in the paper.", at_least=1)] = 16,
    beta: Annotated[float, Option("Weight of the KL to the prior.", at_least=0)] = 3e-6,
    user: Annotated[str, Option("The column that says who compared the replies.")] = "user",
) -> Method:
    """Variational preference learning.

    q(z | the user's other pairs) = N(mu, var), mean over pairs of an encoding of both replies, within [-1, 1]
    r(x, y, z) = r_0(x, y) + z . U(x, y),  z = mu + std eps, rescaled to norm sqrt(latent)
    L = -log s( r(x, y_w, z) - r(x, y_l, z) ) + beta KL(q || N(0, 1));  mean over pairs

    The context of a pair is the user's other pairs in the batch; where there are none, z is drawn from the prior. Use
    `vpl(DIR, context=FILE)`: z is the mean, without the rescaling. The product has 1 + 5 latent labels. Departures: the
    encoder and the decoder are linear on a backbone that is trained (the paper: MLPs and attention on a frozen one),
    beta is constant, a context's encodings are averaged without attention, and a user's rewards are not rescaled to the
    scale of the others'. Left out: a policy conditioned on z, the choice of questions that tell users apart, and any
    use of the variance of q but in training. Where U is 0 it is reward_model.
    """
    draw.require_column(task, (user,), f"user={user}", "who compared the replies", "reward_model")
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=user_pairs(user),
        credit=chain(END, normal_noise(latent)),
        learn=learn.Learn(latent_pairs(latent, beta, on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=1 + 5 * latent)),
        product="rm",
    )
