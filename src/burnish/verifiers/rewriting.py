"""Rewriting of a text, by heuristics that need no model (on-device rewrite agent)."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from burnish import papers
from burnish.core.option import Option
from burnish.core.task import Verdict
from burnish.verifiers.checks import BadRow
from burnish.verifiers.final_answer import spoken
from burnish.verifiers.read import too_long, wrong
from burnish.verifiers.similarity import edit_distance, repetition, words
from burnish.verifiers.table import Check, Row, verifier

MOST_CHARACTERS = 20_000


def rewriting_score(terms: list[float], repeated: float) -> float:
    """max(0, mean of the terms - repetition)."""
    return max(0.0, sum(terms) / len(terms) - repeated)


def within(value: float, low: float, high: float) -> float:
    """1 inside of [low, high]; below it value / low, above it high / value."""
    if value < low:
        return value / low
    return 1.0 if value <= high else high / value


@verifier(
    papers.ON_DEVICE_REWRITE_AGENT,
    needs=("source",),
    kinds=("rewriting",),
    summary="Heuristics for a rewritten text: length, edits, words kept and added, repetition.",
    when="Rows have the text to be rewritten as `source`; add a natural-language-inference model as a second reward.",
)
def rewriting(
    *,
    shortest: Annotated[float, Option("The smallest wanted length / length of the source.", above=0)] = 0.5,
    longest: Annotated[float, Option("The largest wanted length / length of the source.", above=0)] = 1.5,
    edits: Annotated[float, Option("The wanted edit distance / longer length.", above=0, at_most=1)] = 0.1,
    ngram: Annotated[int, Option("The length of the n-grams that shall not repeat.", at_least=1)] = 3,
) -> Check:
    """max(0, (length + edit + kept + grounded) / 4 - repetition), equal weights (arXiv 2308.11807, weights not given).

    length = 1 where |reply| / |source| in words is within [shortest, longest], falling off outside; edit = min(1,
    edit distance / longer length / edits); repetition = 1 - distinct / all n-grams. kept and grounded are the recall
    and precision of the words of the source. They stand in for the two inference terms, NLI(reply -> source) and
    NLI(source -> reply), which need a model and are not here. A copy of the source, an empty reply and one without any
    word of the source score 0. A reply is correct where every term is at least 0.5. For instructions that shorten or
    elaborate set shortest and longest.
    """
    if shortest > longest:
        raise ValueError(f"shortest={shortest:g} is above longest={longest:g}; swap them")

    def check(row: Row, reply: str) -> Verdict:
        source = " ".join(str(row["source"]).split())
        own = words(source)
        if not own:
            raise BadRow("the column 'source' of a row has no words; fill it in or remove the row")
        text = " ".join(spoken(reply).split())
        if reason := too_long(text, MOST_CHARACTERS):
            return wrong(reason)
        words_of_reply = words(text)
        if not words_of_reply:
            return wrong("there is no text")
        if words_of_reply == own:
            return wrong("it is a copy of the source")
        shared = sum((Counter(words_of_reply) & Counter(own)).values())
        if not shared:
            return wrong("it keeps no word of the source")
        edited = edit_distance(text, source[:MOST_CHARACTERS]) / max(len(text), len(source))
        length = within(len(words_of_reply) / len(own), shortest, longest)
        terms = [length, min(1.0, edited / edits), shared / len(own), shared / len(words_of_reply)]
        score = rewriting_score(terms, repetition(words_of_reply, ngram))
        if min(terms) >= 0.5:
            return Verdict(score, True)
        return wrong("length {:.2f}, edits {:.2f}, kept {:.2f}, grounded {:.2f}".format(*terms), score)

    return check
