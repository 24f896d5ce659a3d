"""Verifiers of puzzles: zebra puzzles with credit for cells, orders, grids, outputs of programs."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping

from burnish import papers
from burnish.core.task import Verdict
from burnish.verifiers.checks import BadRow
from burnish.verifiers.final_answer import spoken
from burnish.verifiers.read import fenced, json_in, read_json, too_long, wrong
from burnish.verifiers.table import Check, Row, verifier

LONGEST_LITERAL = 20_000  # characters of a Python literal in a reply
_OPENED, _CLOSED = re.compile(r"\[\s*\["), re.compile(r"\]\s*\]")
_NAME = re.compile(r"[\w\s'-]+")


def cells(value: object) -> dict[tuple[str, str], str]:
    """(row, column) -> cell of a table: {"header": [...], "rows": [[...]]} or {house: {attribute: value}}."""
    if isinstance(value, Mapping) and isinstance(value.get("header"), list) and isinstance(value.get("rows"), list):
        names = [_plain(name) for name in value["header"]]
        rows = value["rows"]
        if not all(isinstance(row, list) and len(row) == len(names) for row in rows):
            raise ValueError("a row has another length than the header")
        return {
            (str(i), name): _plain(cell) for i, row in enumerate(rows) for name, cell in zip(names, row, strict=True)
        }
    if isinstance(value, Mapping) and value and all(isinstance(row, Mapping) for row in value.values()):
        return {(_plain(house), _plain(k)): _plain(cell) for house, row in value.items() for k, cell in row.items()}
    raise ValueError('a table is {"header": [...], "rows": [[...]]} or {house: {attribute: value}}')


def _literal_column(row: Row) -> object:
    """The answer of a row; JSON or a Python literal where it is a text."""
    given = row["answer"]
    return literal_in(given) if isinstance(given, str) else given


def _header(answer: object) -> object:
    table = literal_in(answer) if isinstance(answer, str) else answer
    return table.get("header") if isinstance(table, Mapping) else None


def literal_in(text: str) -> object:
    """The JSON or Python literal that a text is, or that its only ``` block holds; raises ValueError if it is none."""
    try:
        return json_in(text)
    except ValueError as error:
        blocks = fenced(text)
        inner = (blocks[0] if len(blocks) == 1 else text).strip()
        if len(inner) > LONGEST_LITERAL:
            raise
        try:
            return ast.literal_eval(inner)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            raise error from None


def _plain(value: object) -> str:
    return " ".join(str(value).casefold().split())


@verifier(
    papers.GURU,
    needs=("answer",),
    kinds=("zebra",),
    summary="The share of the cells of a zebra puzzle that are right (Guru).",
)
def zebra() -> Check:
    """Right cells / all cells; `answer` and reply are {"header", "rows"} or {house: {attribute: value}}.

    They are JSON or a Python literal. Rows are compared place by place, whatever the reply's header says, without
    regard to case. A cell that the reply adds to the table, or rows of other lengths, make it unreadable: 0.
    """

    def check(row: Row, reply: str) -> Verdict:
        try:
            right = cells(_literal_column(row))
        except ValueError as error:
            raise BadRow(f"the answer of a row: {error}") from None
        if reason := too_long(reply):
            return wrong(reason)
        try:
            table = literal_in(spoken(reply))
            if isinstance(table, Mapping) and "rows" in table and (names := _header(row["answer"])):
                table = {**table, "header": names}
            filled = cells(table)
            if isinstance(table, Mapping) and "rows" in table and len(filled) < len(right):
                raise ValueError("it has too few rows")
        except ValueError as error:
            return wrong(f"the table cannot be read: {error}")
        if extra := filled.keys() - right.keys():
            return wrong(f"there is no cell {min(extra)!r:.60}")
        share = sum(filled.get(place) == cell for place, cell in right.items()) / len(right)
        return Verdict(1.0, True) if share == 1 else wrong(f"{share:.3f} of the cells are right", share)

    return check


@verifier(
    papers.GURU,
    needs=("answer",),
    kinds=("grid", "simulation"),
    summary="1 where the reply is the same JSON value: a grid (ARC), the output of a program, a list (Guru).",
)
def json_equal() -> Check:
    """1[said = right] as JSON values: objects without order, lists with it, 1 and 1.0 equal, true and 1 not.

    `answer` is a value or its JSON text; a text that is no JSON is compared as a string.
    """

    def check(row: Row, reply: str) -> Verdict:
        right = answer = row["answer"]
        if isinstance(answer, str):
            try:
                right = json_in(answer)
            except ValueError:
                right = answer.strip()
        if reason := too_long(reply):
            return wrong(reason)
        text = spoken(reply)
        try:
            value = json_in(text)
        except ValueError as error:
            if isinstance(right, str) and text == right:
                return Verdict(1.0, True)
            return wrong(f"it is not JSON: {error}")
        return Verdict(1.0, True) if same_json(value, right) else wrong("the value is another one")

    return check


@verifier(
    papers.GURU,
    needs=("answer",),
    kinds=("order",),
    summary="1 where a list of names is the right one, in the right order (Guru's ordering puzzles).",
)
def ordering() -> Check:
    """1[said = right] as lists of names, in order and without regard to case.

    The list of the reply is JSON, a Python literal (['raven', 'hawk']) or names without quotes ([raven, hawk]), after
    the thinking or in <answer>.
    """

    def check(row: Row, reply: str) -> Verdict:
        try:
            given = _literal_column(row)
            right = [_plain(one) for one in given] if isinstance(given, list | tuple) else []
        except ValueError:
            right = []
        if not right:
            raise BadRow("the answer of a row is not a list of names")
        if reason := too_long(reply):
            return wrong(reason)
        order = names_in(spoken(reply))
        return Verdict(1.0, True) if order == right else wrong(f"the order is another one than {order[:5]!r:.80}")

    return check


def names_in(text: str) -> list[str]:
    """The names in the last [...] of a text."""
    inner = text.rpartition("[")[2].partition("]")[0] if "[" in text and "]" in text.rpartition("[")[2] else ""
    names = [piece.strip().strip("'\"").strip() for piece in inner.split(",")]
    return [_plain(name) for name in names] if all(map(_NAME.fullmatch, names)) else []


@verifier(
    papers.GURU,
    needs=("answer",),
    kinds=("grid",),
    summary="1 where the grid of a reply is the right one (ARC, Guru).",
)
def grid() -> Check:
    """1[said = right] as lists of lists of numbers; that of the reply is its last [[...]], in <answer> if there is one.

    What stands around the grid does not count, as in the released code.
    """

    def check(row: Row, reply: str) -> Verdict:
        try:
            right = _literal_column(row)
        except ValueError as error:
            raise BadRow(f"the answer of a row is not a grid: {error}") from None
        if reason := too_long(reply):
            return wrong(reason)
        opened = [*_OPENED.finditer(text := spoken(reply))]
        closed = _CLOSED.search(text, opened[-1].start()) if opened else None
        if closed is None:
            return wrong("there is no grid")
        try:
            value = read_json(text[opened[-1].start() : closed.end()])
        except ValueError as error:
            return wrong(f"the grid cannot be read: {error}")
        return Verdict(1.0, True) if same_json(value, right) else wrong("the grid is another one")

    return check


@verifier(
    papers.GURU,
    needs=("answer",),
    kinds=("simulation",),
    summary="1 where the predicted input or output of a program is the right one (CodeI/O, Guru).",
)
def codeio() -> Check:
    """1[said = right] as JSON values, with or without {"output": ...} or {"input": ...} around them.

    That of the reply is its first ``` block, else the last {...} in it. `answer` is a value, or a text such as
    "output": {"x": 1}. As in the released code, the texts true and false are truth values, and texts that are JSON
    lists or objects stand for these.
    """

    def check(row: Row, reply: str) -> Verdict:
        right = simplified(_unwrapped(_told(row["answer"])))
        if reason := too_long(reply):
            return wrong(reason)
        text = spoken(reply)
        try:
            said = _last_object(next(iter(fenced(text)), text))
        except ValueError as error:
            return wrong(f"it is not JSON: {error}")
        if isinstance(said, Mapping) and same_json(simplified(_unwrapped(said)), right):
            return Verdict(1.0, True)
        return wrong("the value is another one")

    return check


def _told(answer: object) -> object:
    """The value of a text such as "output": 3, of JSON or of a Python literal; the text itself where it is none."""
    if not isinstance(answer, str):
        return answer
    for text in (answer, f"{{{answer}}}"):
        try:
            return literal_in(text)
        except ValueError:
            pass
    return answer


def _unwrapped(value: object) -> object:
    if isinstance(value, Mapping):
        return value.get("output", value.get("input", value))
    return value


def _last_object(text: str) -> object:
    """The JSON value that a text is, else the last whole {...} in it."""
    try:
        return read_json(text.strip())
    except ValueError:
        last, depth, start = "", 0, 0
        for brace in re.finditer(r"[{}]", text):
            if brace[0] == "{":
                start, depth = (brace.start() if not depth else start), depth + 1
            elif depth:
                depth -= 1
                last = text[start : brace.end()] if not depth else last
        return read_json(last.replace("\n", ""))


def simplified(value: object, deepest: int = 100) -> object:
    """A value whose texts that are JSON lists, objects or truth values stand for these; ValueError if it is deeper."""
    if not deepest:
        raise ValueError("it is nested too deeply")
    if isinstance(value, str):
        text = value.strip()
        if text[:1] + text[-1:] in ("{}", "[]"):
            try:
                return simplified(json.loads(text), deepest - 1)
            except (ValueError, RecursionError):
                return value
        return text.casefold() == "true" if text.casefold() in ("true", "false") else value
    if isinstance(value, list | tuple):
        return [simplified(one, deepest - 1) for one in value]
    if isinstance(value, Mapping):
        return {key: simplified(one, deepest - 1) for key, one in value.items()}
    return value


def same_json(value: object, right: object) -> bool:
    """Whether two JSON values are equal, by a stack of our own, so that their depth does not matter."""
    pending = [(value, right)]
    while pending:
        a, b = pending.pop()
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if a.keys() != b.keys():
                return False
            pending += [(a[key], b[key]) for key in a]
        elif isinstance(a, list | tuple) and isinstance(b, list | tuple):
            if len(a) != len(b):
                return False
            pending += zip(a, b, strict=True)
        elif isinstance(a, bool) != isinstance(b, bool) or a != b:
            return False
    return True
