"""`gym:NAME`: a procedural dataset of reasoning-gym as a source; its scorer is the verifier and runs in the sandbox.

A problem there is a seed and an index. Index i of a split is in block i // BLOCK; each block has its own seed, and its
problems are drawn in order, keeping those whose key belongs to the split. So a task is found without drawing all tasks
before it, and no question is in both splits.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Any

from burnish.core.randomness import key_of
from burnish.core.splits import SPLITS, in_split
from burnish.core.types import Task, Verdict
from burnish.verifiers.answer_line import format_reply
from burnish.verifiers.verifier import verifier

PREFIX = "gym:"
BLOCK = 8  # tasks of one split that share a seed
DRAWS = 128  # problems in one dataset of reasoning-gym; some generators create all of them at once
ROUNDS = 8  # datasets tried before a split counts as empty
ASK = "Finish with a line `answer: ...`."


def _library() -> ModuleType:
    try:
        return importlib.import_module("reasoning_gym")
    except ImportError:
        raise ValueError("gym tasks need reasoning-gym; install it with: pip install 'burnish[gym]'") from None


def names() -> list[str]:
    """The names of all datasets, without the prefix."""
    _library()
    return sorted(importlib.import_module("reasoning_gym.factory").DATASETS)


class ReasoningGym:
    """One dataset of reasoning-gym, endless.

    name     "chain_sum" or "gym:chain_sum"
    seed     changes the order of tasks; the split of a question never changes
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
        self._dataset("scorer")  # raises ValueError for bad options

    @cached_property
    def gives(self) -> frozenset[str]:
        """An answer and the shortest correct reply; neither if the dataset has only a scorer."""
        return frozenset(self.task("train", 0).given)

    def size(self, split: str) -> int | None:
        return None

    def task(self, split: str, index: int) -> Task:
        if split not in SPLITS:
            raise ValueError(f"split {split!r} is unknown; the splits are {', '.join(SPLITS)}")
        drawn, more = self._block(split, index // BLOCK)
        while len(drawn) <= index % BLOCK:
            drawn.append(next(more))
        return self._task(drawn[index % BLOCK])

    def scorer(self) -> dict[str, Any]:
        """The spec from which the verifier process rebuilds this dataset's scorer."""
        seed = self._seed("scorer")
        return {"kind": "gym", "name": self.base, "seed": seed, "size": DRAWS, "options": self.options}

    def facts(self, task: Task) -> Mapping[str, Any]:
        """The problem, in reasoning-gym's format."""
        problem: Mapping[str, Any] = task.given["problem"]
        return problem

    def verify(self, task: Task, reply: str) -> Verdict:
        """The dataset's own score of the reply or of its final answer, whichever is higher. Runs in the sandbox."""
        return verifier("gym").judge(self.scorer(), [self.facts(task)], [reply])[0]

    def _seed(self, *what: object) -> int:
        return key_of(self.seed, self.base, *what) % 2**31

    def _dataset(self, *what: object) -> Any:
        try:
            return _library().create_dataset(self.base, seed=self._seed(*what), size=DRAWS, **self.options)
        except (TypeError, AssertionError, ValueError) as error:
            written = ", ".join(f"{key}={value!r}" for key, value in self.options.items()) or "no options"
            raise ValueError(f"{self.name} cannot be made with {written}: {error}") from error

    def _new_block(self, split: str, block: int) -> tuple[list[dict[str, object]], Iterator[dict[str, object]]]:
        """The problems of a block drawn so far, and an iterator over more."""
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
            given |= {"answer": problem["answer"], "demo": format_reply(problem["answer"])}
        asked = f"{problem['question'].rstrip()}\n{ASK}"
        return Task("question", ({"role": "user", "content": asked},), given, self._key(problem))
