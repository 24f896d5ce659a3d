"""MetaRM: Shifted Distributions Alignment via Meta-Learning (arXiv 2405.00438)."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, select
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.learn.learn import Learn, Move, accumulate, apply_gradient
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms import reward as terms
from burnish.learn.terms.reward import row_scores
from burnish.method import Method, Option, chain, frozen, method, roles, trained
from burnish.methods import opt, register
from burnish.methods.reward import END
from burnish.models.model import Model
from burnish.papers import Paper

META_RM = Paper("secrets-of-rlhf-ii", "2405.00438", "MetaRM: Shifted Distributions Alignment via Meta-Learning")


def reward_difference(scores: Tensor) -> Tensor:
    """MetaRM's J = (2 / k^2) sum over i < j of sigmoid(|r_i - r_j|), k answers of a prompt (arXiv 2405.00438)."""
    gaps = torch.sigmoid((scores[:, None] - scores[None]).abs())
    return 2 / len(scores) ** 2 * gaps.triu(1).sum()


def meta_step(ascend: str, eta: float) -> Move:
    """MetaRM's first-order update (arXiv 2405.00438): theta <- theta - alpha grad L(theta + eta grad J(theta)).

    ascend  the name of the term that is -J; the others are L, of which the gradient is taken at theta' and applied at
            theta. eta = 0 is the plain update.
    """

    def move(batch: list[Group], plan: Learn, step: Step) -> None:
        meta = plan.with_terms(*(term for term in plan.terms if term.name == ascend))
        rest = plan.with_terms(*(term for term in plan.terms if term.name != ascend))
        model = step.models[plan.trainees[0]]
        parameters = list(model.optimiser.named.values())
        model.optimiser.zero()
        held = [p.detach().clone() for p in parameters]
        step.models.before_move()
        if eta and accumulate(batch, meta, step):
            _set(model, [p if p.grad is None else p - eta * p.grad for p in parameters])
        model.optimiser.zero()
        found = accumulate(batch, rest, step)
        _set(model, held)
        if found:
            apply_gradient(rest, step)

    return move


@torch.no_grad()
def _set(model: Model, values: list[Tensor]) -> None:
    for p, value in zip(model.optimiser.named.values(), values, strict=True):
        p.copy_(value)
    model.weights_moved()


def differences(*, trainee: str = "rm", on: Authors = (), name: str = "difference") -> Term:
    """-J of MetaRM: minus how far apart the scores of a group's claimed answers are; one number a group."""

    def loss(live: Live) -> Tensor:
        scores, mine = row_scores(live), live.per_row(torch.ones_like(live.outputs["score"])) > 0
        groups = [mine & (live.group == g) for g in range(int(live.group.max()) + 1)]
        found = [-reward_difference(scores[its]) if int(its.sum()) > 1 else scores.sum() * 0 for its in groups]
        return torch.stack(found)

    return Term(name=name, on=on, unit="group", loss=loss, live=("score",), norm=unit_mean, trainee=trainee)


@register(
    META_RM,
    family="reward",
    summary="A reward model that learns to tell the answers of a shifted policy apart, by a meta step.",
    when="The policy has moved away from the answers that were compared, and there are no new labels.",
)
def meta_rm(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    eta: Annotated[
        float, Option("The step of the ascent on the shifted answers; 0 is reward_model.", at_least=0)
    ] = 1e-3,
    policy: Annotated[str | None, Option("The shifted policy; by default the model of the run.")] = None,
) -> Method:
    """MetaRM.

    J = 2/n^2 sum over i < j of s(|r_i - r_j|) over n answers of the shifted policy
    theta' = theta + eta grad J(theta);  theta <- theta - alpha grad L(theta'),  L = -log s( r(x, y_w) - r(x, y_l) )

    First order: the gradient at theta' is applied as it is. The answers need no labels. eta = 0 is reward_model.
    """
    sampled = rollout.sample(n, who="shifted", tag="sampled")
    return method(
        draw=draw.pairs(task),
        rollout=rollout.join(rollout.given("chosen", "rejected", reader="rm"), sampled),
        select=select.given_pairs(),
        credit=chain(
            END,
            credit.claim("difference", "shifted", tag="sampled", positions="end"),
        ),
        learn=learn.Learn(
            terms.score_pairs(on=learn.CLAIMED),
            differences(on=learn.CLAIMED),
            move=meta_step("difference", eta),
        ),
        models=roles("rm", rm=trained(outputs=1), shifted=frozen(policy or "base")),
        product="rm",
    )
