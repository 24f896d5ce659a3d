"""Conversion of groups to JSON-able values, for files and other processes. No pickle."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import torch

from burnish.core.types import Allowed, Canvas, Chain, Group, Sampling, Task, Trace, Turn

_PLAIN = (str, int, float, bool, type(None))


def task_to_record(task: Task) -> dict[str, Any]:
    """A task as a dict."""
    return {"kind": task.kind, "prompt": plain(task.prompt), "given": plain(task.given), "key": task.key}


def task_from_record(record: dict[str, Any]) -> Task:
    """The inverse of `task_to_record`."""
    prompt = record["prompt"] if isinstance(record["prompt"], str) else tuple(record["prompt"])
    return Task(record["kind"], prompt, record["given"], record["key"])


def group_to_record(group: Group) -> dict[str, Any]:
    """A group as a dict: task, turns, scores, pairs and lists. Without streams: credit writes them again on every pass.

    A turn shared with an earlier trace of the group (a branch of a tree) is stored as "same_as": [trace, turn].
    """
    return {
        "task": task_to_record(group.task),
        "traces": _traces_to_records(group.traces),
        "pairs": group.pairs,
        "lists": group.lists,
    }


def group_from_record(record: dict[str, Any]) -> Group:
    """The inverse of `group_to_record`."""
    return Group(
        task_from_record(record["task"]),
        _traces_from_records(record["traces"]),
        None if record["pairs"] is None else [(a, b) for a, b in record["pairs"]],
        None if record["lists"] is None else [tuple(ranking) for ranking in record["lists"]],
    )


def _traces_to_records(traces: list[Trace]) -> list[dict[str, Any]]:
    records = [_trace_to_record(trace) for trace in traces]
    first: dict[int, list[int]] = {}
    for i, trace in enumerate(traces):
        for j, turn in enumerate(trace.turns):
            place = first.setdefault(id(turn), [i, j])
            if place[0] != i:
                records[i]["turns"][j]["same_as"] = place
    return records


def _traces_from_records(records: list[dict[str, Any]]) -> list[Trace]:
    traces: list[Trace] = []
    for record in records:
        traces.append(_trace_from_record(record, traces))
    return traces


def _trace_to_record(trace: Trace) -> dict[str, Any]:
    turns = [
        {
            "author": t.author,
            "tokens": t.tokens.tolist(),
            "logp": None if t.logp is None else t.logp.tolist(),
            "versions": None if t.versions is None else t.runs(),
            "settings": None if t.settings is None else asdict(t.settings),
            **({} if t.content is None else {"content": t.content}),
            **({} if t.allowed is None else {"allowed": [t.allowed.ids.tolist(), t.allowed.sizes.tolist()]}),
            **({} if t.canvas is None else {"canvas": _canvas_to_record(t.canvas)}),
        }
        for t in trace.turns
    ]
    scores = {name: [None if math.isnan(x) else x for x in values] for name, values in trace.turn_scores.items()}
    return {
        "turns": turns,
        "index": trace.index,
        "scores": trace.scores,
        "turn_scores": scores,
        "tags": sorted(trace.tags),
        "note": plain(trace.note),
    }


def _trace_from_record(record: dict[str, Any], earlier: list[Trace]) -> Trace:
    turns: list[Turn] = []
    for t in record["turns"]:
        if "same_as" in t:
            i, j = t["same_as"]
            turns.append(earlier[i].turns[j])
            continue
        tokens = torch.tensor(t["tokens"], dtype=torch.long)
        logp = None if t["logp"] is None else torch.tensor(t["logp"], dtype=torch.float32)
        versions = None if t["versions"] is None else _expand_runs(t["versions"])
        settings = Sampling(**t["settings"]) if t.get("settings") else None  # records of version 0.1 have none
        parent = turns[-1] if turns else None
        kept = t.get("allowed")
        allowed = None if kept is None else Allowed(torch.tensor(kept[0], dtype=torch.int32), torch.tensor(kept[1]))
        drawn = t.get("canvas")
        canvas = None if drawn is None else _canvas_from_record(drawn)
        turns.append(Turn(tokens, t["author"], logp, versions, parent, settings, t.get("content"), allowed, canvas))
    turn_scores = {
        name: [math.nan if x is None else x for x in values] for name, values in record["turn_scores"].items()
    }
    return Trace(
        tuple(turns),
        record["index"],
        dict(record["scores"]),
        turn_scores,
        {},
        frozenset(record["tags"]),
        dict(record["note"]),
    )


def _canvas_to_record(canvas: Canvas | Chain) -> dict[str, Any]:
    if isinstance(canvas, Chain):
        told = {name: getattr(canvas, name) for name in ("levels", "sampler", "noise", "guidance")}
        return {"states": canvas.states.flatten().tolist(), "shape": list(canvas.states.shape), **told}
    return {"tokens": canvas.tokens.tolist(), "steps": canvas.steps.tolist(), "block": canvas.block}


def _canvas_from_record(record: dict[str, Any]) -> Canvas | Chain:
    if "states" in record:
        states = torch.tensor(record["states"], dtype=torch.float32).view(record["shape"])
        return Chain(states, tuple(record["levels"]), record["sampler"], record["noise"], record["guidance"])
    steps = torch.tensor(record["steps"], dtype=torch.int32)
    return Canvas(torch.tensor(record["tokens"], dtype=torch.long), steps, record["block"])


def _expand_runs(runs: list[tuple[int, int]]) -> torch.Tensor:
    """One version per token, from run-length encoded (version, number of tokens)."""
    return torch.tensor([version for version, count in runs for _ in range(count)], dtype=torch.long)


def plain(value: Any) -> Any:
    """The JSON-able part of a value; callables and tensors inside mappings are left out, other objects become str."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict) or hasattr(value, "items"):
        return {
            str(key): plain(item)
            for key, item in value.items()
            if not callable(item) and not isinstance(item, (torch.Tensor, Trace))
        }
    return str(value)
