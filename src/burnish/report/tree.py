"""What the trace viewer shows of episodes: the traces of a group as a tree of replies, and the tool calls of each."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import groupby
from typing import TypedDict

from burnish.envs.tools import ToolCall, parse_calls
from burnish.store.records import FullTrace

SHOWN = 160  # characters of a reply in a tree
_CONTROL = re.compile(r"<\|[^|]*\|>|</?s>")  # what the chat template writes between messages
_NOT_SAID = ("task", "env")  # authors whose turns are not replies


class Node(TypedDict):
    """A reply in a tree: traces go through it, and it ends some of them; reward: their mean."""

    depth: int
    text: str
    answer: str
    traces: list[int]
    reward: float | None
    ends: bool


def calls_in(trace: FullTrace) -> dict[int, list[str]]:
    """The tool calls of each turn that makes some, written as name(argument=value)."""
    calls_of = {}
    for i, (author, text, _) in enumerate(_turns(trace)):
        calls = parse_calls(text) if author not in _NOT_SAID else []
        if calls:
            calls_of[i] = [_written(call) for call in calls]
    return calls_of


def tree_of(traces: Sequence[FullTrace]) -> list[Node]:
    """The replies of a group's traces, depth first. Traces whose turns begin with the same tokens share their nodes.

    A node: depth, text of the reply, answer of the environment, the ids of the traces that go through it, the mean of
    their rewards, and whether it is the end of some of them. Empty where no trace has a second reply.
    """
    paths = [(trace, _replies(trace)) for trace in traces]
    if max((len(path) for _, path in paths), default=0) < 2:
        return []
    return _nodes(paths, 0)


Reply = tuple[tuple[int, ...], str, str]  # the tokens up to its end and its answer's, its text, the answer


def _nodes(paths: Sequence[tuple[FullTrace, list[Reply]]], depth: int) -> list[Node]:
    first: dict[tuple[int, ...], int] = {}  # nodes stand in the order of the first trace that goes through them
    for _, path in paths:
        first.setdefault(path[depth][0], len(first))
    nodes: list[Node] = []
    ordered = sorted(paths, key=lambda one: first[one[1][depth][0]])
    for _, some in groupby(ordered, key=lambda one: one[1][depth][0]):
        through = list(some)
        _, text, answer = through[0][1][depth]
        rewards = [trace["reward"] for trace, _ in through if trace["reward"] is not None]
        nodes.append(
            {
                "depth": depth,
                "text": text[:SHOWN],
                "answer": answer[:SHOWN],
                "traces": [trace["id"] for trace, _ in through],
                "reward": sum(rewards) / len(rewards) if rewards else None,
                "ends": any(len(path) == depth + 1 for _, path in through),
            }
        )
        nodes += _nodes([one for one in through if len(one[1]) > depth + 1], depth + 1)
    return nodes


def _replies(trace: FullTrace) -> list[Reply]:
    """The replies of a trace, each with what the environment answered."""
    replies: list[Reply] = []
    for author, text, ids in _turns(trace):
        if author == "task":
            continue
        if author == "env" and replies:
            before, text_of_reply, answer = replies[-1]
            replies[-1] = ((*before, *ids), text_of_reply, answer + text)
        else:
            replies.append((tuple(ids), text, ""))
    return replies or [((), "", "")]


def _turns(trace: FullTrace) -> list[tuple[str, str, list[int]]]:
    """Author, text without control tokens, and token ids of each turn."""
    turns, start = [], 0
    ids, pieces = trace["tokens"]["ids"], trace["tokens"]["pieces"]
    for turn in trace["turns"]:
        end = start + turn["tokens"]
        text = _CONTROL.sub("", "".join(pieces[start:end])).strip()
        turns.append((turn["author"], text, ids[start:end]))
        start = end
    return turns


def _written(call: ToolCall) -> str:
    if call.problem:
        return f"{call.name or 'a call'}: {call.problem}"
    arguments = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in call.arguments.items())
    return f"{call.name}({arguments})"[:SHOWN]
