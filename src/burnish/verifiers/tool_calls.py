"""Tool calls as trees: graded credit for names, argument names and argument values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from burnish.core.option import Option
from burnish.core.task import Verdict
from burnish.verifiers.assignment import best_assignment
from burnish.verifiers.checks import BadRow
from burnish.verifiers.read import column_json, json_in, read_json, too_long, wrong
from burnish.verifiers.table import Check, Row, verifier

MOST_CALLS = 40
DEEPEST = 40
_BLOCK = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


@dataclass(frozen=True)
class ToolCall:
    """One call."""

    name: str
    arguments: Mapping[str, object]


@verifier(
    needs=("answer",),
    kinds=("tools",),
    summary="Graded credit for tool calls: names, argument names, argument values.",
    when="Rows have the right calls as `answer`: a list of {name, arguments}, also OpenAI's {function: ...}.",
)
def tool_calls(
    *,
    low: Annotated[float, Option("The score of calls with nothing right, and of none.")] = 0.0,
    high: Annotated[float, Option("The score of calls with everything right.")] = 1.0,
    ordered: Annotated[bool, Option("The i-th call is compared with the i-th right one.")] = False,
) -> Check:
    """low + (high - low) (N + max over assignments of sum_j (K_j + V_j)) / (1 + |G| + sum_j |keys(g_j)|).

    G are the right calls. N = multiset Jaccard of the names; for the call p assigned to g_j, of the same name,
    K_j = |keys(g_j) & keys(p)| / |keys(g_j) | keys(p)| and V_j = sum over the keys of g_j of tree(g_j[k], p[k]).
    tree is 1 or 0 for leaves; for objects the sum over common keys / |union of keys|, for lists the sum by position /
    the longer length. The reward `toolrl` is ToolRL's own version: it compares values as wholes, matches greedily and
    adds the format.
    Calls are the JSON values in <tool_call> tags, else the reply after its thinking is JSON. No call is right where
    none is expected. Unparsable calls score `low`.
    """

    def check(row: Row, reply: str) -> Verdict:
        right = row_calls(row)
        if reason := too_long(reply):
            return wrong(reason, low)
        try:
            calls = read_calls(reply)
        except ValueError as error:
            return wrong(f"the tool calls cannot be read: {error}", low)
        share = calls_score(calls, right, ordered=ordered)
        score = low + (high - low) * share
        if share >= 1.0 - 1e-12:
            return Verdict(high, True)
        return wrong(f"{share:.3f} of the credit for {len(right)} calls", score)

    return check


Credits = list[list[float]]  # [right calls][calls of the reply]


def calls_score(
    calls: Sequence[ToolCall],
    right: Sequence[ToolCall],
    *,
    ordered: bool = False,
    same: Callable[[object, object], float] | None = None,
    matching: Callable[[Credits], float] = best_assignment,
) -> float:
    """The share of the credit of right calls that the calls of a reply earn (formula above).

    same: the agreement of two values, by default `tree`; matching: the credit that calls earn together
    """
    if not right:
        return float(not calls)
    names, wanted = Counter(call.name for call in calls), Counter(call.name for call in right)
    matched = sum((names & wanted).values()) / sum((names | wanted).values())
    credit = [[_credit(p, g, same or tree) for p in calls] for g in right]
    earned = sum(row[i] for i, row in enumerate(credit[: len(calls)])) if ordered else matching(credit)
    return (matched + earned) / (1 + len(right) + sum(len(call.arguments) for call in right))


def greedy_matching(credit: Credits) -> float:
    """Each right call in turn takes the best call that no earlier one took."""
    earned, left = 0.0, set(range(len(credit[0])) if credit else ())
    for row in credit:
        if left:
            taken = max(sorted(left), key=lambda i: row[i])
            if row[taken] > 0:  # a call of another name earns nothing and stays free
                left.remove(taken)
                earned += row[taken]
    return earned


def _credit(call: ToolCall, right: ToolCall, same: Callable[[object, object], float]) -> float:
    """K_j + V_j of two calls; 0 where their names differ."""
    if call.name != right.name:
        return 0.0
    both, either = call.arguments.keys() & right.arguments.keys(), call.arguments.keys() | right.arguments.keys()
    values = sum(same(call.arguments[key], right.arguments[key]) for key in both)
    return (len(both) / len(either) if either else 1.0) + values


def tree(value: object, right: object, depth: int = 0) -> float:
    """The share of two JSON values that agrees, within [0, 1]."""
    if depth > DEEPEST:
        return 0.0
    if isinstance(value, Mapping) and isinstance(right, Mapping):
        either = value.keys() | right.keys()
        common = sum(tree(value[key], right[key], depth + 1) for key in value.keys() & right.keys())
        return common / len(either) if either else 1.0
    if isinstance(value, list) and isinstance(right, list):
        common = sum(tree(a, b, depth + 1) for a, b in zip(value, right, strict=False))
        return common / max(len(value), len(right)) if value or right else 1.0
    return float(_same_leaf(value, right))


def _same_leaf(value: object, right: object) -> bool:
    if isinstance(value, str) and isinstance(right, str):
        return value.strip() == right.strip()
    return isinstance(value, bool) == isinstance(right, bool) and type(value) is not str and bool(value == right)


def read_calls(reply: str) -> list[ToolCall]:
    """The calls of a reply; raises ValueError for what cannot be read."""
    text = reply.rpartition("</think>")[2]
    if text.count("<tool_call>") != text.count("</tool_call>"):  # also keeps the search below linear
        raise ValueError("a <tool_call> is not closed")
    blocks = _BLOCK.findall(text)
    if text.count("<tool_call>") != len(blocks):
        raise ValueError("a <tool_call> stands inside of another")
    if blocks:
        calls = [call for block in blocks for call in _block_calls(block)]
    elif text.strip()[:1] in "[{`" and text.strip():
        calls = calls_of(json_in(text))
    else:
        return []
    if len(calls) > MOST_CALLS:
        raise ValueError(f"there are {len(calls)} calls; more than {MOST_CALLS} are not compared")
    return calls


def _block_calls(block: str) -> list[ToolCall]:
    """The calls of one tag: one JSON value, or one in each line."""
    try:
        return calls_of(read_json(block.strip()))
    except ValueError:
        lines = [line for line in block.splitlines() if line.strip()]
        if len(lines) < 2:
            raise
    return [call for line in lines for call in calls_of(read_json(line))]


def calls_of(value: object) -> list[ToolCall]:
    """The calls that a JSON value is; raises ValueError."""
    calls = []
    for one in value if isinstance(value, list) else [value]:
        inner = one.get("function", one) if isinstance(one, Mapping) else None
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise ValueError(f'a call is {{"name": ..., "arguments": {{...}}}}, not {one!r:.60}')
        arguments = inner.get("arguments", inner.get("parameters", {}))
        if isinstance(arguments, str):
            arguments = read_json(arguments)
        if not isinstance(arguments, Mapping):
            raise ValueError(f"the arguments of {inner['name'][:40]!r} are no object")
        calls.append(ToolCall(inner["name"], arguments))
    return calls


def row_calls(row: Row) -> list[ToolCall]:
    """The right calls of a row; raises BadRow."""
    try:
        return calls_of(column_json(row, "answer"))
    except ValueError as error:
        raise BadRow(f"the right tool calls of a row: {error}") from None
