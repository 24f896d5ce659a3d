"""The Trickle-down Impact of Reward (In-)consistency on RLHF (arXiv 2309.16155).

ConvexDA (arXiv 2309.16155): of perturbed copies of a reply, those at the rim of its neighbourhood become data.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor

from burnish import draw, learn, rollout
from burnish.core import randomness
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace, Turn
from burnish.learn.terms import reward as terms
from burnish.method import Method, Option, method, roles, trained
from burnish.methods import papers, register
from burnish.methods.reward import END
from burnish.score.heads import end_outputs
from burnish.select.pairs import given_pairs

METRICS = (("augmented", "Credit", "mean number of perturbed copies that joined a pair"),)


def perturbed(text: str, share: float, dice: random.Random) -> str:
    """The text with at most a share of its words (one at least) dropped, doubled or swapped with the next one."""
    words = text.split(" ")
    for _ in range(max(1, int(share * len(words)))):
        place = dice.randrange(len(words))
        kind = dice.choice(("drop", "double", "swap"))
        if kind == "drop" and len(words) > 1:
            del words[place]
        elif kind == "swap" and place + 1 < len(words):
            words[place], words[place + 1] = words[place + 1], words[place]
        else:
            words.insert(place, words[place])
    return " ".join(words)


def plane(points: Tensor) -> Tensor:
    """[n, H] -> [n, 2]: the two principal components."""
    centred = points - points.mean(0)
    _, _, directions = torch.linalg.svd(centred, full_matrices=False)
    plane: Tensor = centred @ directions[:2].T
    return plane


def hull(points: Sequence[tuple[float, float]]) -> set[int]:
    """The indices of the vertices of the convex hull; none where fewer than 3 points differ or all lie on a line."""
    order = sorted(range(len(points)), key=lambda i: points[i])
    order = [i for k, i in enumerate(order) if not k or points[i] != points[order[k - 1]]]
    if len(order) < 3:
        return set()

    def half(some: list[int]) -> list[int]:
        chain: list[int] = []
        for i in some:
            while len(chain) > 1 and _turn(points[chain[-2]], points[chain[-1]], points[i]) <= 0:
                chain.pop()
            chain.append(i)
        return chain[:-1]

    found = {*half(order), *half(order[::-1])}
    return found if len(found) > 2 else set()


def _turn(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    """Positive where a, b, c turn to the left."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


@supplies("pairs")
def convex_pairs(copies: int, share: float, *, model: str = "rm") -> Part:
    """The data's pairs, and pairs with the perturbed copies of either reply that are vertices of the convex hull.

    The hull is that of the reply and its copies, by the model's last hidden states in two principal components.
    """
    given = given_pairs()

    def call(groups: list[Group], step: Step) -> list[Group]:
        added = 0
        for group in groups:
            for trace in list(group.traces) if copies > 1 else ():  # a hull needs three points
                made = _copies(group, trace, copies, share, step, model)
                points = plane(end_outputs([trace, *made], step, model, "state"))
                rim = hull([(float(x), float(y)) for x, y in points])
                kept = [copy for i, copy in enumerate(made, 1) if i in rim]
                group.traces = [*group.traces, *kept]
                added += len(kept)
        step.notes.add("augmented", added, max(1, len(groups)))
        return given.call(groups, step)

    return Part(
        name=f"convex_pairs({copies})", call=call, reads=given.reads | {f"model:{model}.state"}, writes=given.writes
    )


def _copies(group: Group, trace: Trace, copies: int, share: float, step: Step, model: str) -> list[Trace]:
    """Perturbed copies of a trace's reply: the same words in every epoch."""
    chat, context = step.models[model].chat, step.models[model].context
    prompt, reply = trace.turns[0], trace.turns[-1]
    dice = randomness.rng("convex", group.task.key, sorted(trace.tags))
    made = []
    for _ in range(copies):
        tokens = chat.reply(perturbed(chat.text(reply.tokens), share, dice))
        turn = Turn(tokens, reply.author, parent=prompt).first(max(1, context - len(prompt)))
        made.append(replace(trace, turns=(prompt, turn), id=type(trace.id)(), scores={}, streams={}, note={}))
    return made


@register(
    papers.CONTRAST_INSTRUCTIONS,
    family="reward",
    summary="A reward model trained on perturbed copies of its texts as well, those at the rim of their neighbourhood.",
    when="Scores change with the wording: small edits of a reply flip the order.",
)
def convex_reward_model(
    task: draw.Source,
    *,
    copies: Annotated[int, Option("Perturbed copies of each reply; 0 is reward_model.", at_least=0)] = 5,
    share: Annotated[
        float, Option("Share of the words that a copy changes at most, one at least.", above=0, at_most=1)
    ] = 0.05,
) -> Method:
    """ConvexDA, of The Trickle-down Impact of Reward (In-)consistency.

    Each reply has `copies` perturbed versions; their last hidden states are projected to two principal components, and
    the versions that are vertices of the convex hull join the data, with the reply's side of the pair.
    L = -log s( r(x, y_w) - r(x, y_l) ), mean over all pairs

    Departure: the paper embeds texts with SimCSE; here the reward model's own states are used. The paper's other half,
    RewardFusion, is the scorer `fused`; its benchmark is `burnish eval-reward`.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected", reader="rm"),
        select=convex_pairs(copies, share),
        credit=END,
        learn=learn.Learn(terms.score_pairs(on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=1)),
        product="rm",
    )
