"""From what a step reports to the rows of the run store: groups, traces with every score, tokens with every stream."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from burnish.loop import Report
from burnish.nouns import Group, Message, Task, Trace
from burnish.run.records import plain
from burnish.step import Looks

MOST_TOKENS = 200_000  # of a phase in a step: some six megabytes, however long the replies
REPLACEMENT = "\ufffd"  # how a decoder writes bytes that are half a character


@dataclass(frozen=True)
class Kept:
    """A group as it stood when its step ended: the traces that were learnt from, then those that a part dropped."""

    step: int
    phase: str
    task: Task
    pairs: list[tuple[int, int]] | None
    lists: list[tuple[int, ...]] | None
    traces: list[tuple[Trace, str | None]]  # with the part that dropped it


def kept(report: Report, most: int) -> list[Kept]:
    """The first groups of each phase, whole, until `most` traces or MOST_TOKENS are reached; copies that later steps cannot change."""
    found: list[Kept] = []
    for phase, groups in report.groups.items():
        room, tokens = most, MOST_TOKENS
        for group in _with_dropped(phase, groups, report):
            if room <= 0 or tokens <= 0:
                break
            room -= len(group.traces)
            tokens -= sum(turn.tokens.numel() for trace, _ in group.traces for turn in trace.turns)
            found.append(replace(group, traces=[(_copy(trace), why) for trace, why in group.traces]))
    return found


def _with_dropped(phase: str, groups: list[Group], report: Report) -> Iterator[Kept]:
    """The groups that are left, each with what was dropped from its task; then the tasks of which nothing is left."""
    lost: dict[int, list[tuple[Task, Trace, str]]] = {}
    for dropped in report.dropped.get(phase, ()):
        lost.setdefault(id(dropped.task), []).append((dropped.task, dropped.trace, dropped.part))
    step = report.clock.step
    for group in groups:
        gone = [(trace, part) for _, trace, part in lost.pop(id(group.task), ())]
        stayed: list[tuple[Trace, str | None]] = [(trace, None) for trace in group.traces]
        yield Kept(step, phase, group.task, group.pairs, group.lists, [*stayed, *gone])
    for gone_whole in lost.values():
        task = gone_whole[0][0]
        yield Kept(step, phase, task, None, None, [(trace, part) for _, trace, part in gone_whole])


def _copy(trace: Trace) -> Trace:
    """Turns never change; what parts of a later walk may write anew is copied."""
    turn_scores = {name: list(values) for name, values in trace.turn_scores.items()}
    return replace(
        trace, scores=dict(trace.scores), turn_scores=turn_scores, streams=dict(trace.streams), note=dict(trace.note)
    )


def add_entropies(groups: list[Kept], looks: list[Looks]) -> None:
    """What learning found of each token's entropy becomes a stream of the copies, where the method made none of its own."""
    if not groups:
        return
    found: dict[int, torch.Tensor] = {}
    for look in looks:
        found |= look.entropies()
    for trace in (trace for group in groups for trace, _ in group.traces):
        if id(trace.turns) in found:
            trace.streams.setdefault("entropy", found[id(trace.turns)])


class Pieces:
    """What each token reads as, asked of the tokenizer once; `new` holds those the store does not know yet."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.known: dict[int, str] = {}
        self.new: list[tuple[int, str]] = []
        self._special = frozenset(tokenizer.all_special_ids)
        self._read: dict[int, str] = {}  # the same, special tokens left out
        self._anchor = tokenizer.encode("a", add_special_tokens=False)[-1:]
        self._before = len(self._decode(self._anchor))

    def learn(self, ids: list[int]) -> None:
        """Ask for the tokens that are new."""
        for token in set(ids) - self._read.keys():
            if token not in self.known:
                # after another token, so that a leading space is not taken for the start of a text
                self.known[token] = self._decode([*self._anchor, token])[self._before :]
                self.new.append((token, self.known[token]))
            self._read[token] = "" if token in self._special else self.known[token]

    def text(self, ids: list[int]) -> str:
        """What people read of tokens that are known: without the special ones."""
        said = "".join(map(self._read.__getitem__, ids))
        return self.tokenizer.decode(ids, skip_special_tokens=True) if REPLACEMENT in said else said

    def _decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def group_row(group: Kept) -> tuple[Any, ...]:
    """step, phase, task, kind, prompt, given, pairs, lists."""
    task = group.task
    pairs, lists = (None if x is None else _json(x) for x in (group.pairs, group.lists))
    return group.step, group.phase, task.key, task.kind, prompt_text(task), _json(plain(task.given)), pairs, lists


def trace_row(trace: Trace, dropped: str | None, tokens: Tokens, pieces: Pieces) -> tuple[Any, ...]:
    """reward, correct, length, advantage, dropped, text, turns, scores, turn_scores, tags, note.

    Hundreds of these are made in every step, beside the training: what repeats is remembered (`_words`), not made again.
    """
    turns = ", ".join(
        f'{{"author": {_words(turn.author)}, "tokens": {turn.tokens.numel()}, "versions": {_json(turn.runs())}}}'
        for turn in trace.turns
    )
    scores = {name: _number(value) for name, value in trace.scores.items()}
    turn_scores = {name: [_number(value) for value in values] for name, values in trace.turn_scores.items()}
    note = trace.note if all(type(value) in _SIMPLE for value in trace.note.values()) else plain(trace.note)
    said = tokens.ids[tokens.prompt :]
    return (
        scores.get("reward"), scores.get("correct"), len(said), tokens.advantage, dropped, _text(trace, said, pieces), f"[{turns}]",
        _json(scores), _json(turn_scores) if turn_scores else "{}", _words(trace.tags), _json(note),
    )  # fmt: skip


def _text(trace: Trace, said: list[int], pieces: Pieces) -> str:
    """What was said after the prompt; what an environment says stands on lines of its own."""
    if all(turn.author != "env" for turn in trace.turns):
        return pieces.text(said)
    found, end = "", 0
    for before, turn in pairwise(trace.turns):
        start, end = end, end + turn.tokens.numel()
        line = "\n" if found and "env" in (before.author, turn.author) else ""
        found += line + pieces.text(said[start:end])
    return found


@dataclass(frozen=True)
class Tokens:
    """A trace's tokens: ids, how many of them are the prompt, the mean advantage of the rest, and the row for the store."""

    ids: list[int]
    prompt: int
    advantage: float | None
    row: tuple[
        bytes, bytes, str, bytes
    ]  # ids int32, log-probs float32, names of the streams, streams end to end float32


def tokens_of(traces: list[Trace]) -> list[Tokens]:
    """The tokens of many traces at once: tensors are joined before they are read, since each small one costs as much."""
    turns = [turn for trace in traces for turn in trace.turns]
    if not turns:
        return [Tokens([], 0, None, (b"", b"", "[]", b"")) for _ in traces]
    sizes = [turn.tokens.numel() for turn in turns]
    ids = _joined([turn.tokens for turn in turns], torch.int32)
    logp = np.full(len(ids), np.nan, dtype="<f4")
    born = [turn.logp for turn in turns if turn.logp is not None]
    if born:
        logp[np.repeat([turn.logp is not None for turn in turns], sizes)] = _joined(born)
    lengths = [sum(turn.tokens.numel() for turn in trace.turns) for trace in traces]
    prompts = [trace.turns[0].tokens.numel() if len(trace.turns) > 1 else 0 for trace in traces]
    streams = _streams(traces, lengths)
    found, end = [], 0
    for mine, length, prompt in zip(streams, lengths, prompts, strict=True):
        start, end = end, end + length
        row = (
            ids[start:end].tobytes(),
            logp[start:end].tobytes(),
            _json(list(mine)),
            b"".join(x.tobytes() for x in mine.values()),
        )
        found.append(Tokens(ids[start:end].tolist(), prompt, _mean(mine.get("adv"), prompt), row))
    return found


def _streams(traces: list[Trace], lengths: list[int]) -> list[dict[str, np.ndarray]]:
    """Each trace's streams by name; what is not one number per token is left out."""
    found: list[dict[str, np.ndarray]] = [{} for _ in traces]
    for name in dict.fromkeys(name for trace in traces for name in trace.streams):
        have = [i for i, t in enumerate(traces) if name in t.streams and t.streams[name].shape == (lengths[i],)]
        flat, end = _joined([traces[i].streams[name] for i in have]) if have else np.zeros(0), 0
        for i in have:
            end += lengths[i]
            found[i][name] = flat[end - lengths[i] : end]
    return found


def prompt_text(task: Task) -> str:
    """A task's prompt as people read it: a lone message without its role."""
    if isinstance(task.prompt, str):
        return task.prompt
    messages: tuple[Message, ...] = task.prompt
    if len(messages) == 1:
        return str(messages[0]["content"])
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages)


def _mean(advantages: np.ndarray | None, prompt: int) -> float | None:
    """The mean advantage of the tokens after the prompt that have one."""
    if advantages is None:
        return None
    values = advantages[prompt:].tolist()
    if not all(map(math.isfinite, values)):
        values = [x for x in values if math.isfinite(x)]
    return sum(values) / len(values) if values else None


def _joined(tensors: list[torch.Tensor], kind: torch.dtype = torch.float32) -> np.ndarray:
    """End to end, little-endian, on the CPU."""
    found = torch.cat(tensors).detach().to("cpu", kind).numpy()
    return found.astype(found.dtype.newbyteorder("<"), copy=False)


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


_json = json.JSONEncoder(ensure_ascii=False, default=str).encode
_SIMPLE = (str, int, bool, type(None))


@lru_cache(maxsize=4096)
def _words(value: str | tuple[str, ...] | frozenset[str]) -> str:
    """A word as JSON; names in their order, tags in the order of the alphabet."""
    if isinstance(value, str):
        return _json(value)
    return _json(sorted(value) if isinstance(value, frozenset) else list(value))
