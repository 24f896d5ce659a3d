"""Random sources, goals and negatives of goal-conditioned representations (arXiv 2407.13887)."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.core import randomness
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.preference import fill
from burnish.learn.terms.reward_heads import pair_chances


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
