"""Answers to questions about tables, as JSON in a reply: short answers, labels and free text (Table-R1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Annotated

from burnish import papers
from burnish.core.option import Option
from burnish.core.task import Verdict
from burnish.verifiers.checks import BadRow
from burnish.verifiers.final_answer import number
from burnish.verifiers.formats import tag_problem
from burnish.verifiers.read import LONGEST, read_json, too_long, wrong
from burnish.verifiers.similarity import bleu, rouge_l, tokens, words
from burnish.verifiers.table import Check, Row, verifier
from burnish.verifiers.tables import Tolerance, entries

MOST_ANSWERS = 100
SOURCES = {"wtq": "short", "hitab": "short", "tabfact": "label", "fetaqa": "free"}  # data_source of the authors' rows
LABELS = ("entailed", "refuted")
_OPENED = re.compile(r'\{\s*"answer"\s*:')


def said_answer(reply: str) -> object:
    """The value of {"answer": ...} after the thinking: in the <answer>, else anywhere; None where there is none."""
    told = reply.rpartition("</think>")[2]
    if "<think>" in told:
        return None
    block = told.partition("<answer>")[2].partition("</answer>")
    for text in (block[0] if block[1] else "", told):
        for piece in (*_blocks(text), *_bare(text)):
            if (answer := _value(piece)) is not None:
                return answer
    return None


def _blocks(text: str) -> list[str]:
    """The contents of the ```json blocks of a text."""
    return [part[4:].strip() for part in text.split("```")[1:-1] if part.startswith("json")]


def _bare(text: str) -> list[str]:
    """The first {"answer": ...} of a text, up to each of the braces that may close it."""
    if (opened := _OPENED.search(text)) is None:
        return []
    rest = text[opened.start() :]
    return [rest[: brace.end()] for brace in [*re.finditer(r"\}", rest)][:20]]


def _value(text: str) -> object:
    try:
        value = read_json(text)
    except ValueError:
        return None
    return value.get("answer") if isinstance(value, dict) else None


def fenced_answer(reply: str, kind: str) -> str:
    """Why a reply is not <think>...</think><answer>```json {"answer": ...}```</answer>; nothing if it is."""
    if problem := tag_problem(reply, ["think", "answer"]):
        return problem
    blocks = _blocks(reply.partition("<answer>")[2].partition("</answer>")[0])
    value = next((answer for block in blocks if (answer := _value(block)) is not None), None)
    if value is None:
        return '<answer> has no ```json {"answer": ...} block'
    if kind == "short" and not (isinstance(value, list) and all(isinstance(one, str) for one in value)):
        return "the answer is not a list of texts"
    return "" if kind != "label" or value in LABELS else f"the answer is not {' or '.join(LABELS)}"


def same_answers(answers: Sequence[object], right: Sequence[object], tolerance: float) -> bool:
    """Whether two lists hold the same answers, in any order, each as often: numbers within the tolerance, other texts
    letter by letter."""
    if len(answers) != len(right) or not 0 < len(answers) <= MOST_ANSWERS:
        return False
    left = [_plain(one) for one in right]
    for one in map(_plain, answers):
        place = next((i for i, other in enumerate(left) if _same(one, other, tolerance)), None)
        if place is None:
            return False
        del left[place]
    return True


def _plain(value: object) -> Fraction | str:
    """A number, with thousands separators or without; else the text itself."""
    text = str(value)
    numeric = None if any(sign in text for sign in "$%/") else number(text)
    return text if numeric is None else numeric


def _same(a: Fraction | str, b: Fraction | str, tolerance: float) -> bool:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return abs(a - b) <= Fraction(tolerance)
    return a == b


def _short(answer: object, right: object, tolerance: float) -> float:
    answers = answer if isinstance(answer, list) else [answer]
    accepted = right if isinstance(right, list) else entries(right)
    return float(
        not any(isinstance(one, list | dict) for one in answers) and same_answers(answers, accepted, tolerance)
    )


def _label(answer: object, right: object, tolerance: float) -> float:
    return float(answer == _first(right))


def _free(answer: object, right: object, tolerance: float) -> float:
    text = " ".join(str(one).strip() for one in answer) if isinstance(answer, list) else str(answer).strip()
    references = [str(one) for one in right] if isinstance(right, list) else [str(right)]
    overlap = bleu(tokens(text), [tokens(one) for one in references])
    return (overlap + max(rouge_l(words(text), words(one)) for one in references)) / 2


def _first(right: object) -> object:
    return right[0] if isinstance(right, list) and right else right


KINDS: dict[str, Callable[[object, object, float], float]] = {"short": _short, "label": _label, "free": _free}


@verifier(
    papers.TABLE_R1,
    needs=("answer",),
    kinds=("table",),
    summary="Format 1 + accuracy 1 of answers to questions about tables (Table-R1).",
    when="Rows have `answer`, and `table_kind` (short, label or free) or the authors' data_source (WTQ, TabFact, ...).",
)
def table_r1(
    kind: Annotated[str, Option("What the answers are, of rows that do not say.", choices=tuple(KINDS))] = "short",
    *,
    tolerance: Tolerance = 0.01,
    format_weight: Annotated[float, Option("The reward of the format.", at_least=0)] = 1.0,
) -> Check:
    """format_weight 1[format] + accuracy, in arXiv 2505.23621; 0 without {"answer": ...}.

    format: <think>...</think><answer>...</answer>, each once and in order, and inside <answer> a ```json block with
    {"answer": ["text", ...]}, {"answer": "entailed"} or {"answer": "text"}. accuracy, also of JSON without the block:
    short answers 1[equal multisets, numbers within the tolerance, texts letter by letter]; labels 1[equal]; free text
    (BLEU + ROUGE-L) / 2, of the whole reply where it has no JSON. A reply is correct where its accuracy is above 0.5.
    The staged format rewards that the authors give to base models (0.3, 0.2, 0.3, 0.2) are not here; `tag_count` is a
    graded format reward.
    """

    def check(row: Row, reply: str) -> Verdict:
        source = str(row.get("data_source") or "").rpartition("/")[2].casefold()
        kind_of_row = str(row.get("table_kind") or SOURCES.get(source) or kind)
        if kind_of_row not in KINDS:
            raise BadRow(f"the column 'table_kind' of a row is {kind_of_row!r:.40}; it is {', '.join(KINDS)}")
        if reason := too_long(reply, LONGEST):
            return wrong(reason)
        answer = said_answer(reply)
        if answer is None and kind_of_row == "free":
            answer = reply
        if answer is None or answer == [] or (kind_of_row == "label" and answer not in LABELS):
            return wrong('there is no {"answer": ...}')
        problem = fenced_answer(reply, kind_of_row)
        right = list(row["answer"]) if isinstance(row["answer"], tuple) else row["answer"]
        accuracy = KINDS[kind_of_row](answer, right, tolerance)
        score = accuracy + (0.0 if problem else format_weight)
        return Verdict(score, True) if accuracy > 0.5 else wrong(problem or "the answer is not right", score)

    return check
