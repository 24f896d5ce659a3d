"""Scores of the steps of a reply from a model, as one score of the trace or as token rewards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from burnish.core.parts import Part, supplies
from burnish.core.scorer import DENSE, mark_failed
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.score.reading import require_same_tokens
from burnish.score.segments import Segmentation, at_positions, step_ends
from burnish.score.step_rewards import Form, place

Read = Callable[[Tensor], Tensor]  # what the head says -> the score of a step


def chance(head: Tensor) -> Tensor:
    """The chance that a step is right: the sigmoid of the head."""
    return head.sigmoid()


def centred_chance(head: Tensor) -> Tensor:
    """2 chance - 1: 1 for a right step, -1 for a wrong one, 0 where the model cannot tell."""
    return 2 * head.sigmoid() - 1


def sign(head: Tensor) -> Tensor:
    """1 where the head is above 0 (the likelier class is "right"), else -1: a hard verdict."""
    return (head > 0).to(head.dtype) * 2 - 1


def number(head: Tensor) -> Tensor:
    """The head itself: of a model that was trained by comparisons, or by regression."""
    return head


def step_scores(
    traces: Sequence[Trace], model: str, steps: Segmentation, read: Read, step: Step, author: str = "policy"
) -> list[tuple[list[int], list[float]]]:
    """For each trace the positions at which its steps end and the model's score of each step."""
    chat = step.models[author].chat
    require_same_tokens(model, author, step)
    ends = [step_ends(trace, steps, chat, author) for trace in traces]
    masks = [at_positions(len(trace), own) for trace, own in zip(traces, ends, strict=True)]
    found = step.models[model].streams(list(traces), masks, {"score"}, step.settings.token_budget)
    return [(own, read(one["score"][own]).tolist() if own else []) for own, one in zip(ends, found, strict=True)]


@supplies("score:reward/*")
def aggregated_steps(
    model: str, steps: Segmentation, aggregate: Callable[[Sequence[float]], float], *, name: str, read: Read = chance
) -> Part:
    """scores[name] = the aggregate of the scores of the steps of a reply."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        for trace, (_, scores) in zip(traces, step_scores(traces, model, steps, read, step), strict=True):
            trace.scores[name] = aggregate(scores) if scores else 0.0
            if not scores:
                mark_failed(trace, "the reply has no tokens, so it has no steps to score")
        return groups

    return Part(
        name=f"aggregated_steps({model})",
        call=call,
        reads=frozenset({"tokens:policy", f"model:{model}.score"}),
        writes=frozenset({f"score:{name}"}),
    )


@supplies("stream:dense/*")
def dense_steps(model: str, steps: Segmentation, form: Form, *, name: str, read: Read = chance) -> Part:
    """Stream dense/NAME: the rewards that `form` makes of the scores of steps, at the tokens that end the steps."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        for trace, (ends, scores) in zip(traces, step_scores(traces, model, steps, read, step), strict=True):
            trace.streams[DENSE + name] = place(len(trace), ends, form(scores))
        return groups

    return Part(
        name=f"dense_steps({model})",
        call=call,
        reads=frozenset({"tokens:policy", f"model:{model}.score"}),
        writes=frozenset({f"stream:{DENSE}{name}"}),
    )
