"""LeTI: Learning to Generate from Textual Interactions (arXiv 2305.10314).

Replies told again after what the verifier said of them.
"""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score
from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.method import Method, Option, method, roles
from burnish.methods import opt, register
from burnish.models.model import Model
from burnish.papers import Paper
from burnish.rollout.conditioned import conditioned

LETI = Paper("leti", "2305.10314", "LeTI: Learning to Generate from Textual Interactions")


def with_feedback(
    good: str, bad: str, *, threshold: float = 0.5, score: str = "reward", reader: str = "policy"
) -> Part:
    """Each sampled reply as one text to model: condition, the verifier's words where it failed, question, reply.

    A reply that scores more than the threshold stands under `good`; any other under `bad` and the reason in its verdict
    (where there is one). The first token of the text, which nothing comes before, is by "start"; the rest up to the
    reply by "task". (LeTI, arXiv 2305.10314.)
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            told = []
            for trace in group.traces:
                why = str(trace.note.get("why", ""))
                words = good if trace.scores[score] > threshold else "\n".join(part for part in (bad, why) if part)
                told += _told(trace, group.task, words, step.models[reader])
            group.traces = told
        return [group for group in groups if group.traces]

    return Part(
        name="with_feedback",
        call=call,
        reads=frozenset({f"score:{score}", "tokens:policy"}),
        updates=frozenset({"tokens:task", "tokens:policy"}),
    )


def _told(trace: Trace, task: Task, words: str, reader: Model) -> list[Trace]:
    """The text, cut where the context ends; nothing where no room is left for the reply."""
    prompt = reader.chat.prompt(conditioned(task, words))
    reply = trace.turns[-1].tokens[: max(0, reader.context - len(prompt))]
    if not len(reply):
        return []
    start = Turn(prompt[:1], "start")
    asked = Turn(prompt[1:], "task", parent=start)
    turns = (start, asked, Turn(reply, "policy", parent=asked))
    return [Trace(turns, trace.index, dict(trace.scores), tags=trace.tags, note=dict(trace.note))]


@register(
    LETI,
    family="imitation",
    summary="Model one's own replies together with what the verifier said of them.",
    when="The verifier says in words what went wrong, as compilers do.",
)
def leti(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    good: Annotated[str, Option("Words before the prompt in sampling, and of replies that pass.")] = "",
    bad: Annotated[str, Option("Words before the prompt of replies that fail.")] = "<|bad|>",
    updates: opt.Updates = 3,
) -> Method:
    """Learning from textual interactions: feedback-conditioned fine-tuning on the policy's own replies.

    text = condition (good or bad) + the verifier's words, where the reply failed + question + sampled reply
    L = -(1 / N) sum over the N tokens of the texts, but for their first, of log pi

    No solution is written by hand: replies that fail are learned under `bad` and the reason. The order of the text, the
    loss on all of it and the 3 epochs are the released code's. Departures: that code samples 128 replies and mixes
    in pre-training text, which a task does not give; the good condition is the bare prompt unless words are given,
    so that the product is asked like any other model (the paper: "<|good|>").
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.under(good, rollout.sample(n)),
        score=score.verify(task),
        select=with_feedback(good, bad),
        learn=learn.Learn(learn.imitate(on=("task", "policy")), updates=updates),
        models=roles(),
    )
