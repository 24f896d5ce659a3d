"""Guides of the next token: value models, chances of success, and rewards of what a model would write next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from burnish.core.parts import Part
from burnish.core.step import Notes, Step
from burnish.core.types import Group, Trace, Turn, input_keys
from burnish.engine.request import Request
from burnish.forward.kept_keys import fork
from burnish.forward.module import scalar_head
from burnish.rollout.candidates import Guide, keeps, state_after
from burnish.rollout.starts import Reply
from burnish.score.reading import require_same_tokens


def by_lookahead(score: Part, weight: float, *, k: int, length: int, by: str, name: str = "reward") -> Guide:
    """weight x reward of the text, after the candidate and up to `length` more tokens that the model `by` writes
    greedily (Transfer Q*, arXiv 2405.20495; DeAL, 2402.06147). Tokens outside of the k likeliest are cut.

    score  the part that scores traces as scores[name]; its metrics are not recorded. The lookahead is discarded.
    """

    def scores(replies: Sequence[Reply], candidates: Tensor, step: Step) -> Tensor:
        ahead = continued(replies, candidates, length, by, step)
        apart = replace(step, notes=Notes(), eager=(), begun={}, dropped=[], refusals=[])
        groups = [Group(reply.start.task, traces) for reply, traces in zip(replies, ahead, strict=True)]
        score.call(groups, apart)
        rewards = [[trace.scores.get(name, float("nan")) for trace in traces] for traces in ahead]
        return weight * torch.tensor(rewards)

    needs = {need for need in score.reads if need.startswith("model:")}
    reads = frozenset({f"model:{by}.generate", *needs}) if weight else frozenset()
    shown = f"by_lookahead({weight:g} {name}, {length} tokens of {by})"
    return Guide(shown, scores if weight else None, k, cut=True, reads=reads)


@torch.no_grad()
def heads_after(replies: Sequence[Reply], candidates: Tensor, model: str, step: Step) -> Tensor:
    """[B, k]: what the head of a model says after each reply and each of its candidates."""
    require_same_tokens(model, replies[0].start.who, step)
    reader = step.models[model]
    if keeps(replies, reader):
        state_after(replies, reader)
        runner = reader.working.current()
        states = fork(runner, [reply.kept[reader.name] for reply in replies], candidates)
        heads = scalar_head(runner.module, states.flatten(0, 1)).float().cpu()
    else:
        traces = [trace for row in _traces(replies, candidates) for trace in row]
        masks = [torch.arange(len(trace)) == len(trace) - 1 for trace in traces]
        found = reader.streams(traces, masks, {"score"}, step.settings.token_budget)
        heads = torch.stack([one["score"][-1] for one in found])
    if heads.ndim > 1:
        raise ValueError(
            f"the value model {model!r} gives {heads.shape[-1]} numbers for a token, not one; pass a model with one"
        )
    return heads.reshape(candidates.shape)


def continued(replies: Sequence[Reply], candidates: Tensor, length: int, by: str, step: Step) -> list[list[Trace]]:
    """Each reply with each of its candidates, and what the model `by` writes after it, greedily, at most `length`
    tokens and within the limits of a reply; nothing after a token that ends a reply.
    """
    writer, longest = step.models[by], step.settings.max_new_tokens
    require_same_tokens(by, replies[0].start.who, step)
    found = _traces(replies, candidates)
    asked: list[tuple[int, int, Request]] = []
    for i, (reply, traces) in enumerate(zip(replies, found, strict=True)):
        for j, trace in enumerate(traces):
            room = min(length, longest - len(reply) - 1, writer.context - len(trace))
            if room > 0 and int(candidates[i, j]) not in writer.chat.stops:
                keys = input_keys(trace.turns)
                asked.append((i, j, Request(trace.tokens, 0, room, temperature=0.0, input_keys=keys)))
    samples = writer.generate([request for _, _, request in asked]) if asked else []
    for (i, j, _), sample in zip(asked, samples, strict=True):
        trace = found[i][j]
        found[i][j] = replace(trace, turns=(*trace.turns, Turn(sample.tokens, by, parent=trace.turns[-1])))
    return found


def _traces(replies: Sequence[Reply], candidates: Tensor) -> list[list[Trace]]:
    """Each reply with each of its candidates as one more turn."""
    return [
        [Trace((*turns, Turn(token, reply.start.author, parent=turns[-1]))) for token in row.split(1)]
        for reply, row in zip(replies, candidates, strict=True)
        for turns in [reply.turns()]
    ]
