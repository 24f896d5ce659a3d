"""A baseline for losses on unpaired replies: how far the policy has moved, on replies to other prompts."""

from __future__ import annotations

from dataclasses import replace

import torch

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace


@supplies("stream:*")
def kl_baseline(author: str = "demo", *, who: str = "policy", ref: str = "ref", stream: str = "baseline") -> Part:
    """KTO's reference point (Ethayarajh et al., arXiv 2402.01306), one number for the batch, on every token.

        z = max(0, mean over the batch's prompts x of log pi(y'|x) / ref(y'|x)),   y' a reply to another prompt

    y' is the next reply in the order of (sample, task key), whatever the order of the batch, cut to the model's
    context.
    No gradient flows through z. It is computed before the pass's first update and stays the same in all of them.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        ordered = sorted(
            ((trace.index, group.task.key, trace) for group in groups for trace in group.traces),
            key=lambda one: one[:2],
        )
        traces = [trace for _, _, trace in ordered]
        swapped = [
            _answered(trace, other, step.models[who].context)
            for trace, other in zip(traces, [*traces[1:], *traces[:1]], strict=True)
        ]
        masks = [trace.by(author) for trace in swapped]
        budget = step.settings.token_budget
        of_policy, of_ref = (step.models[name].streams(swapped, masks, {"logp"}, budget) for name in (who, ref))
        ratios = [
            float((a["logp"] - b["logp"])[mask].sum()) if "logp" in a else 0.0
            for a, b, mask in zip(of_policy, of_ref, masks, strict=True)
        ]
        z = max(0.0, sum(ratios) / max(1, len(ratios)))
        step.notes.add("baseline", z)
        for trace in traces:
            trace.streams[stream] = torch.full((len(trace),), z)
        return groups

    return Part(
        name="kl_baseline",
        call=call,
        reads=frozenset({f"tokens:{author}", f"model:{who}.logp", f"model:{ref}.logp"}),
        writes=frozenset({f"stream:{stream}"}),
    )


def _answered(prompt: Trace, reply: Trace, context: int) -> Trace:
    """One trace's prompt followed by another's reply, cut to the context."""
    turns, room = [prompt.turns[0]], context - len(prompt.turns[0])
    for turn in reply.turns[1:]:
        turns.append(replace(turn.first(max(0, room)), parent=turns[-1]))
        room -= len(turn)
    return Trace(tuple(turns))
