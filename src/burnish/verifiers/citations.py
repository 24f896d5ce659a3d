"""Citations: do the cited sources exist, and do they support what is said?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from burnish.core.option import Option
from burnish.core.task import Verdict
from burnish.verifiers.checks import BadRow
from burnish.verifiers.final_answer import spoken
from burnish.verifiers.read import column_json, too_long, wrong
from burnish.verifiers.similarity import f_measure
from burnish.verifiers.table import Check, Row, verifier

MOST_CHARACTERS = 50_000
_CITATION = re.compile(r"\[([\w.-]{1,64}(?:\s*[,;]\s*[\w.-]{1,64}){0,20})\]")
_SENTENCE = re.compile(r"(?<=[.!?\]])\s+(?![\[\s])|\n+")


@verifier(
    needs=("sources",),
    kinds=("citations",),
    summary="F1 of the citations of a reply: they exist, and support what the sentence says.",
    when="Rows have `sources` (ids, or id -> text) and `supports` (the right ids) or `facts` (id -> phrases).",
)
def citations(
    *, minimum: Annotated[float, Option("The F1 from which a reply counts as correct.", above=0, at_most=1)] = 1.0
) -> Check:
    """2 P R / (P + R); 0 where nothing is cited, or a source that does not exist.

    Citations are [id] or [id, id]. With `facts`: a citation counts as supported if its sentence contains one of the
    phrases of that source (whole words, without regard to case); P = supported / all citations, R = phrases that stand
    in a sentence that cites their source / all phrases. With `supports`: P and R of the set of cited ids.
    A list of every source at the end of a reply has a low precision in both cases.
    """

    def check(row: Row, reply: str) -> Verdict:
        sources = _ids(column_json(row, "sources"))
        text = spoken(reply)
        if reason := too_long(text, MOST_CHARACTERS):
            return wrong(reason)
        sentences = [(piece, _cited(piece)) for piece in _SENTENCE.split(text)]
        cited = [name for _, names in sentences for name in names]
        if not cited:
            return wrong("nothing is cited")
        if strange := [name for name in cited if name not in sources]:
            return wrong(f"there is no source {strange[0]!r}")
        score = _by_facts(sentences, row) if row.get("facts") is not None else _by_ids({*cited}, row)
        return Verdict(score, True) if score >= minimum else wrong(f"F1 of the citations is {score:.3f}", score)

    return check


def _ids(given: object) -> set[str]:
    """The ids of sources: of a mapping its keys, of {"id": ...} theirs, else the entries themselves."""
    if isinstance(given, Mapping):
        return {str(name) for name in given}
    if not isinstance(given, list | tuple):
        raise BadRow(f"the column 'sources' of a row is {given!r:.40}; make it a list of ids, or id -> text")
    return {str(one["id"] if isinstance(one, Mapping) and "id" in one else one) for one in given}


def _cited(text: str) -> list[str]:
    return [name.strip() for names in _CITATION.findall(text) for name in re.split(r"[,;]", names)]


def _by_ids(cited: set[str], row: Row) -> float:
    if row.get("supports") is None:
        raise BadRow(
            "citations needs a column 'supports' (the right ids) or 'facts' (id -> phrases); a row has neither"
        )
    right = _ids(column_json(row, "supports"))
    return f_measure(len(cited & right), len(cited), len(right))


def _by_facts(sentences: list[tuple[str, list[str]]], row: Row) -> float:
    given = column_json(row, "facts")
    if not isinstance(given, Mapping):
        raise BadRow("the column 'facts' of a row is not an object of id -> phrases")
    phrases = {str(k): [_plain(p) for p in ([v] if isinstance(v, str) else v)] for k, v in given.items()}
    total = sum(map(len, phrases.values()))
    stated: set[tuple[str, str]] = set()
    cited = supported = 0
    for text, names in sentences:
        sentence = _plain(_CITATION.sub(" ", text))
        for name in names:
            matched = {(name, phrase) for phrase in phrases.get(name, []) if phrase and phrase in sentence}
            cited, supported = cited + 1, supported + bool(matched)
            stated |= matched
    precision, recall = supported / cited, len(stated) / total if total else 0.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def _plain(text: str) -> str:
    """Lower-case words with a space before and after each."""
    words = re.findall(r"[^\W_]+", str(text).casefold())
    return f" {' '.join(words)} "
