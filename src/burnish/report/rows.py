"""From what a step reports to the rows of the run store: groups, traces with every score, tokens with every stream."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from burnish.loop import Report
from burnish.nouns import Group, Message, Task, Trace
from burnish.run.records import plain

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
    """The first groups of each phase, whole, until `most` traces are reached; copies that later steps cannot change."""
    found: list[Kept] = []
    for phase, groups in report.groups.items():
        room = most
        for group in _with_dropped(phase, groups, report):
            if room <= 0:
                break
            room -= len(group.traces)
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


class Pieces:
    """What each token reads as, asked of the tokenizer once; `new` holds those the store does not know yet."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.known: dict[int, str] = {}
        self.new: list[tuple[int, str]] = []
        self.special = frozenset(tokenizer.all_special_ids)
        self._anchor = tokenizer.encode("a", add_special_tokens=False)[-1:]
        self._before = len(self._decode(self._anchor))

    def learn(self, ids: list[int]) -> None:
        """Ask for the tokens that are new."""
        for token in set(ids) - self.known.keys():
            # after another token, so that a leading space is not taken for the start of a text
            self.known[token] = self._decode([*self._anchor, token])[self._before :]
            self.new.append((token, self.known[token]))

    def text(self, ids: list[int]) -> str:
        """What people read of tokens that are known: without the special ones."""
        said = "".join(self.known[token] for token in ids if token not in self.special)
        return self.tokenizer.decode(ids, skip_special_tokens=True) if REPLACEMENT in said else said

    def _decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def group_row(group: Kept) -> tuple[Any, ...]:
    """step, phase, task, kind, prompt, given, pairs, lists."""
    task = group.task
    pairs, lists = (None if x is None else json.dumps(x) for x in (group.pairs, group.lists))
    return group.step, group.phase, task.key, task.kind, prompt_text(task), _json(plain(task.given)), pairs, lists


def trace_row(trace: Trace, dropped: str | None, ids: list[int], pieces: Pieces) -> tuple[Any, ...]:
    """reward, correct, length, advantage, dropped, text, turns, scores, turn_scores, tags, note."""
    turns = [{"author": turn.author, "tokens": len(turn), "version": turn.version} for turn in trace.turns]
    scores = {name: _number(value) for name, value in trace.scores.items()}
    turn_scores = {name: [_number(value) for value in values] for name, values in trace.turn_scores.items()}
    prompt = len(trace.turns[0]) if trace.turns and len(trace.turns) > 1 else 0
    return (
        scores.get("reward"), scores.get("correct"), len(ids) - prompt, _advantage(trace), dropped,
        pieces.text(ids[prompt:]), json.dumps(turns), _json(scores), _json(turn_scores), json.dumps(sorted(trace.tags)),
        _json(plain(trace.note)),
    )  # fmt: skip


def token_row(trace: Trace, ids: list[int]) -> tuple[bytes, bytes, str, bytes]:
    """ids (int32), behaviour log-probs (float32, nan where unknown), names of the streams, the streams end to end (float32)."""
    logp = np.full(len(ids), np.nan, dtype="<f4")
    for turn, start, end in trace.spans():
        if turn.logp is not None:
            logp[start:end] = _array(turn.logp)
    streams = {name: values for name, values in trace.streams.items() if len(values) == len(ids) and values.dim() == 1}
    joined = b"".join(_array(values).tobytes() for values in streams.values())
    return np.array(ids, dtype="<i4").tobytes(), logp.tobytes(), json.dumps(list(streams)), joined


def prompt_text(task: Task) -> str:
    """A task's prompt as people read it: a lone message without its role."""
    if isinstance(task.prompt, str):
        return task.prompt
    messages: tuple[Message, ...] = task.prompt
    if len(messages) == 1:
        return str(messages[0]["content"])
    return "\n".join(f"{message['role']}: {message['content']}" for message in messages)


def _advantage(trace: Trace) -> float | None:
    """The mean advantage of the tokens that have one."""
    adv = trace.streams.get("adv")
    if adv is None or adv.dim() != 1:
        return None
    values = _array(adv)[len(trace.turns[0]) if len(trace.turns) > 1 else 0 :]
    values = values[np.isfinite(values)]
    return float(values.mean(dtype=np.float64)) if len(values) else None


def _array(values: torch.Tensor) -> np.ndarray:
    return values.detach().to("cpu", torch.float32).numpy().astype("<f4", copy=False)


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
