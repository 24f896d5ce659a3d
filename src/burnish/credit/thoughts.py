"""Thoughts: the tokens of a reply between <think> and </think>, and a bonus of their entropy."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.models.chat import Chat
from burnish.score.segments import tokens_of

_THOUGHT = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)


def thought_tokens(trace: Trace, chat: Chat, author: str = "policy") -> Tensor:
    """[T] bool: the author's tokens inside of <think>...</think>; up to the end where it is not closed."""
    found = torch.zeros(len(trace), dtype=torch.bool)
    for turn, start, _ in trace.spans():
        if turn.author != author:
            continue
        for match in _THOUGHT.finditer(chat.text(turn.tokens)):
            if match[1]:
                first, last = tokens_of(turn.tokens, chat, match.span(1))
                found[start + first : start + last] = True
    return found


@supplies("stream:adv")
def entropy_of_thoughts(alpha: float, kappa: float, *, author: str = "policy", reader: str = "policy") -> Part:
    """A_t <- A_t + min(alpha H_t, |A_t| / kappa) at the tokens of thoughts, H the entropy when they were sampled.

    The bonus has no gradient and never turns the sign of an advantage (kappa > 1). alpha = 0 changes nothing.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat, thought, tokens = step.models[reader].chat, 0, 0
        for trace in (trace for group in groups for trace in group.traces):
            where = thought_tokens(trace, chat, author)
            adv, entropy = trace.streams["adv"], trace.streams["entropy"]
            adv[where] += torch.minimum(alpha * entropy[where], adv[where].abs() / kappa)
            thought, tokens = thought + int(where.sum()), tokens + int(trace.by(author).sum())
        step.notes.add("thought_share", thought, max(1, tokens))
        return groups

    return Part(
        name=f"entropy_of_thoughts({alpha:g}, {kappa:g})",
        call=call,
        reads=frozenset({"stream:adv", "stream:entropy", f"tokens:{author}"}),
        updates=frozenset({"stream:adv"}),
    )
