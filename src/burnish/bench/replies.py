"""Benchmarks whose replies are read: GSM8K, MATH-500, IFEval, HumanEval, MBPP, BBH. Replies never run outside the
sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from burnish.bench.kinds import Bench, Replies, Row, Scores, text
from burnish.core.task import Verdict
from burnish.sandbox.code.limits import SECONDS
from burnish.verifiers.code.grader import Problem
from burnish.verifiers.code.tests import Asserts
from burnish.verifiers.code.verifier import CodeVerifier
from burnish.verifiers.verifier import verifier

_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_BOOK_IT = re.compile(r"(?s).*#### ")


def gsm8k_answer(reply: str, pattern: re.Pattern[str], place: int) -> str:
    """The match of a pattern at a place, as the harness's filters take it: the first non-empty group, stripped."""
    matches = pattern.findall(reply)
    if not matches:
        return "[invalid]"
    match = matches[place]
    return (match if isinstance(match, str) else next((part for part in match if part), "")).strip()


def _plain_number(said: str) -> str:
    """Without commas, dollar signs, what stands before ####, and a full stop at the end; in small letters."""
    return re.sub(r"\.$", "", _BOOK_IT.sub("", said.replace(",", "").replace("$", ""))).lower()


def _gsm8k(rows: Sequence[Row], replies: Sequence[str]) -> Scores:
    right = [_plain_number(text(row, "answer")) for row in rows]
    both = list(zip(right, replies, strict=True))
    return {
        "strict": [float(_plain_number(gsm8k_answer(reply, _STRICT, 0)) == answer) for answer, reply in both],
        "flexible": [float(_plain_number(gsm8k_answer(reply, _FLEXIBLE, -1)) == answer) for answer, reply in both],
    }


def _math(rows: Sequence[Row], replies: Sequence[str]) -> Scores:
    answers = [text(row, "answer") for row in rows]
    verdicts = verifier("answers").judge({"kind": "answers"}, answers, list(replies))
    return {"acc": [float(verdict.correct) for verdict in verdicts]}


def _ifeval(rows: Sequence[Row], replies: Sequence[str]) -> Scores:
    """Whether a reply follows all instructions: as it is, and loosely (without its first and last line, asterisks)."""
    facts = [dict(row) for row in rows]
    scores: Scores = {}
    for name, loose in (("strict", "False"), ("loose", "True")):
        spec = {"kind": "verifier", "call": f"instructions(loose={loose}, unsupported='skip')"}
        verdicts = verifier("instructions").judge(spec, facts, list(replies))
        scores[f"prompt_{name}"] = [float(verdict.correct) for verdict in verdicts]
    return scores


def _run(problems: Sequence[Asserts], replies: Sequence[str]) -> Scores:
    spec = {"kind": "code", "isolated": True}
    verdicts: list[Verdict] = CodeVerifier().judge(spec, [Problem(one) for one in problems], replies, SECONDS)
    return {"pass@1": [float(verdict.correct) for verdict in verdicts]}


def _fenced(code: str) -> str:
    return f"```python\n{code}\n```"


def _humaneval(rows: Sequence[Row], replies: Sequence[str]) -> Scores:
    problems = [Asserts((text(row, "test"),), text(row, "prompt"), text(row, "entry_point")) for row in rows]
    programs = [_fenced(text(row, "prompt") + reply) for row, reply in zip(rows, replies, strict=True)]
    return _run(problems, programs)


def _tests(row: Row) -> list[str]:
    listed = row.get("test_list")
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise ValueError("a row of MBPP has no test_list; keep the columns of the authors' file")
    return [str(test) for test in listed]


def _mbpp(rows: Sequence[Row], replies: Sequence[str]) -> Scores:
    problems = [Asserts(tuple(_tests(row)), str(row.get("test_setup_code") or "")) for row in rows]
    return _run(problems, [_fenced(_mbpp_code(reply)) for reply in replies])


def _mbpp_code(reply: str) -> str:
    """The code of a reply: the first fenced block, or all of it."""
    block = re.search(r"```(?:\w+)?\n?(.*?)\n?```", reply, re.DOTALL)
    return block[1] if block else reply


def _mbpp_ask(row: Row) -> str:
    tests = "\n".join(_tests(row)[:3])
    return (
        f"You are an expert Python programmer, and here is your task: {text(row, 'text', 'prompt')} "
        f"Your code should pass these tests:\n\n{tests}\n[BEGIN]\n"
    )


def _bbh(rows: Sequence[Row], replies: Sequence[str]) -> Scores:
    both = zip(rows, replies, strict=True)
    return {"acc": [float(reply.strip() == text(row, "target").strip()) for row, reply in both]}


GSM8K = Bench(
    "gsm8k",
    "word problems of grade school",
    "2110.14168",
    "openai/gsm8k:main",
    "flexible",
    lambda row: f"Question: {text(row, 'question')}\nAnswer:",
    Replies(_gsm8k, ("Question:", "</s>", "<|im_end|>"), 256),
    shots=5,
    answer=lambda row: f" {text(row, 'answer')}",
)
MATH500 = Bench(
    "math500",
    "500 problems of competitions",
    "2305.20050",
    "HuggingFaceH4/MATH-500",
    "acc",
    lambda row: f"Problem:\n{text(row, 'problem')}\n\nSolution:",
    Replies(_math, ("Problem:",), 1024),
    answer=lambda row: f" {text(row, 'solution')}",
)
IFEVAL = Bench(
    "ifeval",
    "instructions that a program can check",
    "2311.07911",
    "google/IFEval",
    "prompt_strict",
    lambda row: text(row, "prompt"),
    Replies(_ifeval, (), 1280),
)
HUMANEVAL = Bench(
    "humaneval",
    "Python functions from their docstrings",
    "2107.03374",
    "openai/openai_humaneval",
    "pass@1",
    lambda row: text(row, "prompt"),
    Replies(_humaneval, ("\nclass", "\ndef", "\n#", "\nif", "\nprint"), 1024),
)
MBPP = Bench(
    "mbpp",
    "short Python programs from a sentence and three tests",
    "2108.07732",
    "google-research-datasets/mbpp:full",
    "pass@1",
    _mbpp_ask,
    Replies(_mbpp, ("[DONE]",), 512),
    shots=3,
    answer=lambda row: f"{text(row, 'code')}\n[DONE]",
)
BBH = Bench(
    "bbh",
    "23 tasks of BIG-bench that were hard",
    "2210.09261",
    "SaylorTwift/bbh",
    "acc",
    lambda row: f"Q: {text(row, 'input')}\nA:",
    Replies(_bbh, ("</s>", "Q", "\n\n"), 64),
    shots=3,
    answer=lambda row: f" {text(row, 'target')}",
    group=lambda row: str(row.get("task") or ""),
)
