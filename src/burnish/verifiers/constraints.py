"""Constraints on the form of a reply that a program can check, by the names of IFEval (arXiv 2311.07911).

A constraint is a function(reply, options) -> bool; `CONSTRAINTS` holds them by name. Departures: keywords are whole
words, a language is known by its script alone, and no library splits sentences. Words are runs of letters and digits;
a sentence ends with . ! or ? before a space or the end.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence

from burnish.verifiers.checks import BadRow
from burnish.verifiers.read import json_in

Options = Mapping[str, object]
Constraint = Callable[[str, Options], bool]

_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "at least": lambda count, bound: count >= bound,
    "less than": lambda count, bound: count < bound,
    "at most": lambda count, bound: count <= bound,
    "exactly": lambda count, bound: count == bound,
}
_LANGUAGES = {  # script, as the Unicode names of its letters begin -> languages
    "ARABIC": "ar fa ur",
    "BENGALI": "bn",
    "CJK": "ja zh",
    "CYRILLIC": "bg ru uk",
    "DEVANAGARI": "hi mr ne",
    "GREEK": "el",
    "GUJARATI": "gu",
    "GURMUKHI": "pa",
    "HANGUL": "ko",
    "HEBREW": "he",
    "HIRAGANA": "ja",
    "KANNADA": "kn",
    "KATAKANA": "ja",
    "MALAYALAM": "ml",
    "TAMIL": "ta",
    "TELUGU": "te",
    "THAI": "th",
}
LANGUAGES = sorted({language for listed in _LANGUAGES.values() for language in listed.split()})
SUGGESTED = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def option(options: Options, name: str) -> object:
    """An option of a constraint; raises BadRow where it is missing."""
    if options.get(name) is None:
        raise BadRow(f"a constraint lacks its option {name!r}; it has {', '.join(options) or 'none'}")
    return options[name]


def number(options: Options, name: str) -> int:
    """An option that is a whole number; raises BadRow."""
    value = option(options, name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise BadRow(f"the option {name!r} of a constraint is {value!r:.40}; it must be a whole number")
    return int(value)


def listed(options: Options, name: str) -> list[str]:
    """An option that is a list of words; raises BadRow."""
    value = option(options, name)
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, Sequence) or not all(isinstance(word, str) and word.strip() for word in words):
        raise BadRow(f"the option {name!r} of a constraint is {value!r:.40}; it must be a list of words")
    return list(words)


def related(count: int, options: Options, relation: str, bound: str) -> bool:
    """Whether a count stands in the relation of the options to their bound."""
    word = str(options.get(relation) or "at least")
    if word not in _RELATIONS:
        raise BadRow(f"the relation {word!r:.40} of a constraint is unknown; known are {', '.join(_RELATIONS)}")
    return _RELATIONS[word](count, number(options, bound))


def has_word(text: str, word: str) -> bool:
    """Whether a word or phrase occurs, as whole words and without regard to case."""
    return occurrences(text, word) > 0


def occurrences(text: str, word: str) -> int:
    """How often a word or phrase occurs as whole words, without regard to case."""
    return len(re.findall(rf"(?<!\w){re.escape(word.strip().casefold())}(?!\w)", text.casefold()))


def word_count(text: str) -> int:
    """Words: runs of letters and digits, with apostrophes and hyphens inside."""
    return len(re.findall(r"\w+(?:['’-]\w+)*", text))


def sentence_count(text: str) -> int:
    """Pieces that end with . ! or ? before a space or the end, or with the text."""
    return sum(bool(re.search(r"\w", piece)) for piece in re.split(r"(?<=[.!?])[\"'”’)]*\s+", text.strip()))


def paragraphs(text: str) -> list[str]:
    """Paragraphs: between empty lines, or between lines of *** where there are some."""
    pieces = re.split(r"^[ \t]*\*\*\*[ \t]*$", text, flags=re.MULTILINE)
    if len(pieces) == 1:
        pieces = re.split(r"\n[ \t]*\n", text)
    return [piece.strip() for piece in pieces if piece.strip()]


def nth_paragraph(text: str, options: Options) -> bool:
    """There are num_paragraphs paragraphs between empty lines, and the nth begins with first_word."""
    pieces = [piece.strip() for piece in re.split(r"\n[ \t]*\n", text) if piece.strip()]
    nth = number(options, "nth_paragraph")
    if len(pieces) != number(options, "num_paragraphs") or not 0 < nth <= len(pieces):
        return False
    words = re.findall(r"\w+(?:['’-]\w+)*", pieces[nth - 1])
    return bool(words) and words[0].casefold() == str(option(options, "first_word")).strip().casefold()


def bullets(text: str) -> int:
    """Lines that begin with *, - or + and a space."""
    return len(re.findall(r"^[ \t]*[*+-][ \t]+\S", text, re.MULTILINE))


def highlights(text: str) -> int:
    """Parts between *single* or **double** asterisks in one line that are not empty."""
    marked = re.findall(r"\*\*([^\n*]+)\*\*|(?<!\*)\*([^\n*]+)\*(?!\*)", text)
    return sum(bool((double or single).strip()) for double, single in marked)


def sections(text: str, splitter: str) -> int:
    """Headings such as SECTION 1."""
    return len(re.findall(rf"(?<!\w){re.escape(splitter.strip())}\s+\d+", text))


def has_title(text: str) -> bool:
    """Whether there is a title in double angular brackets."""
    return any(title.strip() for title in re.findall(r"<<([^\n<>]+)>>", text))


def has_postscript(text: str, marker: str) -> bool:
    """Whether a line begins with the marker (P.S., P.P.S.) and says something."""
    spelled = r"[ \t]*".join(re.escape(letter) + r"\.?" for letter in re.sub(r"[^A-Za-z]", "", marker))
    return (
        re.search(rf"^[ \t]*{spelled or re.escape(marker)}[ \t:]*[^\s.:]", text, re.MULTILINE | re.IGNORECASE)
        is not None
    )


def two_responses(text: str) -> bool:
    """Whether there are exactly two different answers with a line of six asterisks between them."""
    pieces = [piece.strip() for piece in text.split("******")]
    pieces = [piece for i, piece in enumerate(pieces) if piece or 0 < i < len(pieces) - 1]
    return len(pieces) == 2 and all(pieces) and pieces[0] != pieces[1]


def is_json(text: str) -> bool:
    """Whether the whole text is JSON, in a ``` block or not."""
    stripped = text.strip()
    if "```" in stripped and not (stripped.startswith("```") and stripped.endswith("```")):
        return False
    try:
        json_in(stripped)
    except ValueError:
        return False
    return True


def in_script(text: str, language: str) -> bool:
    """Whether more than half of the letters belong to the script of a language."""
    begins = tuple(script for script, languages in _LANGUAGES.items() if language in languages.split())
    if not begins:
        raise BadRow(
            f"response_language cannot tell {language!r:.20} by its script, as it can {', '.join(LANGUAGES)}; remove "
            "the constraint, or use instructions(unsupported='skip')"
        )
    letters = [letter for letter in text if letter.isalpha()]
    own = sum(unicodedata.name(letter, "").startswith(begins) for letter in letters)
    return 2 * own > len(letters) > 0


def capital_words(text: str) -> int:
    """Words of capital letters alone."""
    return sum(word.isupper() for word in re.findall(r"\w+(?:['’-]\w+)*", text))


def letter_count(text: str, options: Options) -> int:
    """How often a letter occurs, without regard to case."""
    letter = str(option(options, "letter")).casefold()
    if len(letter) != 1:
        raise BadRow(f"the option 'letter' of a constraint is {letter!r:.40}; it must be one letter")
    return text.casefold().count(letter)


CONSTRAINTS: dict[str, Constraint] = {
    "keywords:existence": lambda t, o: all(has_word(t, word) for word in listed(o, "keywords")),
    "keywords:frequency": lambda t, o: related(occurrences(t, str(option(o, "keyword"))), o, "relation", "frequency"),
    "keywords:forbidden_words": lambda t, o: not any(has_word(t, word) for word in listed(o, "forbidden_words")),
    "keywords:letter_frequency": lambda t, o: related(letter_count(t, o), o, "let_relation", "let_frequency"),
    "language:response_language": lambda t, o: in_script(t, str(option(o, "language"))),
    "length_constraints:number_sentences": lambda t, o: related(sentence_count(t), o, "relation", "num_sentences"),
    "length_constraints:number_paragraphs": lambda t, o: len(paragraphs(t)) == number(o, "num_paragraphs"),
    "length_constraints:number_words": lambda t, o: related(word_count(t), o, "relation", "num_words"),
    "length_constraints:nth_paragraph_first_word": nth_paragraph,
    "detectable_content:number_placeholders": lambda t, o: (
        len(re.findall(r"\[[^\[\]\n]+\]", t)) >= number(o, "num_placeholders")
    ),
    "detectable_content:postscript": lambda t, o: has_postscript(t, str(option(o, "postscript_marker"))),
    "detectable_format:number_bullet_lists": lambda t, o: bullets(t) == number(o, "num_bullets"),
    "detectable_format:constrained_response": lambda t, o: t.strip() in SUGGESTED,
    "detectable_format:number_highlighted_sections": lambda t, o: highlights(t) >= number(o, "num_highlights"),
    "detectable_format:multiple_sections": lambda t, o: (
        sections(t, str(option(o, "section_spliter"))) >= number(o, "num_sections")
    ),
    "detectable_format:json_format": lambda t, o: is_json(t),
    "detectable_format:title": lambda t, o: has_title(t),
    "combination:two_responses": lambda t, o: two_responses(t),
    "combination:repeat_prompt": lambda t, o: (
        t.strip().casefold().startswith(str(option(o, "prompt_to_repeat")).strip().casefold())
    ),
    "startend:end_checker": lambda t, o: (
        t.strip().strip('"').casefold().endswith(str(option(o, "end_phrase")).strip().casefold())
    ),
    "startend:start_checker": lambda t, o: (
        t.strip().casefold().startswith(str(option(o, "start_phrase")).strip().casefold())
    ),
    "startend:quotation": lambda t, o: len(t.strip()) > 2 and t.strip()[0] == '"' == t.strip()[-1],
    "change_case:capital_word_frequency": lambda t, o: related(
        capital_words(t), o, "capital_relation", "capital_frequency"
    ),
    "change_case:english_capital": lambda t, o: t.isupper(),
    "change_case:english_lowercase": lambda t, o: t.islower(),
    "punctuation:no_comma": lambda t, o: not re.search(r"[,，、،]", t),
}
