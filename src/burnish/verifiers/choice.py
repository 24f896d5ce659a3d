"""Multiple choice: the letter, or the text, of the option that a reply chooses."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Annotated

from burnish.core.option import Option
from burnish.core.task import Verdict
from burnish.verifiers.checks import BadRow
from burnish.verifiers.final_answer import spoken
from burnish.verifiers.read import wrong
from burnish.verifiers.table import Check, Row, verifier

READ = 20_000  # characters, from the end
_MARK = r"[(\[{（【*_\s]*([A-Za-z])[)\]}）】*_]*"
_WHOLE = re.compile(rf"{_MARK}\s*[.:]?\s*")
_LEADING = re.compile(r"[(\[（*_\s]*([A-Z])(?:[)\]）*_]*[.:]|[)\]）*_]+(?=\s|$))")
_SAID = re.compile(
    r"(?i:answer|option|choice)(?i:\s+is)?\s*[:=]?\s*(?:\\text)?[(\[{（*_\s]*"
    r"(?:([A-Z])(?![A-Za-z0-9'’])|([a-z])(?=[)\]}）*_.\s]*(?:\n|$)))"
)
_HEDGE = re.compile(r"[)\]}）*_.\s]*(?:,|/|&|or\b|and\b)[(\[{（*_\s]*[A-Za-z](?![A-Za-z0-9'’])")
_LISTED = re.compile(r"(?<![A-Za-z0-9.])([A-Z])[.):](?=\s|$)")
_BOXED = re.compile(r"\\boxed\s*\{\s*(?:\\(?:text|mathrm|textbf)\s*\{)?\s*\(?([A-Za-z])\)?\s*\}")
_BRACKETED = re.compile(r"[(（]([A-Z])[)）]")
_BOLD = re.compile(r"\*\*\(?([A-Z])\)?[.:)]?\*\*")


@verifier(
    needs=("answer",),
    kinds=("choice",),
    summary="1 where the reply chooses the right option of a multiple-choice question.",
)
def choice(*, letters: Annotated[int, Option("How many options there are.", at_least=2, at_most=26)] = 26) -> Check:
    """1[chosen = right]. The right option is the row's `answer`: a letter, a number from 0 or the text of an option.

    Options may stand in the column `choices` (or `options`): a list of texts, letter -> text, or {"label", "text"}.
    The chosen letter is, of what follows the thinking: the whole of it (B, (b), **B.**), in the last \\boxed{}, after
    the last `answer is`, `option`, `choice`; at the beginning as in "B. Paris" or "(B)"; the only one in brackets or
    bold; else the option whose text the reply is, or the only one that it contains. Two different letters where one is
    expected are no choice.
    """
    allowed = string.ascii_uppercase[:letters]

    def check(row: Row, reply: str) -> Verdict:
        options = _options(row)
        letters = [letter for letter in allowed if not options or letter in options]
        right = _right(row["answer"], options, letters)
        letter = chosen(spoken(reply)[-READ:], options, letters)
        if letter == right:
            return Verdict(1.0, True)
        return wrong(f"the answer is {right}, not {letter}" if letter else "the reply chooses no option, or several")

    return check


def chosen(text: str, options: Mapping[str, str], letters: Sequence[str]) -> str | None:
    """The letter that a text chooses; None if it is none or several."""
    text = text.strip()
    if match := _WHOLE.fullmatch(text):
        return _among(match[1].upper(), letters)
    if boxed := _BOXED.findall(text):
        return _among(boxed[-1].upper(), letters)
    if statements := [*_SAID.finditer(text)]:
        letter = (statements[-1][1] or statements[-1][2]).upper()
        return None if _HEDGE.match(text, statements[-1].end()) else _among(letter, letters)
    listed = _distinct(_BRACKETED, text, letters) | _distinct(_LISTED, text, letters)
    if (match := _LEADING.match(text)) and not listed - {match[1]}:
        return None if _HEDGE.match(text, match.end()) else _among(match[1], letters)
    for pattern in (_BRACKETED, _BOLD):
        found_letters = _distinct(pattern, text, letters)
        if found_letters:
            return found_letters.pop() if len(found_letters) == 1 else None
    return _by_text(text, options)


def _among(letter: str, letters: Sequence[str]) -> str | None:
    return letter if letter in letters else None


def _distinct(pattern: re.Pattern[str], text: str, letters: Sequence[str]) -> set[str]:
    return {letter for letter in pattern.findall(text) if letter in letters}


def _by_text(text: str, options: Mapping[str, str]) -> str | None:
    """The option whose text this is, or the only one whose text occurs in it as whole words."""
    plain = _plain(text)
    equal = [letter for letter, option in options.items() if _plain(option) == plain]
    if equal:
        return equal[0] if len(equal) == 1 else None
    inside = [letter for letter, option in options.items() if _plain(option) and f" {_plain(option)} " in f" {plain} "]
    return inside[0] if len(inside) == 1 else None


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[^\w]+", " ", text).casefold().split())


def _options(row: Row) -> dict[str, str]:
    """Letter -> text of the options of a row; empty where it has none."""
    given: object = row.get("choices") if row.get("choices") is not None else row.get("options")
    if given is None:
        return {}
    if isinstance(given, Mapping) and {"label", "text"} <= given.keys():
        given = dict(zip(given["label"], given["text"], strict=False))
    if isinstance(given, Mapping):
        options = {str(letter).strip().upper(): str(text) for letter, text in given.items()}
        if strange := [label for label in options if label not in string.ascii_uppercase or not label]:
            raise BadRow(f"an option of a row has the label {strange[0]!r}; label the options A, B, C and so on")
        return options
    if isinstance(given, list | tuple):
        return dict(zip(string.ascii_uppercase, map(str, given), strict=False))
    raise BadRow(f"the column 'choices' of a row is {given!r:.60}; make it a list of texts, or letter -> text")


def _right(answer: object, options: Mapping[str, str], letters: Sequence[str]) -> str:
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(letters):
        return letters[answer]
    text = str(answer).strip()
    match = _WHOLE.fullmatch(text)
    if match and match[1].upper() in letters:
        return match[1].upper()
    same = [letter for letter, option in options.items() if _plain(option) == _plain(text)]
    if len(same) == 1:
        return same[0]
    if text.isdecimal() and int(text) < len(letters):
        return letters[int(text)]
    if (match := _LEADING.match(text)) and match[1] in letters:
        return match[1]
    raise BadRow(f"the answer {text[:60]!r} of a row is none of its options {', '.join(letters)}; make it a letter")
