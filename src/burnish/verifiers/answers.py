"""Verifiers that compare the final answer of a reply with the right one."""

from __future__ import annotations

from burnish.core.task import Verdict
from burnish.verifiers.final_answer import final_answer, judge_answer
from burnish.verifiers.mathematics import same_mathematics
from burnish.verifiers.table import Check, Row, verifier


@verifier(needs=("answer",), kinds=("math",), summary="1 where the final answer equals the right one as mathematics.")
def math() -> Check:
    """The final answer (after ####, in \\boxed{}, after `answer:`, or the last number) equals the row's `answer`.

    Numbers are compared as fractions, the rest as text, then by math-verify if it is installed.
    """
    same_mathematics("x+1", "1+x")  # imports its libraries now, outside of the time limit of a reply

    def check(row: Row, reply: str) -> Verdict:
        return judge_answer(str(row["answer"]), reply, same_mathematics)

    return check


@verifier(needs=("answer",), kinds=("text",), summary="1 where the final answer is the right text, letter by letter.")
def exact(*, case: bool = False) -> Check:
    """The final answer equals the row's `answer` after folding spaces, and case unless `case` is set."""

    def plain(text: str) -> str:
        text = " ".join(text.split())
        return text if case else text.casefold()

    def check(row: Row, reply: str) -> Verdict:
        right, answer = str(row["answer"]), final_answer(reply)
        if plain(answer) == plain(right):
            return Verdict(1.0, True)
        return Verdict(0.0, False, f"the answer is {right[:40]!r}, not {answer[:40]!r}")

    return check
