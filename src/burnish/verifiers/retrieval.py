"""Rewards of retrieval: cited answers (RAG-RL), searches with notes (AutoRefine), searches only where needed (SEM)."""

from __future__ import annotations

import re
from typing import Annotated

from burnish.core.option import Option
from burnish.core.task import Verdict
from burnish.papers import AUTOREFINE, RAG_RL, SEM
from burnish.verifiers.checks import BadRow
from burnish.verifiers.read import answers_of, column_json, too_long, wrong
from burnish.verifiers.similarity import bag_f1, squad_normalised
from burnish.verifiers.table import Check, Row, verifier

_CITED = re.compile(
    r"\s*<think>(?P<thought>.*?)</think>\s*answer:(?P<answer>[^\n]*)\n\s*citations:(?P<cited>[^\n]*)\s*",
    re.DOTALL | re.IGNORECASE,
)
_NUMBERS = re.compile(r"\[([\w.-]{1,64})\]")
_ANSWER_LINE = re.compile(r"^[ \t]*answer:([^\n]*)$", re.MULTILINE | re.IGNORECASE)
_CITATION_LINE = re.compile(r"^[ \t]*citations:([^\n]*)$", re.MULTILINE | re.IGNORECASE)
_CLOSED = ("yes", "no", "noanswer")  # answers that only an equal answer matches


@verifier(
    RAG_RL,
    needs=("answer", "supports"),
    kinds=("citations",),
    summary="Answer 5, recall of the right citations 5, -2 for each wrong one, and format (RAG-RL).",
    when="Prompts hold numbered passages; rows have `answer` and the numbers of the passages that `supports` it.",
    task="passages:1",
)
def rag_rl(
    *,
    answer: Annotated[float, Option("The reward of the right answer.", at_least=0)] = 5.0,
    cited: Annotated[float, Option("The reward of citing all passages that support it.", at_least=0)] = 5.0,
    wrongly: Annotated[float, Option("What each wrong citation costs.", at_least=0)] = 2.0,
    form: Annotated[float, Option("The reward of the right format.", at_least=0)] = 1.0,
    penalty: Annotated[float, Option("What a wrong format costs.", at_least=0)] = 1.0,
) -> Check:
    """R = answer [said = a] + cited |C & G| / |G| - wrongly |C - G| + (form if the format is right, else -penalty).

    G: the supporting passages; C: the different passages that the line `citations:` names as [1] [3]. Answers are equal
    in SQuAD's normal form. Format: <think>...</think>, a line `answer: ...`, a line `citations: ...`, nothing else, and
    at most 20% of the characters outside of ASCII. (arXiv 2503.12759 v1.) The wrong citations' cost has no bound, as in
    the paper. form and penalty are not printed there; 1 and 1 are ours, and so are the words of the headings.
    """

    def check(row: Row, reply: str) -> Verdict:
        right = column_json(row, "supports")
        if not isinstance(right, list | tuple) or not right:
            raise BadRow(f"the column 'supports' of a row is {right!r:.40}; make it a list of passage numbers")
        gold = {str(one) for one in right}
        if reason := too_long(reply):
            return wrong(reason, -penalty)
        said = (_ANSWER_LINE.findall(reply) or [""])[-1]
        named = set(_NUMBERS.findall((_CITATION_LINE.findall(reply) or [""])[-1]))
        plain = squad_normalised(said)
        correct = bool(plain) and any(plain == squad_normalised(one) for one in answers_of(row))
        good = bool(_CITED.fullmatch(reply)) and reply.count("<think>") == 1 and not _odd(reply)
        score = answer * correct + cited * len(named & gold) / len(gold) - wrongly * len(named - gold)
        score += form if good else -penalty
        if correct and good and named == gold:
            return Verdict(score, True)
        return wrong(f"answer {correct}, {len(named & gold)} of {len(gold)} cited, {len(named - gold)} wrongly", score)

    return check


@verifier(
    AUTOREFINE,
    needs=("answer",),
    kinds=("text",),
    summary="F1 of the answer; a little where only the notes hold it (AutoRefine).",
    when="Episodes search in several turns and note evidence in <refine>: --task search --reward autorefine.",
    task="search:1",
)
def autorefine(
    *,
    noted: Annotated[float, Option("The reward of notes that hold the answer.", at_least=0)] = 0.1,
) -> Check:
    """R = F1(answer, best right one) if above 0; else `noted` if a right answer occurs in the <refine> blocks; else 0.

    The answer is the last <answer>...</answer>; without one R = 0 whatever the notes hold. F1 of words in SQuAD's
    normal form, 0 where one of the two is yes or no and the other differs. A right answer occurs in the notes as a
    phrase of whole words, after the same normalisation, as in the authors' code. noted = 0 is F1 alone. (arXiv
    2505.11277.)
    """

    def check(row: Row, reply: str) -> Verdict:
        right = answers_of(row)
        if reason := too_long(reply):
            return wrong(reason)
        answers = blocks(reply, "answer")
        if not answers:
            return wrong("there is no <answer>")
        score = answer_f1(answers[-1], right)
        if score > 0:
            return Verdict(score, True) if score >= 1 else wrong(f"F1 is {score:.3f}", score)
        notes = f" {squad_normalised(' '.join(blocks(reply, 'refine')))} "
        plain = [squad_normalised(one) for one in right]
        in_notes = any(one and f" {one} " in notes for one in plain)  # of "A" nothing is left, which is in all notes
        return wrong(
            "the notes hold the answer" if in_notes else "neither the answer nor the notes are right", noted * in_notes
        )

    return check


@verifier(
    SEM,
    needs=("answer",),
    kinds=("text",),
    summary="The direct answer pays without a search, the final one after a search that was needed (SEM).",
    when="Replies try an answer first and search only where it fails: --task search --reward sem.",
    task="search:1",
)
def sem(
    *,
    tau: Annotated[float, Option("The F1 from which a direct answer needs no search.", above=0, at_most=1)] = 0.8,
) -> Check:
    """Reconstructed reward (the paper's equation could not be read; tau is ours), F1 as in `autorefine`:

    F1(direct) >= tau:  F1(direct) without a search, 0 with one
    F1(direct) <  tau:  F1(final) with a search, 0 without one
    bad format: 0

    direct: the first <answer>, before any <search>; final: the last <answer>. Format: the first tag of a reply is
    <answer>, and after a search another one follows the last. Without the clauses on searching it is F1 of the final
    answer, which is `autorefine(noted=0)`. (arXiv 2505.07903.)
    """

    def check(row: Row, reply: str) -> Verdict:
        right = answers_of(row)
        if reason := too_long(reply):
            return wrong(reason)
        place, searched = reply.find("<answer>"), "<search>" in reply
        if place < 0 or (searched and not place < reply.find("<search>") < reply.rfind("<answer>")):
            return wrong("the reply does not try an answer first, or does not end with one")
        answers = blocks(reply, "answer")
        if not answers:
            return wrong("an <answer> is not closed")
        direct, final = answer_f1(answers[0], right), answer_f1(answers[-1], right)
        if direct >= tau:
            return wrong("it searched what it knew") if searched else Verdict(direct, True)
        if not searched:
            return wrong("it did not search what it does not know")
        return Verdict(final, True) if final >= tau else wrong(f"F1 after the search is {final:.3f}", final)

    return check


def blocks(text: str, tag: str) -> list[str]:
    """The contents of all <tag>...</tag>."""
    contents = []
    for piece in text.split(f"<{tag}>")[1:]:
        inside, closed, _ = piece.partition(f"</{tag}>")
        if closed:
            contents.append(inside.strip())
    return contents


def answer_f1(answer: str, right: list[str]) -> float:
    """The best F1 of words; 0 where one is yes or no and the other is not equal."""
    own = squad_normalised(answer)
    if not own:
        return 0.0
    return max(_f1(own, squad_normalised(one)) for one in right)


def _f1(answer: str, right: str) -> float:
    if answer != right and (answer in _CLOSED or right in _CLOSED):
        return 0.0
    return bag_f1(answer.split(), right.split())


def _odd(text: str) -> bool:
    """Whether more than a fifth of the characters are outside of ASCII."""
    return sum(not letter.isascii() for letter in text) > 0.2 * len(text)
