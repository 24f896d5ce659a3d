"""log pi of a continuation after a context, both texts; and whether greedy decoding would write it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from burnish.models.chat import Chat
    from burnish.models.model import Model

MOST_LOGITS = 1 << 25  # numbers that one forward may leave: 128 MB in fp32


class Pair(NamedTuple):
    """A row of tokens of which the last `said` are the continuation."""

    tokens: Tensor
    said: int


class Likelihood(NamedTuple):
    """The sum of log pi over the continuation's tokens, and whether each of them is the likeliest."""

    logp: float
    greedy: bool


def pair_of(chat: Chat, context: str, continuation: str, limit: int) -> Pair:
    """The tokens of a context with its continuation, as the LM Evaluation Harness splits them.

    Spaces at the end of the context belong to the continuation. Both are encoded together, so that a token may not
    cross from one to the other in one case alone. The context loses its first tokens where the row is longer than
    `limit`. An empty context is the tokenizer's bos, or else eos.
    """
    spaces = len(context) - len(context.rstrip())
    if spaces:
        context, continuation = context[:-spaces], context[-spaces:] + continuation
    encode = chat.tokenizer.encode
    whole: list[int]
    if not context:
        bos = getattr(chat.tokenizer, "bos_token_id", None)
        start = chat.tokenizer.eos_token_id if bos is None else bos
        assert start is not None  # a tokenizer without an end is refused when the model is loaded
        whole, before = [int(start), *encode(continuation, add_special_tokens=False)], 1
    else:
        whole, before = encode(context + continuation), len(encode(context))
    said = max(1, len(whole) - before)
    if said >= limit:
        raise ValueError(f"a continuation has {said} tokens, and the model's context holds {limit}; take another model")
    return Pair(chat.ids(whole[-limit:]), said)


@torch.no_grad()
def likelihoods(model: Model, pairs: Sequence[Pair], on_progress: object = None) -> list[Likelihood]:
    """The likelihood of each pair's continuation. Pairs that share a context share its computation."""
    results: list[Likelihood] = []
    for batch in _batches(pairs, model):
        masks = [torch.arange(len(pair.tokens)) >= len(pair.tokens) - pair.said for pair in batch]
        logits = model.outputs([pair.tokens for pair in batch], masks, {"logits"})["logits"].float()
        start = 0
        for pair in batch:
            own, words = logits[start : start + pair.said], pair.tokens[-pair.said :].to(logits.device)
            start += pair.said
            chosen = torch.log_softmax(own.double(), -1).gather(-1, words[:, None])
            results.append(Likelihood(float(chosen.sum()), bool((own.argmax(-1) == words).all())))
        if callable(on_progress):
            on_progress(len(results))
    return results


def _batches(pairs: Sequence[Pair], model: Model) -> Iterator[list[Pair]]:
    vocabulary = model.chat.vocabulary or 1
    budget, most = model.token_room.within(1 << 13), max(1, MOST_LOGITS // vocabulary)
    batch: list[Pair] = []
    for pair in pairs:
        full = sum(len(one.tokens) for one in batch) + len(pair.tokens) > budget
        if batch and (full or sum(one.said for one in batch) + pair.said > most):
            yield batch
            batch = []
        batch.append(pair)
    if batch:
        yield batch
