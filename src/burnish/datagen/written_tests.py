"""Tests of programming problems that a language model writes: what it is asked, and how its answer is read.

HardTests (arXiv 2505.24098): inputs, functions that generate them, functions aimed at slow or wrong programs, and a
validator. AceCoder (arXiv 2502.01718): about twenty asserts for a question. What it writes counts only where right
programs agree (synthesis.py).
"""

from __future__ import annotations

import ast
import re

from burnish.judges.question import Question, question
from burnish.judges.templates import WRITE_ASSERTS, WRITE_INPUTS

ASSERTS = 20  # tests of a question that AceCoder asks for
_BLOCK = re.compile(r"```(\w*)[ \t]*\n(.*?)```", re.DOTALL)


def asserts_question(problem: str, solution: str) -> Question:
    """Ask for asserts; the reference solution says what the function is called."""
    return question(WRITE_ASSERTS, [("problem", problem), ("solution", solution)], count=str(ASSERTS))


def inputs_question(problem: str, solution: str) -> Question:
    """Ask for inputs, generators, and a validator of programs that read standard input."""
    return question(WRITE_INPUTS, [("problem", problem), ("solution", solution)])


def columns_of_asserts(answer: str) -> dict[str, object]:
    """The columns of an answer with asserts."""
    return {"test_list": asserts_of(answer)}


def asserts_of(answer: str) -> list[str]:
    """The assert statements of an answer, each once, as lines of code; what is no Python is left out."""
    text = "\n".join(body for _, body in _BLOCK.findall(answer)) or answer
    lines: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if not line.startswith("assert "):
            continue
        try:
            tree = ast.parse(line)
        except (SyntaxError, ValueError, RecursionError):
            continue
        if len(tree.body) == 1 and isinstance(tree.body[0], ast.Assert):
            lines.append(line)
    return list(dict.fromkeys(lines))


def inputs_of(answer: str) -> dict[str, object]:
    """The columns of an answer: `direct` from blocks marked input; `generators`, `hacks` and `validator` from Python
    blocks, by the names of their functions: generate..., hack... and validate.
    """
    direct: list[str] = []
    generators: list[str] = []
    hacks: list[str] = []
    validator = ""
    for kind, body in _BLOCK.findall(answer):
        if kind == "input":
            direct.append(body)
        elif kind in ("python", "py", ""):
            names = re.findall(r"^def (\w+)\(", body, re.MULTILINE)
            if "validate" in names:
                validator = body
            elif any(name.startswith("hack") for name in names):
                hacks.append(body)
            elif any(name.startswith("generate") for name in names):
                generators.append(body)
    return {"direct": direct, "generators": generators, "hacks": hacks, "validator": validator}
