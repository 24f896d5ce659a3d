"""The scorer of a reasoning-gym dataset, for the sandbox.

Some of reasoning-gym's scorers evaluate the answer as Python or as a sympy expression. Here their `eval` is replaced by
one that reads only literals, and only arithmetic of numbers, letters and a few functions reaches the computer algebra
system. The limits of the sandbox hold in addition.
"""

from __future__ import annotations

import ast
import importlib
import math
import re
from typing import TypedDict

from burnish.core.task import Verdict
from burnish.util.failures import said
from burnish.verifiers.checks import Spec
from burnish.verifiers.final_answer import LONGEST, final_answer, same_answer, small_powers

CORRECT = 0.99
LONGEST_LITERAL = 5000
NONSENSE = "colourless green ideas sleep furiously"
_EVALUATED = {
    "string_insertion": "reasoning_gym.algorithmic.string_insertion",
    "spiral_matrix": "reasoning_gym.algorithmic.spiral_matrix",
    "binary_matrix": "reasoning_gym.algorithmic.binary_matrix",
    "n_queens": "reasoning_gym.games.n_queens",
}  # dataset -> the module whose scorer calls eval on the answer
_PARSED = ("simple_integration", "intermediate_integration", "polynomial_multiplication", "puzzle24", "countdown")
_FUNCTIONS = {"sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "ln", "sqrt", "pi"}


def _read_literal(text: str) -> object:
    """The replacement of `eval` in the scorers: parse a literal, or raise ValueError."""
    if not isinstance(text, str) or len(text) > LONGEST_LITERAL:
        raise ValueError("not a literal")
    return ast.literal_eval(text)


def literal(text: str) -> bool:
    """Whether the whole text is a literal."""
    try:
        _read_literal(text)
    except Exception:  # noqa: BLE001 - invalid text raises many errors (syntax, memory, recursion)
        return False
    return True


def expression(text: str) -> bool:
    """Whether a text has only numbers, operators, brackets, single letters and known functions."""
    if not re.fullmatch(r"[0-9A-Za-z+\-*/^().\s]{1,500}", text) or re.search(r"[A-Za-z)]\s*\.", text):
        return False
    words = re.findall(r"[A-Za-z_]\w*", text)
    return small_powers(text) and all(len(word) == 1 or word in _FUNCTIONS for word in words)


class GymProblem(TypedDict):
    """An entry of a dataset of reasoning-gym."""

    question: str
    answer: str | None
    metadata: dict[str, object]


def harmless(answer: str, problem: GymProblem) -> bool:
    """Whether the answer is safe to pass to this problem's scorer."""
    dataset = problem["metadata"].get("source_dataset")
    if answer == problem["answer"]:
        return True
    if dataset in _EVALUATED:
        return literal(answer)
    return dataset not in _PARSED or expression(answer)


class GymScorer:
    """Scores replies with a dataset of reasoning-gym.

    spec: {"name": dataset, "seed": its seed, "size": number of problems, "options": other arguments of create_dataset}
    """

    def __init__(self, spec: Spec) -> None:
        library = importlib.import_module("reasoning_gym")
        for module in _EVALUATED.values():
            vars(importlib.import_module(module))["eval"] = _read_literal
        self._scorer = library.create_dataset(spec["name"], seed=spec["seed"], size=spec["size"], **spec["options"])
        self._fooled: bool | None = None  # determined at the first reply

    def verdict(self, problem: GymProblem, reply: str) -> Verdict:
        """The dataset's own score of the reply or of its final answer, whichever is higher."""
        text = reply[-LONGEST:].strip()
        after = text[text.lower().rfind("answer:") + len("answer:") :].strip() if "answer:" in text.lower() else text
        candidates = dict.fromkeys((text, final_answer(text, str(problem["answer"] or "")), after))
        score, failure = 0.0, ""
        for answer in candidates:
            try:
                score = max(score, self._score(answer, problem))
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - a scorer that fails on a reply gives a verdict, not an error
                failure = f"; the scorer raised {type(error).__name__}: {said(error)[:500]}"
        if score >= CORRECT:
            return Verdict(score, True)
        right = "" if problem["answer"] is None else f"; the answer is {problem['answer'][:40]!r}"
        return Verdict(score, False, f"the reply scores {score:.2f}{right}{failure}")

    def _score(self, answer: str, problem: GymProblem) -> float:
        if not harmless(answer, problem):
            return 0.0
        if self._fooled is None:
            self._fooled = self._takes_nonsense(problem)
        if self._fooled:
            return float(same_answer(answer, str(problem["answer"])))
        score = float(self._scorer.score_answer(answer, problem))
        return min(1.0, score) if math.isfinite(score) else 0.0

    def _takes_nonsense(self, problem: GymProblem) -> bool:
        """Whether the scorer accepts nonsense, as game_of_life_halting's does; then answers are compared instead."""
        try:
            return harmless(NONSENSE, problem) and float(self._scorer.score_answer(NONSENSE, problem)) >= CORRECT
        except Exception:  # noqa: BLE001 - a scorer that raises on nonsense is not fooled by it
            return False
