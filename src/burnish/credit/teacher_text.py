"""A teacher with another tokenizer: its log-probs of the same text, aligned where both have a token end.

The student's reply is written again in the teacher's chat template and tokens. Between two places of the text at which
tokens of both end lies a span; its log-prob is the sum over its tokens, of either model (the chain rule, as GOLD merges
them in TRL). Of spans of one token each, that is the log-prob of the token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.streams import streams
from burnish.models.chat import Chat
from burnish.score.reading import in_words_of, same_tokens
from burnish.util.tensors import NAN

UNREAD = "\ufffd"  # half a character
Span = tuple[int, int, int, int]  # [first, last) of the student's reply tokens, and of the teacher's


@supplies("stream:teacher")
def teacher_logp(teacher: str = "teacher", *, author: str = "policy", student: str = "old") -> Part:
    """The teacher's log-probs of each reply, as stream "teacher". Of a teacher with another tokenizer each token of a
    span gets the student's own plus log p_teacher(span) - log p_student(span), so that their difference is the span's.
    """
    own = streams(teacher, logp="teacher")

    def call(groups: list[Group], step: Step) -> list[Group]:
        chats = [step.models[name].chat for name in (teacher, author)]
        if same_tokens(*chats) and chats[0].closing.tolist() == chats[1].closing.tolist():
            return own.call(groups, step)
        traces = [trace for group in groups for trace in group.traces]
        read = [trace for group in in_words_of(teacher, groups, author, step) for trace in group.traces]
        masks = [trace.by(author) for trace in read]
        heat = step.logp_at("run")
        streams_read = step.models[teacher].streams(read, masks, {"logp"}, step.settings.token_budget, *heat)
        for trace, again, mask, values in zip(traces, read, masks, streams_read, strict=True):
            ended = int(trace.tokens[-1]) in chats[1].stops
            ends, said = _ends(again, chats[0])
            kept = len(ends) if ended else max(1, len(ends) - len(chats[0].closing))  # a cut reply has no end
            spans = aligned(*_ends(trace, chats[1]), ends[:kept], said)
            _write(trace, student, author, spans, values["logp"][mask])
            step.notes.add("teacher_spans", len(spans), int(trace.by(author).sum()))
        return groups

    return replace(
        own,
        name=f"teacher_logp({teacher})",
        call=call,
        reads=own.reads | {f"tokens:{author}", f"stream:{student}"},
        kind="words",
    )


def aligned(mine: Sequence[int], text: str, theirs: Sequence[int], said: str) -> list[Span]:
    """The spans of two tokenisations of a text. mine, theirs: where each token ends in it, -1 inside of a character.

    What differs in space at either end is no difference; a teacher may have read the beginning alone. Other texts have
    nothing in common but their ends.
    """
    if not text.strip().startswith(said.strip()):
        return [(0, len(mine), 0, len(theirs))]
    whole = text.strip() == said.strip()
    lead, other = (len(one) - len(one.lstrip()) for one in (text, said))
    stripped = len(said.strip())

    def places(ends: Sequence[int], before: int) -> dict[int, int]:
        """Place in the stripped text -> the number of tokens up to it, the fewest."""
        tokens_to: dict[int, int] = {}
        for i, end in enumerate(ends, 1):
            if end >= 0 and (whole or end - before <= stripped):
                tokens_to.setdefault(min(max(end - before, 0), stripped), i)
        return tokens_to

    ours, again = places(mine, lead), places(theirs, other)
    cuts = sorted(place for place in ours.keys() & again.keys() if place)
    ends = [(0, 0), *((ours[place], again[place]) for place in cuts), *([(len(mine), len(theirs))] if whole else [])]
    return [(a, b, c, d) for (a, c), (b, d) in pairwise(ends) if b > a and d > c]


def _ends(trace: Trace, chat: Chat) -> tuple[list[int], str]:
    """Where each token of a reply ends in its text, -1 inside of a character; and the text."""
    tokens = trace.turns[1].tokens
    text = chat.text(tokens)
    pieces = [chat.text(token[None]) for token in tokens]
    if UNREAD in "".join(pieces) or "".join(pieces) != text:
        begun = [chat.text(tokens[: i + 1]) for i in range(len(tokens))]
        return [len(one) if text.startswith(one) else -1 for one in begun], text
    ends, end = [], 0
    for piece in pieces:
        end += len(piece)
        ends.append(end)
    return ends, text


def _write(trace: Trace, student: str, author: str, spans: list[Span], theirs: Tensor) -> None:
    """Stream "teacher" of a trace. Tokens behind the last span, which a full teacher did not read, keep their own."""
    mask = trace.by(author)
    own = trace.streams[student][mask]
    logp = own.clone()
    for first, last, begin, end in spans:
        logp[first:last] = own[first:last] + (theirs[begin:end].sum() - own[first:last].sum())
    trace.streams["teacher"] = torch.full((len(trace),), NAN)
    trace.streams["teacher"][mask] = logp
