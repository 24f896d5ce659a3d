"""Memory-R+: bonuses for being near past successes and far from past failures."""

from __future__ import annotations

from collections import deque
from typing import Annotated, Any

import numpy as np

from burnish import papers
from burnish.core.method import Option, Step
from burnish.core.state import State
from burnish.rewards import Scorer, register_shape
from burnish.rewards.embedding import NEEDS, Embedding, prompts, replies
from burnish.rewards.packed import packed, unpacked
from burnish.rewards.shaped import Scored, of_batch
from burnish.tasks.source import Source

Vector = np.ndarray


class Window:
    """Min-max scaling by the last values: (x - min) / (max - min), 0 where they are equal."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.values: list[float] = []

    def scaled(self, values: list[float]) -> list[float]:
        """The values scaled by the window with them in it, which then keeps the last `size`."""
        known = self.values + values
        self.values = known[-self.size :]
        low, high = min(known, default=0.0), max(known, default=0.0)
        return [(x - low) / (high - low) if high > low else 0.0 for x in values]


class Query:
    """What was answered to one prompt: vectors of the latest successes and failures."""

    def __init__(self, vector: Vector, size: int) -> None:
        self.vector = vector
        self.kept: dict[bool, deque[Vector]] = {right: deque(maxlen=size) for right in (True, False)}


class Memories:
    """Successes and failures by prompt, and the two scalers. The prompt that was not seen for longest is forgotten."""

    def __init__(self, queries: int, entries: int, window: int) -> None:
        self.name, self.most, self.entries = "memory_r_memories", queries, entries
        self.queries: dict[str, Query] = {}
        self.exploit, self.explore = Window(window), Window(window)

    def nearest(self, vector: Vector) -> Query | None:
        """What was answered to the prompt most alike (K = 1); None while nothing is remembered."""
        if not self.queries:
            return None
        known = list(self.queries.values())
        return known[int(np.argmax(np.stack([query.vector for query in known]) @ vector))]

    def add(self, key: str, vector: Vector, reply: Vector, right: bool) -> None:
        query = self.queries.pop(key, None) or Query(vector.astype(np.float32), self.entries)
        query.kept[right].append(reply.astype(np.float32))
        self.queries[key] = query
        if len(self.queries) > self.most:
            del self.queries[next(iter(self.queries))]

    def state_dict(self) -> State:
        stored: dict[str, Any] = {"exploit": list(self.exploit.values), "explore": list(self.explore.values)}
        stored["keys"] = list(self.queries)
        stored["sizes"] = [[len(query.kept[True]), len(query.kept[False])] for query in self.queries.values()]
        rows = [v for q in self.queries.values() for v in (*q.kept[True], *q.kept[False])]
        stored["prompts"] = _table([query.vector for query in self.queries.values()])
        stored["replies"] = _table(rows)
        return stored

    def load_state_dict(self, state: State) -> None:
        self.exploit.values = [float(x) for x in state["exploit"]]
        self.explore.values = [float(x) for x in state["explore"]]
        vectors, rows = unpacked(state["prompts"]), iter(unpacked(state["replies"]))
        self.queries = {}
        for key, vector, (right, wrong) in zip(state["keys"], vectors, state["sizes"], strict=True):
            query = self.queries[key] = Query(vector, self.entries)
            query.kept[True].extend(next(rows) for _ in range(right))
            query.kept[False].extend(next(rows) for _ in range(wrong))


def _table(rows: list[Vector]) -> dict[str, Any]:
    return packed(np.stack(rows) if rows else np.zeros((0, 0), np.float32))


def near_successes(reply: Vector, query: Query | None) -> float | None:
    """-|| a - centroid of the successes ||, the Euclidean distance; None without a success."""
    if query is None or not query.kept[True]:
        return None
    return -float(np.linalg.norm(reply - np.mean(np.stack(query.kept[True]), axis=0)))


def far_from_failures(reply: Vector, query: Query | None) -> float | None:
    """1 - max cosine to the failures; None without a failure."""
    if query is None or not query.kept[False]:
        return None
    return 1 - float(np.max(np.stack(query.kept[False]) @ reply))


@register_shape(
    papers.MEMORY_R,
    summary="Bonuses for replies near past successes and far from past failures on the most similar prompt.",
    when="A small model rarely succeeds, prompts come again or resemble each other, and rewards are sparse.",
    example="burnish train grpo --shape 'memory_r(warmup=5)'",
)
def memory_r(
    task: Source,
    *,
    exploit: Annotated[float, Option("Weight of being near successes.", at_least=0)] = 1.0,
    explore: Annotated[float, Option("Weight of being far from failures.", at_least=0)] = 1.0,
    warmup: Annotated[int, Option("Steps that only fill the memories.", at_least=0)] = 50,
    window: Annotated[int, Option("Values by which a bonus is scaled.", at_least=2)] = 100,
    entries: Annotated[int, Option("Successes, and failures, kept for a prompt.", at_least=1)] = 100,
    queries: Annotated[int, Option("Prompts that are remembered.", at_least=1)] = 100,
    embedding: Embedding = "words",
) -> Scorer:
    """r + exploit m(-|| a - centroid(successes) ||) + explore m(1 - max cos(a, failures)), a the reply's unit vector.

    Memories are those of the most similar remembered prompt (K = 1); m scales to [0, 1] by the minimum and maximum of
    the last `window` values; without a success, or a failure, that bonus is 0, and so it is where all values are equal.
    A batch is scored first and remembered then, as in the paper (its code inserts first, so that a wrong reply meets
    itself; it also returns 1 minus the scaled distance, and takes the first prompt for the whole batch). Departures:
    vectors are hashed n-grams or hidden states (the paper: a sentence encoder), prompts always by their words. A
    checkpoint holds the memories: 2.7 kB a reply, up to 55 MB with the defaults.
    """
    memory, embed = Memories(queries, entries, window), replies(embedding)

    def change(batch: list[Scored], step: Step) -> list[list[float]]:
        asked = prompts([scored.group for scored in batch])
        said = iter(embed([trace for scored in batch for trace in scored.traces], step))
        vectors = [[next(said) for _ in scored.traces] for scored in batch]
        found = [scored.rewards for scored in batch]
        if step.clock.step >= warmup:
            near = [memory.nearest(vector) for vector in asked]
            flat = [(a, query) for its, query in zip(vectors, near, strict=True) for a in its]
            bonus = _scaled(memory.exploit, [near_successes(a, query) for a, query in flat], exploit)
            other = _scaled(memory.explore, [far_from_failures(a, query) for a, query in flat], explore)
            rest = iter(zip(bonus, other, strict=True))
            found = [[r + sum(next(rest)) for r in rewards] for rewards in found]
        for scored, vector, its in zip(batch, asked, vectors, strict=True):
            for right, reply in zip(scored.right, its, strict=True):
                memory.add(scored.group.task.key, vector, reply, right)
        return found

    return of_batch("memory_r", change, coef=max(exploit, explore), reads=NEEDS[embedding], state=(memory,))


def _scaled(window: Window, values: list[float | None], weight: float) -> list[float]:
    """weight x the scaled values; 0 for None, which the window does not see."""
    known = iter(window.scaled([x for x in values if x is not None]))
    return [0.0 if x is None else weight * next(known) for x in values]
