"""Verifiers of the form of a reply: tags, regular expressions, JSON."""

from __future__ import annotations

import re
from typing import Annotated

from burnish.core.option import Option
from burnish.core.task import Verdict
from burnish.papers.pipelines import LLAMA_NEMOTRON
from burnish.verifiers.final_answer import spoken
from burnish.verifiers.json_schema import check_schema, mismatch
from burnish.verifiers.limit import TooSlow, cpu_limit
from burnish.verifiers.read import column_json, json_in, too_long, wrong
from burnish.verifiers.table import Check, Row, verifier

_NAME = re.compile(r"[A-Za-z][\w-]*")
Names = Annotated[str, Option("The names of the tags in their order, with commas between them.")]


def tag_problem(text: str, names: list[str], *, outside: bool = False) -> str:
    """Why a text is not <a>...</a> <b>...</b> with each tag exactly once and in order; nothing if it is.

    outside: whether text may stand outside of the tags
    """
    for name in names:
        for tag in (f"<{name}>", f"</{name}>"):
            if text.count(tag) != 1:
                return f"{tag} occurs {text.count(tag)} times, not once"
    place = 0
    for name in names:
        start, end = text.index(f"<{name}>"), text.index(f"</{name}>")
        if start < place or end < start:
            return f"<{name}> and </{name}> are not in order"
        if not outside and text[place:start].strip():
            return f"there is text outside of the tags, before <{name}>"
        if not text[start + len(name) + 2 : end].strip():
            return f"<{name}> is empty"
        place = end + len(name) + 3
    return "there is text after the last tag" if not outside and text[place:].strip() else ""


def tag_names(names: str) -> list[str]:
    """The names in "think,answer"."""
    listed = [name.strip() for name in names.split(",")]
    for name in listed:
        if not _NAME.fullmatch(name) or listed.count(name) > 1:
            raise ValueError(f"the tags {names!r} are not different names with commas between them; write think,answer")
    return listed


@verifier(kinds=("format",), summary="1 where the reply is <think>...</think><answer>...</answer>, each tag once.")
def tags(names: Names = "think,answer", *, outside: bool = False) -> Check:
    """1 where every opening and closing tag occurs exactly once, in order, with text inside; else 0.

    outside: text may stand before, between and after the tags (the default: white space alone).
    """
    wanted = tag_names(names)

    def check(row: Row, reply: str) -> Verdict:
        problem = tag_problem(reply, wanted, outside=outside)
        return wrong(problem) if problem else Verdict(1.0, True)

    return check


@verifier(
    LLAMA_NEMOTRON,
    kinds=("format",),
    summary="1 where a reply thinks in tags exactly if the system message says so.",
)
def toggled(
    *,
    on: Annotated[str, Option("The words that switch thinking on.")] = "detailed thinking on",
    off: Annotated[str, Option("The words that switch thinking off.")] = "detailed thinking off",
) -> Check:
    """The format reward of Llama-Nemotron (arXiv 2505.00949, section 5.1), looked up in the prompt of the row.

    on: 1 where <think> and </think> occur once each, in order, with text inside. off: 1 where neither occurs. A prompt
    with neither of the two asks for nothing, and every reply gets 1. `burnish toggle` writes such rows.
    """

    def check(row: Row, reply: str) -> Verdict:
        prompt = row["prompt"]
        text = " ".join(map(str, prompt)) if isinstance(prompt, list | tuple) else str(prompt)
        if off in text:
            match = [tag for tag in ("<think>", "</think>") if tag in reply]
            return wrong(f"{match[0]} occurs, but thinking is switched off") if match else Verdict(1.0, True)
        problem = tag_problem(reply, ["think"], outside=True) if on in text else ""
        return wrong(problem) if problem else Verdict(1.0, True)

    return check


@verifier(kinds=("format",), summary="The share of the tags <think>, </think>, <answer>, </answer> that occur once.")
def tag_count(names: Names = "think,answer") -> Check:
    """1/(2n) for each of the 2n opening and closing tags that occurs exactly once; correct where all do, in order.

    Tags that all occur once, but not in order or without text inside, get 1 - 1/(2n).
    """
    wanted = tag_names(names)
    single = [tag for name in wanted for tag in (f"<{name}>", f"</{name}>")]

    def check(row: Row, reply: str) -> Verdict:
        share = sum(reply.count(tag) == 1 for tag in single) / len(single)
        problem = tag_problem(reply, wanted, outside=True)
        return wrong(problem, min(share, 1 - 1 / len(single))) if problem else Verdict(share, True)

    return check


@verifier(
    kinds=("format",),
    summary="1 where a regular expression matches the reply.",
    call="\"regex('[0-9]{3}-[0-9]{4}')\"",
)
def regex(
    pattern: Annotated[str, Option("A Python regular expression; quote it.")],
    *,
    whole: Annotated[bool, Option("It must match the whole reply, not a part.")] = False,
) -> Check:
    """1 where the pattern is found in the reply (re.DOTALL), or matches the whole of it.

    A search that takes more than 2 s of CPU time ends with 0 and that reason. With a pattern that backtracks without
    end, (a+)+b, that is what a hostile reply gets.
    """
    try:
        compiled = re.compile(str(pattern), re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the pattern {str(pattern)[:80]!r} is not a regular expression: {error}") from None
    find = compiled.fullmatch if whole else compiled.search

    def check(row: Row, reply: str) -> Verdict:
        if reason := too_long(reply):
            return wrong(reason)
        try:
            with cpu_limit():
                matched = find(reply)
        except TooSlow as error:
            return wrong(f"the search for the pattern was stopped: {error}")
        return Verdict(1.0, True) if matched else wrong("the pattern does not match")

    return check


@verifier(kinds=("format",), summary="1 where the answer is JSON, with the keys or of the schema that is asked for.")
def json_format(
    keys: Annotated[str, Option("Keys that the object must have, with commas between them.")] = "",
) -> Check:
    """1 where the answer (after the thinking; a single ``` block counts) is one strict JSON value; else 0.

    With `keys` it is an object with these keys. With a column `schema` (JSON Schema: type, properties, required, items,
    enum, const, bounds, lengths, additionalProperties, anyOf, pattern) it satisfies the schema. NaN, infinities,
    repeated keys and nesting that exhausts the stack are not JSON.
    """
    wanted = [key.strip() for key in keys.split(",") if key.strip()]

    def check(row: Row, reply: str) -> Verdict:
        schema: object = column_json(row, "schema") if row.get("schema") is not None else None
        if schema is not None:
            check_schema(schema)
        if reason := too_long(reply):
            return wrong(reason)
        try:
            value = json_in(spoken(reply))
        except ValueError as error:
            return wrong(f"it is not JSON: {error}")
        if wanted and not isinstance(value, dict):
            return wrong(f"it is {type(value).__name__}, not an object")
        if isinstance(value, dict) and (missing := [key for key in wanted if key not in value]):
            return wrong(f"it has no key {missing[0]!r}")
        try:
            with cpu_limit():
                problem = mismatch(value, schema) if schema is not None else ""
        except TooSlow as error:
            problem = f"the comparison with the schema was stopped: {error}"
        return wrong(problem) if problem else Verdict(1.0, True)

    return check
