"""The OpenAI protocol of plain completions, /v1/completions: a prompt as text or tokens, without a chat template.

A prompt of tokens that begins with all of an earlier one and its reply goes on from it: token in, token out. With
`echo` and `logprobs` the log-probs of the prompt's tokens come with the answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from burnish.serve.asked import MOST_TOP, Answered, Asked, BadRequest, Piece
from burnish.serve.deltas import Deltas
from burnish.serve.options import read_count, read_format, read_object, read_options
from burnish.serve.protocol import usage_of
from burnish.util.json_types import JsonObject

LENGTH = 16  # of a reply where the request does not say, as in the protocol


def read_request(body: bytes) -> Asked:
    """The request for a completion in a body; raises BadRequest."""
    given = read_object(body)
    prompt = given.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(type(token) is int and token >= 0 for token in prompt):
        prompt = tuple(prompt)
    if not isinstance(prompt, str | tuple) or not prompt:
        raise BadRequest("prompt must be one text, or one list of token ids")
    if given.get("suffix"):
        raise BadRequest("suffix is not supported; leave it out")
    asked = read_options(given)
    top = read_count(given, "logprobs", 0, MOST_TOP) if given.get("logprobs") is not True else 0
    return replace(
        asked,
        prompt=prompt,
        max_tokens=asked.max_tokens or LENGTH,
        logprobs=top is not None,
        top=top or 0,
        echo=bool(given.get("echo")),
        schema=read_format(given.get("response_format")),
    )


def completion(answers: Sequence[Answered], asked: Asked) -> JsonObject:
    """The JSON of a whole answer."""
    choices = [_choice(i, answered, asked) for i, answered in enumerate(answers)]
    head = _head(asked, answers[0].id)
    return {**head, "choices": choices, "usage": usage_of(answers), "prompt_token_ids": answers[0].prompt}


def chunks(items: Iterable[Piece | Answered], asked: Asked) -> Iterator[JsonObject]:
    """The JSON of the pieces of a streamed answer, as they come."""
    answers: list[Answered] = []
    so_far: dict[int, Deltas] = {}
    head = _head(asked, f"cmpl-{time.time_ns()}")
    for item in items:
        for _, text in so_far.setdefault(item.index, Deltas(asked)).of(item):
            yield {**head, "choices": [{"index": item.index, "text": text, "finish_reason": None, "logprobs": None}]}
        if isinstance(item, Answered):
            answers.append(item)
            last = {"index": item.index, "text": "", "finish_reason": _why(item), "logprobs": None}
            yield {**head, "choices": [last], "usage": usage_of(answers), "token_ids": item.tokens}


def _choice(index: int, answered: Answered, asked: Asked) -> JsonObject:
    before = "".join(answered.prompt_pieces or []) if asked.echo else ""
    choice: JsonObject = {
        "index": index,
        "text": before + answered.text,
        "finish_reason": _why(answered),
        "logprobs": None,
        "token_ids": answered.tokens,
    }
    if asked.logprobs:
        told = asked.echo and answered.prompt_logps is not None
        pieces = [*((answered.prompt_pieces or []) if told else []), *answered.pieces]
        offsets = [sum(map(len, pieces[:i])) for i in range(len(pieces))]
        tops = [dict(top) for top in answered.tops or []]
        choice["logprobs"] = {
            "tokens": pieces,
            "token_logprobs": [*((answered.prompt_logps or []) if told else []), *answered.logps],
            "text_offset": offsets,
            "top_logprobs": [*([None] * (len(pieces) - len(tops))), *tops] if asked.top else None,
        }
    return choice


def _why(answered: Answered) -> str:
    return "length" if answered.stopped == "length" else "stop"


def _head(asked: Asked, name: str) -> JsonObject:
    created = int(time.time())
    return {"id": name, "object": "text_completion", "created": created, "model": asked.model or "burnish"}
