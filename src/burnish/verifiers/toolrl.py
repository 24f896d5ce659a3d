"""ToolRL's reward of tool calls: the format, and graded correctness."""

from __future__ import annotations

from typing import Annotated

from burnish.core.option import Option
from burnish.core.task import Verdict
from burnish.papers import ENTROPY_GRPO, TOOLRL
from burnish.verifiers.formats import tag_problem
from burnish.verifiers.read import too_long, wrong
from burnish.verifiers.table import Check, Row, verifier
from burnish.verifiers.tool_calls import ToolCall, calls_score, greedy_matching, read_calls, row_calls

_WORDS = 512  # words of a thought at which the length reward is whole


@verifier(
    TOOLRL,
    needs=("answer",),
    kinds=("tools",),
    summary="Format 0 or 1, plus graded correctness of the calls from -3 to 3 (ToolRL).",
    when="Replies think in tags and then call functions; rows have the right calls as `answer`, [] for none.",
    task="calls:1",
)
def toolrl(
    *,
    form: Annotated[float, Option("The reward of the right format.", at_least=0)] = 1.0,
    scale: Annotated[float, Option("Correctness lies in [-scale, scale].", at_least=0)] = 3.0,
    coarse: Annotated[bool, Option("All or nothing: equal calls, or none of the credit.")] = False,
    length: Annotated[float, Option("Weight of the length of the thought.", at_least=0)] = 0.0,
) -> Check:
    """R = form [format] + scale (2 S / S_max - 1) + length min(1, words of the thought / 512).

    S = m(names) + sum over right calls g of the best unused call p of the same name of m(argument names) + |{k: g[k] =
    p[k]}|, m the multiset Jaccard index;  S_max = 1 + sum_g (1 + |arguments of g|). Right calls choose in their order.
    Equal lists give scale; calls that cannot be read, or none where some are right, give -scale; where no call is right
    the correctness is 0 whatever was called. Values are compared as wholes.
    Format: <think>, then <tool_call> where calls are right, else <response>; each once, nothing else. With calls a
    <response> may follow. (arXiv 2504.13958, as in the authors' code.)

    The paper's schedule of the two parts: --reward "toolrl(scale=0)*0,toolrl(form=0)*0" --shape
    "scheduled(toolrl, 2, 1, 150),scheduled(toolrl_2, 0.667, 1, 150)". A reply is correct where the calls and the format
    are. coarse = True is exact match.
    """

    def check(row: Row, reply: str) -> Verdict:
        right = row_calls(row)
        if reason := too_long(reply):
            return wrong(reason, -scale if right else 0.0)
        problem = format_problem(reply, bool(right))
        share, why = _share(reply, right, coarse)
        thought = reply.partition("<think>")[2].partition("</think>")[0]
        score = form * (not problem) + length * min(1.0, len(thought.split()) / _WORDS)
        score += scale * (2 * share - 1) if right else 0.0
        if not problem and share >= 1.0 - 1e-12:
            return Verdict(score, True)
        return wrong(problem or why, score)

    return check


@verifier(
    ENTROPY_GRPO,
    needs=("answer",),
    kinds=("tools",),
    summary="1 where a reply thinks in tags and its calls are exactly the right ones, else 0 (FunRL).",
    when="Function calls with `entropy_grpo`; rows have the right calls as `answer`.",
    task="calls:1",
)
def exact_calls() -> Check:
    """[format] [the calls are the right ones: names, argument names, values, in any order].

    Calls are compared as parsed trees. Reconstructed: the abstract names a binary match of abstract syntax trees and a
    format, not how they are combined (arXiv 2508.05118).
    """

    def check(row: Row, reply: str) -> Verdict:
        right = row_calls(row)
        if reason := too_long(reply):
            return wrong(reason)
        problem = format_problem(reply, bool(right))
        share, why = _share(reply, right, coarse=True)
        return wrong(problem or why) if problem or share < 1 else Verdict(1.0, True)

    return check


def format_problem(reply: str, calls: bool) -> str:
    """Why a reply is not in the format; nothing where it is. calls: whether calls are right."""
    names = ["think", "tool_call" if calls else "response"]
    if calls and "<response>" in reply:
        names.append("response")
    if not calls and "<tool_call>" in reply:
        return "there is a <tool_call> where no call is right"
    return tag_problem(reply, names)


def _share(reply: str, right: list[ToolCall], coarse: bool) -> tuple[float, str]:
    """The share of the credit that the calls of a reply earn, and why it is not all."""
    try:
        calls = read_calls(reply)
    except ValueError as error:
        return 0.0, f"the tool calls cannot be read: {error}"
    if right and not calls:
        return 0.0, "there is no call"
    share = calls_score(calls, right, same=_equal, matching=greedy_matching)
    if coarse and share < 1.0 - 1e-12:
        share = 0.0
    return share, f"{share:.3f} of the credit for {len(right)} calls"


def _equal(value: object, right: object) -> float:
    """1 for equal values: 2 and 2.0 are equal, 1 and true are not."""
    return float(isinstance(value, bool) is isinstance(right, bool) and value == right)
