"""Proofs in Lean 4: what is checked of the text before Lean runs, and how its messages are read (Leanabell-Prover)."""

from __future__ import annotations

import json
import re
from typing import Annotated, TypedDict

from burnish import papers
from burnish.core.option import Option
from burnish.verifiers.checks import BadRow
from burnish.verifiers.final_answer import spoken
from burnish.verifiers.read import fenced
from burnish.verifiers.table import Row, verifier

AXIOMS = {"propext", "Classical.choice", "Quot.sound"}  # those of Lean and Mathlib
MOST_CHARACTERS = 50_000
_FORBIDDEN = (  # what leaves a gap, changes the language, or runs code while the proof is checked
    *("sorry", "admit", "sorryAx", "axiom", "axioms", "constant", "opaque", "unsafe", "partial", "native_decide"),
    *("ofReduceBool", "implemented_by", "extern", "export", "initialize", "builtin_initialize", "macro", "macro_rules"),
    *("elab", "elab_rules", "by_elab", "syntax", "notation", "infix", "infixl", "infixr", "prefix", "postfix"),
    *("run_cmd", "run_tac", "run_elab", "run_meta", "set_option", "import", "attribute", "instance", "IO", "Lean"),
    *("Elab", "Meta", "MetaM", "TacticM", "CommandElabM", "dbg_trace", "unsafeCast", "unsafeIO", "declare_syntax_cat"),
)
_WORD = re.compile(r"(?<![\w.'])(?:" + "|".join(_FORBIDDEN) + r")(?![\w'])|#\w+|eval%")
_NAME = re.compile(r"(?:theorem|lemma)\s+([^\s({\[:]+)")


class LeanOptions(TypedDict):
    """How Lean is run."""

    project: str
    executable: str
    memory: float
    unsafe: bool


class NotProved(ValueError):
    """A reply that is no proof of the statement, before Lean is asked."""


@verifier(
    papers.LEANABELL_PROVER,
    kinds=("proof",),
    summary="1 where Lean 4 accepts the whole proof of the row's statement (Leanabell-Prover).",
    when="Lean 4 is installed, and rows have `formal_statement` (theorem ... := by sorry) and perhaps `header`.",
    runs="lean",
)
def lean(
    project: Annotated[str, Option("A Lake project that is built, with Mathlib for example.")] = "",
    *,
    executable: Annotated[str, Option("The program that checks proofs.")] = "lean",
    memory: Annotated[float, Option("GiB of memory of one check.", above=0)] = 8.0,
    unsafe: Annotated[bool, Option("Run Lean even where the machine cannot isolate it.")] = False,
) -> LeanOptions:
    """1[Lean accepts], binary, as in arXiv 2504.06122; a time-out is 0.

    The reply (its last ``` block) must contain the statement of the row as it is, up to white space and comments; what
    stands before it is left out, so that nothing can redefine its terms. Refused before Lean runs: sorry, admit,
    axioms, native_decide, new syntax and macros, commands (#eval), imports, options, and metaprograms, which run code.
    Accepted: no error (warnings do not count), and `#print axioms` names none but propext, Classical.choice and
    Quot.sound. Lean runs without network and reads only its own files and the project.
    """
    return {"project": project, "executable": executable, "memory": memory, "unsafe": unsafe}


def without_comments(text: str) -> str:
    """Lean text without its comments, -- to the end of a line and nested /- -/; raises NotProved for an open one."""
    code, depth, place = [], 0, 0
    for match in re.finditer(r"/-|-/|--[^\n]*", text):
        if match.start() < place:
            continue
        mark = match[0]
        if not depth:
            code.append(text[place : match.start()])
        if mark == "/-":
            depth += 1
        elif mark == "-/":
            depth -= 1
        elif depth and "-/" in mark:  # the end of a block comment stands in this line
            end = match.start() + mark.index("-/")
            depth, mark = depth - 1, text[match.start() : end + 2]
        if depth < 0:
            raise NotProved("-/ closes no comment")
        place = match.start() + len(mark)
    if depth:
        raise NotProved("a comment is not closed")
    return "".join([*code, text[place:]])


def statement_of(row: Row) -> tuple[str, str]:
    """(name, statement up to :=) of a row, with single spaces; raises BadRow."""
    given = row.get("formal_statement") or row.get("statement")
    if not isinstance(given, str):
        raise BadRow("lean needs a column 'formal_statement' (theorem name ... := by sorry); a row has none")
    try:
        text = without_comments(given)
    except NotProved as error:
        raise BadRow(f"the formal_statement of a row: {error}") from None
    names = [*_NAME.finditer(text)]
    end = text.rfind(":=")
    if not names or end < names[-1].start():
        raise BadRow(f"the formal_statement {given[:60]!r} of a row is not `theorem name ... := by sorry`")
    return names[-1][1], " ".join(text[names[-1].start() : end].split())


def program_of(row: Row, reply: str) -> tuple[str, int]:
    """The text to be checked by Lean, and the line on which it asks for the axioms; raises NotProved."""
    name, statement = statement_of(row)
    text = spoken(reply)
    if len(text) > MOST_CHARACTERS:
        raise NotProved(f"it has more than {MOST_CHARACTERS:,} characters")
    blocks = fenced(text)
    code = without_comments(blocks[-1] if blocks else text)
    spaced = r"\s+".join(map(re.escape, statement.split(" ")))
    places = [*re.finditer(rf"(?<!\S){spaced}\s*:=", code)]
    if len(places) != 1:
        raise NotProved(f"the statement occurs {len(places)} times, not once, as it is")
    proof = code[places[0].end() :]
    if not proof.strip():
        raise NotProved("there is no proof")
    if word := _WORD.search(proof):
        raise NotProved(f"{word[0]!r} is not allowed in a proof")
    header = str(row.get("header") or "").rstrip()
    lines = f"{header}\n{statement} :={proof.rstrip()}\n\n"
    return f"{lines}#print axioms {name}\n", lines.count("\n") + 1


def verdict_of(output: str, line: int) -> str:
    """Why the messages of `lean --json` are no proof; nothing if they are. line: where the axioms are asked for."""
    axioms = None
    for text in output.splitlines():
        try:
            message = json.loads(text)
            severity, said, at = message["severity"], str(message["data"]), message["pos"]["line"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # Lean prints nothing else to standard output; what is no message proves nothing
        if severity == "error":
            return f"line {at}: {said[:200]}"
        if at == line and severity == "information":
            axioms = said
    if axioms is None:
        return "Lean did not say on which axioms it depends"
    if "does not depend on any axioms" in axioms:
        return ""
    used = re.search(r"depends on axioms: \[([^\]]*)\]", axioms)
    if used is None:
        return "Lean did not say on which axioms it depends"
    strange = {one.strip() for one in used[1].split(",")} - AXIOMS
    return f"it depends on the axiom {min(strange)}" if strange else ""
