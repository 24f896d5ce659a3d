"""Replies and prompts as vectors: by their words, or by the mean hidden state of the policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import numpy as np

from burnish.core.method import Group, Option, Step, Trace
from burnish.score.judge import reply_text
from burnish.score.maths.similarity import embedded, unit

Vectors = list[np.ndarray]
Embedding = Annotated[
    Literal["words", "hidden"], Option("words: hashed n-grams; hidden: mean hidden states of the policy.")
]
NEEDS = {"words": frozenset[str](), "hidden": frozenset({"model:policy.hidden"})}


def replies(how: str) -> Callable[[Sequence[Trace], Step], Vectors]:
    """A unit vector for each reply."""
    return {"words": _by_words, "hidden": _by_hidden}[how]


def prompts(groups: Sequence[Group]) -> Vectors:
    """A unit vector for each prompt, by its words."""
    return [embedded(_prompt_text(group)) for group in groups]


def _prompt_text(group: Group) -> str:
    prompt = group.task.prompt
    return prompt if isinstance(prompt, str) else "\n".join(str(message.get("content", "")) for message in prompt)


def _by_words(traces: Sequence[Trace], step: Step) -> Vectors:
    chat = step.models["policy"].chat
    return [embedded(reply_text(trace, chat)) for trace in traces]


def _by_hidden(traces: Sequence[Trace], step: Step) -> Vectors:
    """One forward pass of the policy over the replies; the mean over the tokens of a reply of the last layer."""
    masks = [trace.by("policy") for trace in traces]
    found = step.models["policy"].streams(list(traces), masks, {"hidden"}, step.settings.token_budget)
    width = next((output["hidden"].shape[1] for output in found if output), 1)
    return [
        unit(output["hidden"][mask].mean(0).double().numpy()) if bool(mask.any()) else np.zeros(width)
        for output, mask in zip(found, masks, strict=True)
    ]
