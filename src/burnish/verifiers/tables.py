"""Answers to questions about tables: multisets of short answers, labels and free text (Table-R1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Annotated, Any

from burnish import papers
from burnish.core.option import Option
from burnish.core.task import Verdict
from burnish.verifiers.checks import BadRow
from burnish.verifiers.final_answer import final_answer, number, spoken
from burnish.verifiers.formats import tag_problem
from burnish.verifiers.read import json_in, read_json, too_long, wrong
from burnish.verifiers.similarity import bleu, rouge_l, squad_normalised, tokens, words
from burnish.verifiers.table import Check, Row, verifier

Tolerance = Annotated[float, Option("The largest difference of numbers that are the same.", at_least=0)]
MOST_ANSWERS = 1000


def entries(value: Any) -> list[str]:
    """The short answers in a value: a list, JSON of one, {"answer": ...}, or one text with | between them."""
    if isinstance(value, str):
        text = value.strip()
        if text[:1] in "[{":
            try:
                return entries(read_json(text))
            except ValueError:
                return [text]
        return [part.strip() for part in text.split("|") if part.strip()]
    if isinstance(value, Mapping):
        return entries(value["answer"]) if "answer" in value else [str(value)]
    if isinstance(value, list | tuple):
        return [str(one).strip() for one in value if not isinstance(one, list | Mapping)]
    return [str(value)]


def same_multiset(said: list[str], right: list[str], tolerance: float) -> bool:
    """Whether two lists hold the same answers, in any order, each as often: numbers within the tolerance."""
    if len(said) != len(right) or len(said) > MOST_ANSWERS:
        return False
    texts = [Counter(squad_normalised(one) for one in side if number(one) is None) for side in (said, right)]
    if texts[0] != texts[1]:
        return False
    numbers = [sorted(value for one in side if (value := number(one)) is not None) for side in (said, right)]
    return all(abs(a - b) <= Fraction(tolerance) for a, b in zip(*numbers, strict=True))


def _short(said: str, right: Any, tolerance: float) -> float:
    return float(same_multiset(entries(said), entries(right), tolerance))


def _label(said: str, right: Any, tolerance: float) -> float:
    return float(squad_normalised(" ".join(entries(said))) == squad_normalised(str(right)))


def _free(said: str, right: Any, tolerance: float) -> float:
    references = [str(one) for one in right] if isinstance(right, list | tuple) else [str(right)]
    text = bleu(tokens(said), [tokens(one) for one in references])
    return (text + max(rouge_l(words(said), words(one)) for one in references)) / 2


KINDS: dict[str, Callable[[str, Any, float], float]] = {"short": _short, "label": _label, "free": _free}


@verifier(
    needs=("answer",),
    kinds=("table", "list"),
    summary="1 where the short answers of a reply are the right ones, as a multiset.",
)
def answer_list(*, tolerance: Tolerance = 0.01) -> Check:
    """1[said = right as multisets]; numbers are equal within the tolerance, texts after SQuAD's normalisation.

    `answer` is a list, JSON of a list, or a text with | between the answers; so is the answer of the reply (the whole
    after the thinking, its only ``` block, or what is marked as the answer). Thousands separators, $ and % are dropped.
    """

    def check(row: Row, reply: str) -> Verdict:
        right = entries(row["answer"])
        if reason := too_long(reply):
            return wrong(reason)
        said = _said(reply)
        if right and same_multiset(said, right, tolerance):
            return Verdict(1.0, True)
        return wrong(f"the answers are {right[:5]!r:.60}, not {said[:5]!r:.60}")

    return check


def _said(reply: str) -> list[str]:
    text = spoken(reply)
    try:
        return entries(json_in(text))
    except ValueError:
        return entries(final_answer(text) if text else "")


@verifier(
    papers.TABLE_R1,
    needs=("answer",),
    kinds=("table",),
    summary="Format 1 + accuracy 1 of answers to questions about tables (Table-R1).",
    when="Rows have `answer`, and `table_kind` where they are of several kinds: short, label or free.",
)
def table_r1(
    kind: Annotated[str, Option("What the answers are.", choices=tuple(KINDS))] = "short",
    *,
    tolerance: Tolerance = 0.01,
    format_weight: Annotated[float, Option("The reward of the format.", at_least=0)] = 1.0,
) -> Check:
    """format_weight 1[format] + accuracy, in arXiv 2505.23621; 0 without an <answer>.

    format: <think>...</think><answer>...</answer>, each once and in order. accuracy: short answers 1[equal multisets,
    numbers within the tolerance]; labels 1[equal]; free text (BLEU + ROUGE-L) / 2. A reply is correct where its
    accuracy is above 0.5. The staged format rewards that the authors give to base models (0.3, 0.2, 0.3, 0.2) are not
    here; `tag_count` is a graded format reward.
    """

    def check(row: Row, reply: str) -> Verdict:
        measure = KINDS.get(str(row.get("table_kind") or kind))
        if measure is None:
            raise BadRow(f"the column 'table_kind' of a row is {row['table_kind']!r:.40}; it is {', '.join(KINDS)}")
        if reason := too_long(reply):
            return wrong(reason)
        if "<answer>" not in reply.rpartition("</think>")[2]:
            return wrong("there is no <answer>")
        problem = tag_problem(reply, ["think", "answer"])
        said = spoken(reply)
        accuracy = measure(said, row["answer"], tolerance) if said else 0.0
        score = accuracy + (0.0 if problem else format_weight)
        return Verdict(score, True) if accuracy > 0.5 else wrong(problem or "the answer is not right", score)

    return check
