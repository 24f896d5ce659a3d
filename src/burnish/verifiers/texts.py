"""Verifiers that compare an answer with reference texts: exact match, F1, ROUGE, BLEU, CodeBLEU, edit similarity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from burnish.core.option import Option
from burnish.core.task import Verdict
from burnish.papers import SELF_DEBUG
from burnish.verifiers import code_similarity, similarity
from burnish.verifiers.read import answers_of, fenced, text_answer, too_long, wrong
from burnish.verifiers.table import Check, Row, verifier

Minimum = Annotated[float, Option("The score from which a reply counts as correct.", above=0, at_most=1)]
MOST_COMPARED = 20_000  # characters of the texts whose characters are compared one by one


def _graded(measure: Callable[[str, list[str]], float], minimum: float, most: int | None = None) -> Check:
    """A check by a similarity of the answer to the references, within [0, 1]."""

    def check(row: Row, reply: str) -> Verdict:
        answer, right = text_answer(reply), answers_of(row)
        if reason := too_long(answer, most) if most else too_long(answer):
            return wrong(reason)
        score = measure(answer, right)
        if score >= minimum:
            return Verdict(score, True)
        return wrong(f"similarity {score:.3f} to {right[0][:40]!r}", score)

    return check


@verifier(
    needs=("answer",), kinds=("text",), summary="1 where the answer equals the right one after SQuAD's normalisation."
)
def exact_match() -> Check:
    """1[norm(said) = norm(a)] for any a of the row's `answer` (a text, or a list of accepted ones).

    norm: lower case, without punctuation, articles and extra spaces (SQuAD, arXiv 1606.05250). The answer is what is
    marked as such (####, \\boxed{}, `answer:`, <answer>), else the whole reply after its thinking.
    """

    def measure(answer: str, right: list[str]) -> float:
        plain = similarity.squad_normalised(answer)
        return float(bool(plain) and any(plain == similarity.squad_normalised(one) for one in right))

    return _graded(measure, 1.0)


@verifier(needs=("answer",), kinds=("text",), summary="SQuAD's F1 of the words of the answer and of the right one.")
def f1(*, minimum: Minimum = 0.5) -> Check:
    """max over the accepted answers of 2 P R / (P + R), over the multisets of normalised words (arXiv 1606.05250).

    Without common words 0. A long reply around the right answer loses by its precision.
    """

    def measure(answer: str, right: list[str]) -> float:
        own = similarity.squad_normalised(answer).split()
        if not own:
            return 0.0
        return max(similarity.bag_f1(own, similarity.squad_normalised(one).split()) for one in right)

    return _graded(measure, minimum)


@verifier(needs=("answer",), kinds=("text",), summary="ROUGE-1, ROUGE-2 or ROUGE-L of the answer and of a reference.")
def rouge(
    kind: Annotated[Literal["1", "2", "L"], Option("N-grams, or the longest common subsequence.")] = "L",
    *,
    minimum: Minimum = 0.5,
) -> Check:
    """F1 of the common unigrams (1), bigrams (2) or of the longest common subsequence (L); the best reference counts.

    Words are lower-case runs of letters and digits, without stemming (Lin 2004).
    """
    kinds: dict[str, Callable[[list[str], list[str]], float]] = {
        "1": lambda a, b: similarity.rouge_n(a, b, 1),
        "2": lambda a, b: similarity.rouge_n(a, b, 2),
        "L": similarity.rouge_l,
    }

    def measure(answer: str, right: list[str]) -> float:
        own = similarity.words(answer)
        return max(kinds[kind](own, similarity.words(one)) for one in right)

    return _graded(measure, minimum)


@verifier(needs=("answer",), kinds=("text",), summary="Sentence BLEU of the answer, with exponential smoothing.")
def bleu(
    *, order: Annotated[int, Option("The longest n-grams.", at_least=1, at_most=10)] = 4, minimum: Minimum = 0.5
) -> Check:
    """min(1, e^(1 - r/c)) exp(1/N sum_n log p_n), p_n the clipped n-gram precisions (Papineni et al. 2002).

    Smoothing: the k-th order without a match counts 1/2^k matches; orders longer than the reply are left out; without
    a common word 0. Tokens are lower-case words and single punctuation marks.
    """

    def measure(answer: str, right: list[str]) -> float:
        return similarity.bleu(similarity.tokens(answer), [similarity.tokens(one) for one in right], order)

    return _graded(measure, minimum)


@verifier(needs=("answer",), kinds=("text",), summary="1 - edit distance / longer length, by characters.")
def edit_similarity(*, minimum: Minimum = 0.9) -> Check:
    """1 - Levenshtein(answer, a) / max(|answer|, |a|), the best of the accepted answers; spaces are folded.

    Texts of more than 20,000 characters score 0 with that reason.
    """

    def measure(answer: str, right: list[str]) -> float:
        own = " ".join(answer.split())
        return max(similarity.edit_similarity(own, " ".join(one.split())[:MOST_COMPARED]) for one in right)

    return _graded(measure, minimum, MOST_COMPARED)


@verifier(
    SELF_DEBUG,
    needs=("answer",),
    kinds=("code",),
    summary="CodeBLEU of a Python program and the right one: n-grams, syntax tree, data flow.",
    when="Programs should stay close to known solutions, or tests are few; nothing is run.",
)
def codebleu(*, minimum: Minimum = 0.9) -> Check:
    """(BLEU + BLEU with weighted keywords + AST match + data-flow match) / 4; the best of the references counts.

    The program is the last block of code of the reply, or the whole. AST match: the share of the reference's subtrees,
    by the kinds of nodes, that the program has; data-flow match: the same of (assigned, read) pairs of variables,
    numbered as they occur. Departures from arXiv 2009.10297: Python alone, and simpler rules of data flow; a reference
    without data flow is compared by the other three. Replies of more than 20,000 characters score 0.
    """

    def measure(said: str, right: list[str]) -> float:
        own = (fenced(said) or [said])[-1]
        try:
            return max(code_similarity.codebleu(own, (fenced(one) or [one])[-1]) for one in right)
        except RecursionError:
            return 0.0

    return _graded(measure, minimum, MOST_COMPARED)
