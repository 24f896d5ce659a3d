"""Whether a reply follows instructions that a program can check (IFEval)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from burnish.core.option import Option
from burnish.core.task import Verdict
from burnish.verifiers.checks import BadRow
from burnish.verifiers.constraints import CONSTRAINTS, LANGUAGES, Constraint
from burnish.verifiers.final_answer import spoken
from burnish.verifiers.read import column_json, too_long, wrong
from burnish.verifiers.table import Check, Row, verifier

MOST_CHARACTERS = 100_000
Asked = tuple[str, Constraint, Mapping[str, object]]
Loose = Annotated[bool, Option("Also without the first line, the last line, both, and without asterisks.")]


@verifier(
    kinds=("instructions",),
    summary="The share of the checkable instructions that a reply follows (IFEval).",
    when="Rows have `instruction_id_list` and `kwargs`, as IFEval's, or `constraints`: [{id, options}].",
)
def instructions(
    *,
    loose: Loose = False,
    every: Annotated[bool, Option("1 where all instructions are followed, else 0, instead of the share.")] = False,
    unsupported: Annotated[
        Literal["stop", "skip"], Option("Languages in Latin script, which cannot be told apart.")
    ] = "stop",
) -> Check:
    """Followed / all instructions of the row (every=True: 1[all followed]), of the part after the thinking.

    The instructions are IFEval's 25 types and startend:start_checker (arXiv 2311.07911); `burnish rewards constraint`
    lists them. loose: an instruction is followed if the reply follows it as it is, without its first line, its last
    line or both, or any of these without asterisks. An empty reply follows nothing.
    """

    def check(row: Row, reply: str) -> Verdict:
        wanted = [one for one in _asked(row) if unsupported == "stop" or not _untold(one)]
        if not wanted:
            raise BadRow("a row has no instruction to check; fill in 'instruction_id_list' or 'constraints'")
        text = spoken(reply)
        if reason := too_long(text, MOST_CHARACTERS):
            return wrong(reason)
        broken = [name for name, constraint, options in wanted if not _follows(text, constraint, options, loose)]
        score = 1 - len(broken) / len(wanted)
        if not broken:
            return Verdict(1.0, True)
        return wrong(f"not followed: {', '.join(broken)}", 0.0 if every else score)

    return check


@verifier(
    kinds=("instructions",),
    summary="1 where a reply keeps one constraint of IFEval, the same for all rows.",
    call="\"constraint('number_words', relation='at most', num_words=50)\"",
)
def constraint(name: str, *, loose: Loose = False, **options: object) -> Check:
    """1 where the part of a reply after its thinking keeps the constraint.

    The name is one of IFEval's, with or without what stands before the colon: constraint('no_comma'),
    constraint('number_words', relation='at least', num_words=50). They are:
    keywords: existence (keywords), frequency (keyword, relation, frequency), forbidden_words (forbidden_words),
    letter_frequency (letter, let_relation, let_frequency); language: response_language (language);
    length_constraints: number_sentences (relation, num_sentences), number_paragraphs (num_paragraphs), number_words
    (relation, num_words), nth_paragraph_first_word (num_paragraphs, nth_paragraph, first_word);
    detectable_content: number_placeholders (num_placeholders), postscript (postscript_marker);
    detectable_format: number_bullet_lists (num_bullets), constrained_response, number_highlighted_sections
    (num_highlights), multiple_sections (section_spliter, num_sections), json_format, title;
    combination: two_responses, repeat_prompt (prompt_to_repeat); startend: start_checker (start_phrase), end_checker
    (end_phrase), quotation; change_case: capital_word_frequency (capital_relation, capital_frequency),
    english_capital, english_lowercase; punctuation: no_comma.
    relation is "at least", "less than", "at most" or "exactly".
    """
    rule = find(name)
    seen = _Seen(options)
    try:
        rule("A text.", seen)  # a missing option is an error now
    except BadRow as error:
        raise ValueError(f"constraint({name!r}): {error}") from None
    if unread := options.keys() - seen.names:
        raise ValueError(
            f"constraint({name!r}) has no option {min(unread)!r}; it reads {', '.join(sorted(seen.names))}"
        )

    def check(row: Row, reply: str) -> Verdict:
        text = spoken(reply)
        if reason := too_long(text, MOST_CHARACTERS):
            return wrong(reason)
        return Verdict(1.0, True) if _follows(text, rule, options, loose) else wrong(f"not followed: {name}")

    return check


class _Seen(dict[str, object]):
    """Options that note which of them are read."""

    def __init__(self, options: Mapping[str, object]) -> None:
        super().__init__(options)
        self.names: set[str] = set()

    def get(self, name: str, default: object = None) -> object:
        self.names.add(name)
        return super().get(name, default)


def find(name: str) -> Constraint:
    """The constraint of a name, with or without its group; raises BadRow for an unknown one."""
    short = {key.partition(":")[2]: rule for key, rule in CONSTRAINTS.items()}
    entry = CONSTRAINTS.get(name) or short.get(name)
    if entry is None:
        raise BadRow(f"there is no constraint {name!r:.60}; known are {', '.join(short)}")
    return entry


def _follows(text: str, rule: Constraint, options: Mapping[str, object], loose: bool) -> bool:
    if not text.strip():
        return False
    return any(bool(one.strip()) and rule(one, options) for one in (_variants(text) if loose else [text]))


def _variants(text: str) -> Iterator[str]:
    lines = text.split("\n")
    for one in (lines, lines[1:], lines[:-1], lines[1:-1]):
        joined = "\n".join(one).strip()
        yield joined
        yield joined.replace("*", "")


def _asked(row: Row) -> list[Asked]:
    """The constraints of a row, with their options."""
    if row.get("constraints") is not None:
        given = column_json(row, "constraints")
        if not isinstance(given, list) or not all(isinstance(one, Mapping) and "id" in one for one in given):
            raise BadRow("the column 'constraints' of a row is not a list of {id, options}")
        return [(str(one["id"]), find(str(one["id"])), one) for one in given]
    if row.get("instruction_id_list") is None:
        raise BadRow(
            "instructions needs a column 'instruction_id_list' (and 'kwargs') or 'constraints'; a row has none"
        )
    names = column_json(row, "instruction_id_list")
    if not isinstance(names, list):
        raise BadRow("the column 'instruction_id_list' of a row is not a list")
    options = column_json(row, "kwargs") if row.get("kwargs") is not None else [{}] * len(names)
    if not isinstance(options, list):
        raise BadRow("the column 'kwargs' of a row is not a list")
    if len(names) != len(options):
        raise BadRow(f"a row has {len(names)} instructions and {len(options)} kwargs; give one of each")
    return [(name, find(name), one or {}) for name, one in zip(names, options, strict=True)]


def _untold(instruction: Asked) -> bool:
    return instruction[0].endswith("response_language") and str(instruction[2].get("language")) not in LANGUAGES
