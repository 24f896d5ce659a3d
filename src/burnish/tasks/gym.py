"""`gym:NAME`: any of reasoning-gym's procedural datasets as a source, with its own scorer as the verifier.

A dataset there is a seed and an index. Index i of a split lies in block i // BLOCK, each block has a seed of its own,
and its problems are drawn one after the other, keeping those whose key belongs to the split: so a task is found
without drawing all tasks before it, and no question is ever in both splits.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Any

from burnish.nouns import Task, Verdict
from burnish.randomness import key_of
from burnish.tasks.family import in_split, spoken
from burnish.tasks.rewards import final_answer, same_answer, small_powers
from burnish.tasks.source import SPLITS

PREFIX = "gym:"
BLOCK = 8  # tasks of one split that share a seed
DRAWS = 128  # problems in one dataset of reasoning-gym; some generators make them all at once
ROUNDS = 8  # datasets tried before a split counts as empty
CORRECT = 0.99
NONSENSE = "colourless green ideas sleep furiously"
ASK = "Finish with a line `answer: ...`."

# Some of reasoning-gym's scorers evaluate the reply as Python, where a reply can do anything. They are only shown
# replies of the form they ask for: a literal, or an arithmetic expression of these names.
_EVALUATED = ("string_insertion", "spiral_matrix", "binary_matrix", "n_queens")
_PARSED = ("simple_integration", "intermediate_integration", "polynomial_multiplication", "puzzle24", "countdown")
_FUNCTIONS = {"sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log", "ln", "sqrt", "pi"}


def _literal(text: str) -> bool:
    try:
        ast.literal_eval(text[:5000])
    except Exception:  # noqa: BLE001 - odd text raises many things (syntax, memory, recursion): it is no literal
        return False
    return True


def _expression(text: str) -> bool:
    """Numbers, operators, brackets, single letters and known functions: nothing that names or calls anything else."""
    words = re.findall(r"[A-Za-z_]\w*", text)
    plain = re.fullmatch(r"[0-9A-Za-z+\-*/^().\s]{1,500}", text) and not re.search(r"[A-Za-z)]\s*\.", text)
    return bool(plain) and small_powers(text) and all(len(word) == 1 or word in _FUNCTIONS for word in words)


def _harmless(said: str, problem: dict[str, Any]) -> bool:
    """Whether this problem's scorer may be shown the answer `said`."""
    dataset = problem["metadata"].get("source_dataset")
    if said == problem["answer"]:
        return True
    if dataset in _EVALUATED:
        return _literal(said)
    return dataset not in _PARSED or _expression(said)


def _library() -> ModuleType:
    try:
        return importlib.import_module("reasoning_gym")
    except ImportError:
        raise ValueError("gym tasks need reasoning-gym; install it with: pip install 'burnish[gym]'") from None


def names() -> list[str]:
    """The datasets there are, without the prefix."""
    _library()
    return sorted(importlib.import_module("reasoning_gym.factory").DATASETS)


class ReasoningGym:
    """One dataset of reasoning-gym, without end.

    name     "chain_sum" or "gym:chain_sum"
    seed     another seed is another order of tasks; the split of a question never changes
    options  passed to reasoning_gym.create_dataset: min_terms=2, ...
    """

    def __init__(self, name: str, *, seed: int = 0, **options: Any) -> None:
        base = name.removeprefix(PREFIX)
        known = names()
        if base not in known:
            close = difflib.get_close_matches(base, known, n=3, cutoff=0.4)
            hint = f"did you mean {' or '.join(close)}?" if close else f"there are {len(known)}, such as {known[0]}"
            raise ValueError(f"reasoning-gym has no dataset {base!r}; {hint}")
        if "size" in options:
            raise ValueError(f"{PREFIX}{base} has no end; leave out size={options['size']!r}")
        self.base, self.seed, self.options = base, seed, options
        self.name = PREFIX + base
        self.summary = f"reasoning-gym's {base.replace('_', ' ')} problems"
        self._block = lru_cache(maxsize=256)(self._new_block)
        self._fooled: bool | None = None  # not known before the first reply
        self._scorer = self._dataset("scorer")  # also refuses bad options here and now

    @cached_property
    def gives(self) -> frozenset[str]:
        """An answer and the shortest right reply; neither where the dataset has only a scorer."""
        return frozenset(self.task("train", 0).given)

    def size(self, split: str) -> int | None:
        return None

    def task(self, split: str, index: int) -> Task:
        if split not in SPLITS:
            raise ValueError(f"split {split!r} is unknown; the splits are {', '.join(SPLITS)}")
        found, more = self._block(split, index // BLOCK)
        while len(found) <= index % BLOCK:
            found.append(next(more))
        return self._task(found[index % BLOCK])

    def verify(self, task: Task, reply: str) -> Verdict:
        """The dataset's own score, of the reply or of the answer it ends on, whichever is better."""
        problem, text = dict(task.given["problem"]), reply.strip()
        after = text[text.lower().rfind("answer:") + len("answer:") :].strip() if "answer:" in text.lower() else text
        said = dict.fromkeys((text, final_answer(text, str(problem["answer"] or "")), after))
        score, failure = 0.0, ""
        for answer in said:
            try:
                score = max(score, self._score(answer, problem))
            except Exception as error:  # noqa: BLE001 - a scorer that fails on a reply is a verdict, not a halt
                failure = f"; the scorer raised {type(error).__name__}: {error}"
        if score >= CORRECT:
            return Verdict(score, True)
        right = "" if problem["answer"] is None else f"; the answer is {problem['answer'][:40]!r}"
        return Verdict(score, False, f"the reply scores {score:.2f}{right}{failure}")

    def _score(self, said: str, problem: dict[str, Any]) -> float:
        if not _harmless(said, problem):
            return 0.0
        if self._fooled is None:
            self._fooled = self._takes_nonsense(problem)
        if self._fooled:
            return float(same_answer(said, str(problem["answer"])))
        return min(1.0, float(self._scorer.score_answer(said, problem)))

    def _takes_nonsense(self, problem: dict[str, Any]) -> bool:
        """Whether the scorer calls nonsense right, as game_of_life_halting's does; then answers are compared."""
        try:
            return _harmless(NONSENSE, problem) and float(self._scorer.score_answer(NONSENSE, problem)) >= CORRECT
        except Exception:  # noqa: BLE001 - a scorer that raises on nonsense is not fooled by it
            return False

    def _dataset(self, *what: object) -> Any:
        seed = key_of(self.seed, self.base, *what) % 2**31
        try:
            return _library().create_dataset(self.base, seed=seed, size=DRAWS, **self.options)
        except (TypeError, AssertionError, ValueError) as error:
            written = ", ".join(f"{key}={value!r}" for key, value in self.options.items()) or "no options"
            raise ValueError(f"{self.name} cannot be made with {written}: {error}") from error

    def _new_block(self, split: str, block: int) -> tuple[list[dict[str, Any]], Iterator[dict[str, Any]]]:
        """The problems of a block found so far, and the search for more."""
        return [], self._draw(split, block)

    def _draw(self, split: str, block: int) -> Iterator[dict[str, Any]]:
        for turn in range(ROUNDS):
            dataset = self._dataset(split, block, turn)
            for index in range(DRAWS):
                problem = dataset[index]
                if in_split(split, self._key(problem)):
                    yield problem
        raise ValueError(
            f"{self.name}: among {ROUNDS * DRAWS} problems fewer than {BLOCK} are in split {split!r}; "
            "pass options that make its questions more varied"
        )

    def _key(self, problem: dict[str, Any]) -> str:
        return f"{self.name} {problem['question'].strip()}"

    def _task(self, problem: dict[str, Any]) -> Task:
        given: dict[str, Any] = {"problem": problem}
        if isinstance(problem["answer"], str):
            given |= {"answer": problem["answer"], "demo": spoken(problem["answer"])}
        asked = f"{problem['question'].rstrip()}\n{ASK}"
        return Task("question", ({"role": "user", "content": asked},), given, self._key(problem))
