"""LeTI: Learning to Generate from Textual Interactions (arXiv 2305.10314)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score, select
from burnish.method import Method, Option, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

LETI = Paper("leti", "2305.10314", "LeTI: Learning to Generate from Textual Interactions")


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
    temperature: opt.Temperature = 1.0,
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
        rollout=rollout.under(good, rollout.sample(n, temperature=temperature)),
        score=score.verify(task),
        select=select.with_feedback(good, bad),
        learn=learn.Learn(learn.imitate(on=("task", "policy")), updates=updates),
        models=roles(),
    )
