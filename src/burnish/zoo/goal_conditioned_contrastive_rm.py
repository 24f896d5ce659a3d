"""Learning Goal-Conditioned Representations for Language Reward Models (arXiv 2407.13887).

Random sources, goals and negatives of goal-conditioned representations (arXiv 2407.13887).
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, select
from burnish.core import randomness
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.preference import fill
from burnish.learn.norms import unit_mean
from burnish.learn.term import Live, Term
from burnish.learn.terms import reward as terms
from burnish.learn.terms.reward import row_numbers
from burnish.method import Method, Option, chain, method, roles, trained
from burnish.methods import papers, register
from burnish.methods.reward import END

METRICS = (
    ("goal_near", "Credit", "mean sigmoid of the cosine of a state and a later state of the same chosen reply", "up"),
    ("goal_far", "Credit", "mean sigmoid of the cosine of a state of the chosen and one of the rejected reply", "down"),
)


def log_of_mean(each: Tensor, mean: Tensor) -> Tensor:
    """Summands whose mean over the batch is log(mean of `each`), and so is their gradient.

        log m + (p_i - m) / m,  m = `mean` the batch's mean of p, held constant

    A loss may see one micro-batch, the logarithm stands outside of the mean over the whole batch: d log m = sum dp_i /
    (n m).
    """
    held = mean.detach()
    return held.log() + (each - held) / held


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


@supplies("stream:source", "stream:goal", "stream:other", "stream:near", "stream:far")
def goals(draws: int, *, model: str = "rm", author: str = "demo") -> Part:
    """Streams "source", "goal" and "other": how often each token of a pair was drawn; "near" and "far": the batch's
    means of s(cos).

    In the chosen reply two random places, the earlier one the source and the later one the goal; in the rejected reply
    one random place; `draws` times. The means are those of the present weights, before the first update of the batch.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        pairs = [(group, group.traces[a], group.traces[b]) for group in groups for a, b in group.pairs or ()]
        for group in groups:
            for trace in group.traces:
                for stream in ("source", "goal", "other"):
                    fill(trace, stream, 0.0)
        for group, chosen, rejected in pairs:
            _draw(group, chosen, rejected, draws, step, author)
        traces = [trace for group in groups for trace in group.traces]
        masks = [trace.by(author) for trace in traces]
        found = step.models[model].streams(traces, masks, {"state"}, step.settings.token_budget)
        states = {id(trace): one["state"] for trace, one in zip(traces, found, strict=True)}
        chances = [_chances(chosen, rejected, states, author) for _, chosen, rejected in pairs]
        near, far = (sum(side) / len(side) for side in zip(*chances, strict=True)) if chances else (0.5, 0.5)
        for trace in traces:
            fill(trace, "near", near)
            fill(trace, "far", far)
        step.notes.add("goal_near", near)
        step.notes.add("goal_far", far)
        return groups

    return Part(
        name=f"goals({draws})",
        call=call,
        reads=frozenset({"pairs", f"model:{model}.state", f"tokens:{author}"}),
        writes=frozenset(f"stream:{name}" for name in ("source", "goal", "other", "near", "far")),
    )


def _draw(group: Group, chosen: Trace, rejected: Trace, draws: int, step: Step, author: str) -> None:
    dice = randomness.rng(step.clock.seed, "goals", step.clock.step, step.clock.tick, group.task.key)
    mine, theirs = (trace.by(author).nonzero().flatten().tolist() for trace in (chosen, rejected))
    for _ in range(draws if len(mine) > 1 and theirs else 0):
        source, goal = sorted(dice.sample(mine, 2))
        chosen.streams["source"][source] += 1
        chosen.streams["goal"][goal] += 1
        rejected.streams["other"][dice.choice(theirs)] += 1


def _chances(chosen: Trace, rejected: Trace, states: dict[int, Tensor], author: str) -> tuple[float, float]:
    sides = []
    for trace in (chosen, rejected):
        mask = trace.by(author)
        sides.append((torch.nn.functional.normalize(states[id(trace)][mask].double(), dim=-1), mask))
    (mine, m), (theirs, t) = sides
    near, far = pair_chances(
        mine, chosen.streams["source"][m], chosen.streams["goal"][m], theirs, rejected.streams["other"][t]
    )
    return float(near), float(far)


@register(
    papers.GOAL_CONDITIONED_CONTRASTIVE_RM,
    family="reward",
    summary="A reward model whose states within good replies point to their ends, by a contrastive term.",
    when="Unfinished replies are to be judged as well: the cosine to a goal is a dense value.",
)
def goal_conditioned_rm(
    task: draw.Source,
    *,
    coef: Annotated[float, Option("Weight of the contrastive term; 0 is reward_model.", at_least=0)] = 0.5,
    draws: Annotated[int, Option("Places drawn in each reply.", at_least=1)] = 16,
) -> Method:
    """Goal-conditioned representations for reward models.

    L = -log s( r_w - r_l ) + coef { -log mean s(cos(source, goal)) - log(1 - mean s(cos(source, other))) }

    Sources and later goals are states at random places of the chosen reply, others of the rejected one; the means are
    over the batch. cos is at most 1, so the term in braces is at least 0.6265. coef = 0 is reward_model. Departure: all
    drawn sources are compared with all drawn goals that follow them; the code compares all with all. Left out: both
    uses while decoding, a partial reply that is dropped for its score and steering towards a goal state; the reward
    `goal` scores whole replies.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=select.given_pairs(),
        credit=chain(END, credit.claim("goal", "demo"), goals(draws)),
        learn=learn.Learn(terms.score_pairs(on=learn.CLAIMED), goal_contrast(coef)),
        models=roles("rm", rm=trained(outputs=1)),
        product="rm",
    )
