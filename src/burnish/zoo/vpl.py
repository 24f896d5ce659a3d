"""Personalizing Reinforcement Learning from Human Feedback with Variational Preference Learning (arXiv
2408.10075).

Pairs of one user side by side, so that what one of them says of the user can be used for the others.
"""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout
from burnish.core.parts import Part, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.reward import normal_noise
from burnish.learn.terms import reward_heads as heads_terms
from burnish.method import Method, Option, chain, method, roles, trained
from burnish.methods import papers, register
from burnish.methods.reward import END
from burnish.select.pairs import given_pairs


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
        learn=learn.Learn(heads_terms.latent_pairs(latent, beta, on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=1 + 5 * latent)),
        product="rm",
    )
