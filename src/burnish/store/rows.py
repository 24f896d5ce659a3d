"""Convert the report of a step into rows of the run store: groups, traces with scores, tokens with streams."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch

from burnish.core.loop import Report
from burnish.core.messages import pictures_of, prompt_shown
from burnish.core.step import TokenEntropies
from burnish.core.tokenizer import Tokenizer
from burnish.core.types import Group, Task, Trace, TraceId
from burnish.core.types_json import plain
from burnish.media.ids import FIRST, media_in, runs_of
from burnish.media.thumbnail import drawn_thumbnail, thumbnail

MOST_TOKENS = 200_000  # recorded per phase and step, about 6 MB
REPLACEMENT = "\ufffd"  # a decoder's output for an incomplete UTF-8 sequence


@dataclass(frozen=True)
class RecordedGroup:
    """A group at the end of its step: the traces that were trained on, then the traces that a part dropped."""

    step: int
    phase: str
    task: Task
    pairs: list[tuple[int, int]] | None
    lists: list[tuple[int, ...]] | None
    traces: list[tuple[Trace, str | None]]  # each with the name of the part that dropped it


def recorded_groups(report: Report, most: int) -> list[RecordedGroup]:
    """Copies of the first groups of each phase, until `most` traces or MOST_TOKENS tokens are reached."""
    recorded: list[RecordedGroup] = []
    for phase, groups in report.groups.items():
        traces_left, tokens_left = most, MOST_TOKENS
        for group in _with_dropped(phase, groups, report):
            if traces_left <= 0 or tokens_left <= 0:
                break
            traces_left -= len(group.traces)
            tokens_left -= sum(turn.tokens.numel() for trace, _ in group.traces for turn in trace.turns)
            recorded.append(replace(group, traces=[(_copy(trace), part) for trace, part in group.traces]))
    return recorded


def _with_dropped(phase: str, groups: list[Group], report: Report) -> Iterator[RecordedGroup]:
    """The remaining groups, each with the dropped traces of its task; then the tasks whose traces were all dropped."""
    dropped_by_task: dict[int, list[tuple[Task, Trace, str]]] = {}
    for dropped in report.dropped.get(phase, ()):
        dropped_by_task.setdefault(id(dropped.task), []).append((dropped.task, dropped.trace, dropped.part))
    step = report.clock.step
    for group in groups:
        removed = [(trace, part) for _, trace, part in dropped_by_task.pop(id(group.task), ())]
        remaining: list[tuple[Trace, str | None]] = [(trace, None) for trace in group.traces]
        yield RecordedGroup(step, phase, group.task, group.pairs, group.lists, [*remaining, *removed])
    for whole in dropped_by_task.values():
        task = whole[0][0]
        yield RecordedGroup(step, phase, task, None, None, [(trace, part) for _, trace, part in whole])


def _copy(trace: Trace) -> Trace:
    """A copy that later passes cannot change; turns are immutable and shared."""
    turn_scores = {name: list(values) for name, values in trace.turn_scores.items()}
    return replace(
        trace, scores=dict(trace.scores), turn_scores=turn_scores, streams=dict(trace.streams), note=dict(trace.note)
    )


def add_entropies(groups: list[RecordedGroup], looks: list[TokenEntropies]) -> None:
    """Add the training pass's per-token entropies as the stream "entropy" to traces without one."""
    if not groups:
        return
    entropies: dict[TraceId, torch.Tensor] = {}
    for look in looks:
        entropies |= look.entropies()
    for trace in (trace for group in groups for trace, _ in group.traces):
        if trace.id in entropies:
            trace.streams.setdefault("entropy", entropies[trace.id])


PICTURE = -1  # in the store, the token of a picture
SHOWN = "\u25a6"  # what it reads as


class Pieces:
    """Text of each token, decoded once; `new` holds the tokens that the store's vocabulary does not have yet."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.known: dict[int, str] = {}
        self.new: list[tuple[int, str]] = []
        self._special = frozenset(tokenizer.all_special_ids)
        self._visible: dict[int, str] = {}  # like `known`, with "" for special tokens
        self._anchor = tokenizer.encode("a", add_special_tokens=False)[-1:]
        self._before = len(self._decode(self._anchor))

    def learn(self, ids: list[int]) -> None:
        """Decode the tokens that are not known yet."""
        for token in set(ids) - self._visible.keys():
            if token == PICTURE:
                self.known[token] = self._visible[token] = SHOWN
                self.new.append((token, SHOWN))
                continue
            if token not in self.known:
                # decoded after another token, because tokenizers strip the leading space of a text
                self.known[token] = self._decode([*self._anchor, token])[self._before :]
                self.new.append((token, self.known[token]))
            self._visible[token] = "" if token in self._special else self.known[token]

    def text(self, ids: list[int]) -> str:
        """Text of known tokens, without special tokens."""
        text = "".join(map(self._visible.__getitem__, ids))
        if REPLACEMENT in text and PICTURE in ids:
            return text
        return self.tokenizer.decode(ids, skip_special_tokens=True) if REPLACEMENT in text else text

    def _decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def group_row(group: RecordedGroup) -> tuple[object, ...]:
    """Row of the table groups without its id: step, phase, task, kind, prompt, given, pairs, lists."""
    task = group.task
    pairs, lists = (None if x is None else _json(x) for x in (group.pairs, group.lists))
    return group.step + 1, group.phase, task.key, task.kind, prompt_text(task), _json(plain(task.given)), pairs, lists


def trace_row(trace: Trace, dropped: str | None, tokens: Tokens, pieces: Pieces) -> tuple[object, ...]:
    """Columns of a trace: reward, correct, length, advantage, dropped, text, turns, scores, turn_scores, tags, note.

    A step makes hundreds of rows while the next one trains, so `_words` caches repeated values.
    """
    turns = ", ".join(
        f'{{"author": {_words(turn.author)}, "tokens": {turn.tokens.numel()}, "versions": {_json(turn.runs())}}}'
        for turn in trace.turns
    )
    scores = {name: _number(value) for name, value in trace.scores.items()}
    turn_scores = {name: [_number(value) for value in values] for name, values in trace.turn_scores.items()}
    note = trace.note if all(type(value) in _SIMPLE for value in trace.note.values()) else plain(trace.note)
    reply = tokens.ids[tokens.prompt :]
    return (
        scores.get("reward"),
        scores.get("correct"),
        len(reply),
        tokens.advantage,
        dropped,
        _text(trace, reply, pieces),
        f"[{turns}]",
        _json(scores),
        _json(turn_scores) if turn_scores else "{}",
        _words(trace.tags),
        _json(note),
    )


def _text(trace: Trace, reply: list[int], pieces: Pieces) -> str:
    """Text after the prompt; turns of an environment are on separate lines."""
    if all(turn.author != "env" for turn in trace.turns):
        return pieces.text(reply)
    text, end = "", 0
    for before, turn in pairwise(trace.turns):
        start, end = end, end + turn.tokens.numel()
        line = "\n" if text and "env" in (before.author, turn.author) else ""
        text += line + pieces.text(reply[start:end])
    return text


@dataclass(frozen=True)
class Tokens:
    """A trace's tokens and their row in the store.

    prompt     number of prompt tokens
    advantage  mean advantage of the tokens after the prompt
    row        ids (int32), log-probs (float32), names of the streams (JSON), streams one after another (float32)
    """

    ids: list[int]
    prompt: int
    advantage: float | None
    row: tuple[bytes, bytes, str, bytes]


def tokens_of(traces: list[Trace]) -> list[Tokens]:
    """The tokens of many traces; tensors are concatenated first, because the overhead per tensor dominates."""
    turns = [turn for trace in traces for turn in trace.turns]
    if not turns:
        return [Tokens([], 0, None, (b"", b"", "[]", b"")) for _ in traces]
    sizes = [turn.tokens.numel() for turn in turns]
    flat = torch.cat([turn.tokens for turn in turns])
    ids = _joined([flat.masked_fill(flat >= FIRST, PICTURE) if media_in(flat) else flat], torch.int32)
    logp = np.full(len(ids), np.nan, dtype="<f4")
    sampled = [turn.logp for turn in turns if turn.logp is not None]
    if sampled:
        logp[np.repeat([turn.logp is not None for turn in turns], sizes)] = _joined(sampled)
    lengths = [sum(turn.tokens.numel() for turn in trace.turns) for trace in traces]
    prompts = [trace.turns[0].tokens.numel() if len(trace.turns) > 1 else 0 for trace in traces]
    tokens, end = [], 0
    for streams, length, prompt in zip(_streams(traces, lengths), lengths, prompts, strict=True):
        start, end = end, end + length
        row = (
            ids[start:end].tobytes(),
            logp[start:end].tobytes(),
            _json(list(streams)),
            b"".join(x.tobytes() for x in streams.values()),
        )
        tokens.append(Tokens(ids[start:end].tolist(), prompt, _mean(streams.get("adv"), prompt), row))
    return tokens


def _streams(traces: list[Trace], lengths: list[int]) -> list[dict[str, np.ndarray]]:
    """The streams of each trace by name; streams that are not one number per token are left out."""
    streams: list[dict[str, np.ndarray]] = [{} for _ in traces]
    for name in dict.fromkeys(name for trace in traces for name in trace.streams):
        have = [i for i, t in enumerate(traces) if name in t.streams and t.streams[name].shape == (lengths[i],)]
        flat, end = _joined([traces[i].streams[name] for i in have]) if have else np.zeros(0), 0
        for i in have:
            end += lengths[i]
            streams[i][name] = flat[end - lengths[i] : end]
    return streams


def prompt_text(task: Task) -> str:
    """A task's prompt as text, for people to read."""
    return prompt_shown(task.prompt)


MOST_PICTURES = 8  # of a prompt, as thumbnails


def thumbnails(task: Task) -> list[bytes]:
    """The first pictures of a prompt, small."""
    if isinstance(task.prompt, str):
        return []
    small = (thumbnail(reference) for reference in pictures_of(task.prompt)[:MOST_PICTURES])
    return [png for png in small if png is not None]


def drawn_picture(trace: Trace) -> bytes | None:
    """What a model drew in this trace, small; None where it wrote words."""
    turns = [turn for turn in trace.turns[1:] if media_in(turn.tokens)]
    small = (drawn_thumbnail(run.key) for turn in turns for run in runs_of(turn.tokens.numpy()))
    return next((png for png in small if png is not None), None)


def _mean(advantages: np.ndarray | None, prompt: int) -> float | None:
    """Mean of the finite advantages after the prompt; None if there are none."""
    if advantages is None:
        return None
    values = advantages[prompt:].tolist()
    if not all(map(math.isfinite, values)):
        values = [x for x in values if math.isfinite(x)]
    return sum(values) / len(values) if values else None


def _joined(tensors: list[torch.Tensor], kind: torch.dtype = torch.float32) -> np.ndarray:
    """Concatenate tensors into a little-endian array on the CPU."""
    array = torch.cat(tensors).detach().to("cpu", kind).numpy()
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


_strict = json.JSONEncoder(ensure_ascii=False, default=str, allow_nan=False).encode


def _json(value: object) -> str:
    """JSON that browsers and SQLite read: NaN and Inf, which a row of a dataset may hold, are null."""
    try:
        return _strict(value)
    except ValueError:
        return _strict(_finite(value))


def _finite(value: object) -> object:
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


_SIMPLE = (str, int, bool, type(None))


@lru_cache(maxsize=4096)
def _words(value: str | tuple[str, ...] | frozenset[str]) -> str:
    """JSON of a string, of names in their order, or of tags in alphabetical order."""
    if isinstance(value, str):
        return _json(value)
    return _json(sorted(value) if isinstance(value, frozenset) else list(value))
