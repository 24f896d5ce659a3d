"""Rows of a dataset that are longer than the run allows: found and counted before the first step.

A row needs its prompt and its reply (the longest of several), or its prompt and `max_new_tokens` where replies are
sampled. A row whose text has fewer bytes than the limit has tokens is not encoded: no token is shorter than a byte.
But one row of each sequence of roles is: a template that refuses it (Gemma's has no system role) is found out now, and
not by the step that draws the row. What took long to count is kept in the cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from burnish.core.messages import Message, shown
from burnish.core.method import Method
from burnish.core.step import Settings
from burnish.core.task import Task
from burnish.models.build import Models
from burnish.models.chat import Chat
from burnish.models.chat_pictures import shows_pictures
from burnish.models.conversation import message_weights
from burnish.models.model import Model
from burnish.rollout.demonstrated import NAME as DEMONSTRATED
from burnish.rollout.demonstrated import cut_pieces, demonstration
from burnish.rollout.trajectories import NAME as TRAJECTORIES
from burnish.tasks.data import cache
from burnish.tasks.data.dataset import Dataset
from burnish.tasks.resolve import datasets_of
from burnish.tasks.source import Source

_REPLIES = ("demo", "chosen", "rejected", "responses")  # columns with a reply that a rollout may read
_AROUND = 64  # more tokens than a template writes around a message
USELESS = 1 << 60  # the need of a row without a token to train on
VERSION = 2  # of what is counted; a cache of another version is not used
SHAPES = 10_000  # sequences of roles of which a row is encoded


@dataclass(frozen=True)
class Lengths:
    """What was found about the rows of a split.

    rows, kept, cut  how many there are, how many are used, and how many of these are cut
    limit            the longest that is allowed, in tokens
    longest, where   the longest row, and its place
    empty, first     how many have an empty reply, and the place of the first one
    """

    rows: int
    kept: int
    cut: int
    limit: int
    longest: int
    where: str
    empty: int = 0
    first: str = ""

    def empty_sentence(self) -> str:
        """How many rows have an empty reply; empty where none has."""
        many = "row has" if self.empty == 1 else "rows have"
        told = f"{self.empty:,} of {self.rows:,} {many} an empty reply ({self.first}), which teaches to say nothing"
        return told if self.empty else ""

    def sentence(self) -> str:
        """What happens to long rows; empty where all fit."""
        dropped = self.rows - self.kept
        said = [f"{dropped:,} of {self.rows:,} rows are left out"] if dropped else []
        if self.cut:
            said.append(f"{self.cut:,} {'rows are ' if not said else ''}cut")
        if not said:
            return ""
        longest = f"; the longest has {self.longest:,} ({self.where})" if self.longest < USELESS else ""
        return f"{' and '.join(said)}: they have more than {self.limit:,} tokens{longest}"


@dataclass(frozen=True)
class Needs:
    """What a method makes of a task: the replies that it reads, whether it reads whole conversations, and samples."""

    replies: tuple[str, ...]
    conversations: bool
    samples: bool

    @classmethod
    def of(cls, method: Method) -> Needs:
        rollouts = [phase.rollout for phase in method.phases]
        whole = any(rollout.name in (DEMONSTRATED, TRAJECTORIES) for rollout in rollouts)
        read = {name for rollout in rollouts for name in rollout.reads}
        replies = tuple(column for column in _REPLIES if f"given:{column}" in read and not (whole and column == "demo"))
        return cls(replies, whole, any(name.startswith("mu:") for r in rollouts for name in r.writes))


def fit(
    source: Source,
    needs: Needs,
    models: Models,
    reader: str,
    settings: Settings,
    splits: tuple[str, ...] = ("train", "heldout"),
) -> Lengths | None:
    """Leave out or cut the rows of a source's datasets that are too long; None where there are no datasets.

    splits: those whose rows are used; the first is counted
    """
    require_room(models, settings, needs.samples)
    datasets = datasets_of(source)
    if not datasets:
        return None
    limit = _limit(models, needs, settings)
    measure = Measure(models[reader].chat, needs, settings, limit)
    fits = [_fit_one(dataset, measure, splits) for dataset in datasets]
    longest = max(fits, key=lambda one: one.longest)
    total = replace(
        longest,
        rows=sum(one.rows for one in fits),
        kept=sum(one.kept for one in fits),
        cut=sum(one.cut for one in fits),
        empty=sum(one.empty for one in fits),
        first=next((one.first for one in fits if one.empty), ""),
    )
    if total.rows and not total.kept:
        raise ValueError(
            f"all {total.rows:,} rows of {source.name!r} are longer than {limit:,} tokens (the longest, {total.where}, "
            f"has {total.longest:,}); raise --max-length if the model's context allows it, or use shorter rows"
        )
    return total


def _limit(models: Models, needs: Needs, settings: Settings) -> int:
    context = min(model.context for model in models)
    limit = min(context, settings.max_length or context)
    if needs.samples and settings.max_new_tokens >= limit:
        raise ValueError(_no_room(settings, f"--max-length {limit:,}") + ", or raise --max-length")
    return limit


def require_room(models: Iterable[Model], settings: Settings, samples: bool) -> None:
    """Raise ValueError for replies that are longer than the context. samples: whether replies are sampled in any case,
    and not only where they are evaluated.
    """
    context = min(model.context for model in models)
    named = settings.max_new_tokens != Settings().max_new_tokens  # a default that nothing uses is no mistake
    if (samples or named) and settings.max_new_tokens >= context:
        raise ValueError(_no_room(settings, f"the {context:,} tokens of the model's context"))


def _no_room(settings: Settings, within: str) -> str:
    return f"replies of --max-new-tokens {settings.max_new_tokens:,} leave no room for a prompt in {within}; lower it"


def _fit_one(dataset: Dataset, measure: Measure, splits: tuple[str, ...]) -> Lengths:
    dataset.all_again()  # another run of this process may have left rows out
    total = Lengths(0, 0, 0, measure.limit, 0, "")
    for split in splits:
        needed, empty = measure.dataset(dataset, split)
        if not len(needed):
            continue
        if split == splits[0] and len(empty):
            total = replace(total, empty=len(empty), first=dataset.where(split, int(empty[0])))
        long = needed > measure.limit
        if split == splits[0]:
            worst = int(np.argmax(needed))
            total = replace(total, rows=len(needed), longest=int(needed[worst]), where=dataset.where(split, worst))
        if measure.settings.on_long == "stop" and long.any():
            raise ValueError(
                f"{int(long.sum()):,} of {len(needed):,} rows of {dataset.name!r} are longer than {measure.limit:,} "
                f"tokens (the longest, {dataset.where(split, int(np.argmax(needed)))}, has {int(needed.max()):,}); "
                "--on-long drop leaves them out, --on-long truncate cuts them"
            )
        shortened = {}
        if measure.settings.on_long == "truncate":
            tasks = {int(i): measure.cut(dataset.task(split, int(i))) for i in np.flatnonzero(long)}
            shortened = {i: task for i, task in tasks.items() if task is not None}
            long[list(shortened)] = False
        cut = np.zeros(len(needed), bool)
        cut[list(shortened)] = True
        dataset.restrict(split, ~long, measure.cut, cut)
        if split == splits[0]:
            total = replace(total, kept=int((~long).sum()), cut=len(shortened))
    return total


class Measure:
    """Counts the tokens that rows need, and cuts rows that need too many."""

    def __init__(self, chat: Chat, needs: Needs, settings: Settings, limit: int) -> None:
        self.chat, self.needs, self.settings, self.limit = chat, needs, settings, limit
        self._empty = len(chat.prompt(Task("question", "?", {}, "?"))) + len(chat.closing) + _AROUND
        self._per_byte = 1 if chat.plain_bytes else 3  # a normalizer may write a character as several
        self._shapes: set[tuple[str, ...]] = set()  # sequences of roles that the template has rendered

    def dataset(self, dataset: Dataset, split: str) -> tuple[np.ndarray, np.ndarray]:
        """[rows] what each row of a split needs, a bound for rows that fit in any case; and the rows with an empty
        reply.
        """
        part = dataset.part(split)
        identity = dataset.identity(part.rows)
        name = None
        if identity is not None:
            numbers = cache.fingerprint(part.numbers.tobytes())
            asked = (self.needs, self.settings.max_new_tokens, self.settings.train_on, self.limit, self.chat.identity)
            name = cache.fingerprint("lengths", VERSION, identity, numbers, sorted(dataset.columns.items()), *asked)
            if known := cache.recall(name):
                return known["needed"], known["empty"]
        start = time.perf_counter()
        needed, empty, pictured = np.zeros(len(part.numbers), np.int64), [], False
        for i in range(len(part.numbers)):
            task = dataset.task(split, i)
            pictured = pictured or shows_pictures(task)
            try:
                self._try_template(task)
                needed[i] = self.need(task)
                empty += [i] if self._says_nothing(task) else []
            except ValueError as error:
                raise ValueError(f"{dataset.where(split, i)}: {error}") from None
        slow = time.perf_counter() - start > cache.WORTH_SECONDS and not pictured  # whose files may change
        if name is not None and slow and dataset.identity(part.rows) == identity:  # the files are still the same
            cache.keep(name, {"needed": needed, "empty": np.array(empty, np.int64)})
        return needed, np.array(empty, np.int64)

    def _says_nothing(self, task: Task) -> bool:
        """Whether a reply that the method reads is empty."""
        messages = task.given.get("messages") if self.needs.conversations else None
        if messages is not None:
            weights = message_weights(messages, self.settings.train_on)
            return any(
                w and m["role"] == "assistant" and not shown(m).strip() for w, m in zip(weights, messages, strict=True)
            )
        read = (*self.needs.replies, *(("demo",) if self.needs.conversations else ()))
        return any(isinstance(said := task.given.get(column), str) and not said.strip() for column in read)

    def _try_template(self, task: Task) -> None:
        """Encode a task if it is the first with its sequence of roles; ValueError where the template refuses it."""
        messages = task.given.get("messages") if self.needs.conversations else None
        shape = _roles(task.prompt if messages is None else messages)
        if shape != ("user",) and shape not in self._shapes and len(self._shapes) < SHAPES:
            self._shapes.add(shape)
            for _ in self._exact(task):
                pass

    def need(self, task: Task) -> int:
        """The tokens that a row needs; if its bytes are fewer than the limit, their number."""
        bound = self._bound(task)
        return bound if bound <= self.limit else max(self._exact(task), default=0)

    def _bound(self, task: Task) -> int:
        if task.given.get("tools") or shows_pictures(task):
            return USELESS
        if self.needs.conversations and task.given.get("messages"):
            if not any(message_weights(task.given["messages"], self.settings.train_on)):
                return USELESS
            asked, messages = _bytes(task.given["messages"]), len(task.given["messages"])
            replies = 0
        else:
            asked, messages = _bytes(task.prompt), 1 if isinstance(task.prompt, str) else len(task.prompt)
            read = (*self.needs.replies, *(("demo",) if self.needs.conversations else ()))
            replies = max((_bytes(task.given.get(column, "")) for column in read), default=0)
        sampled = self.settings.max_new_tokens if self.needs.samples else 0
        return self._empty + _AROUND * messages + self._per_byte * (asked + replies) + sampled

    def _exact(self, task: Task) -> Iterable[int]:
        if self.needs.conversations:
            samples = demonstration(task, self.chat, self.settings.train_on)
            yield from (sum(len(piece.tokens) for piece in pieces) for pieces in samples)
            if not samples:
                yield USELESS
        if self.needs.replies or self.needs.samples:
            prompt = len(self.chat.prompt(task))
            if self.needs.samples:
                yield prompt + self.settings.max_new_tokens
            read = [task.given[column] for column in self.needs.replies if column in task.given]
            every = (one for value in read for one in (value if isinstance(value, list) else [value]))
            yield from (prompt + len(self.chat.reply(str(one))) for one in every)

    def cut(self, task: Task) -> Task | None:
        """The task so that it fits in the limit (rollouts cut the replies); None where that is impossible."""
        if self.need(task) <= self.limit:
            return task
        if shows_pictures(task):  # nothing is cut inside a picture, and a question without it is another question
            return None
        if self.needs.conversations:
            samples = demonstration(task, self.chat, self.settings.train_on)
            left = [cut_pieces(pieces, self.limit) for pieces in samples]
            return task if left and all(any(piece.weight for piece in pieces) for pieces in left) else None
        room = self.limit - (self.settings.max_new_tokens if self.needs.samples else 1)
        shorter = task if len(self.chat.prompt(task)) <= room else _cut_prompt(task, self._prompt_fits(room))
        if shorter is None:
            return None
        kept = self.limit - len(self.chat.prompt(shorter))
        replies = [
            self.chat.reply(str(task.given[c]))[:kept] for c in ("chosen", "rejected") if c in self.needs.replies
        ]
        return None if len(replies) == 2 and torch.equal(*replies) else shorter

    def _prompt_fits(self, room: int) -> Callable[[Task], bool]:
        return lambda task: len(self.chat.prompt(task)) <= room


def _roles(prompt: str | Sequence[Message]) -> tuple[str, ...]:
    """The roles of a prompt's messages, those that call tools marked."""
    if isinstance(prompt, str):
        return ("user",)
    return tuple(f"{m['role']}()" if m.get("tool_calls") else str(m["role"]) for m in prompt)


def _bytes(value: object) -> int:
    """The bytes of all texts in a value."""
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode(errors="replace"))
    if isinstance(value, dict):
        return sum(_bytes(key) + _bytes(one) + 8 for key, one in value.items())
    return sum(map(_bytes, value)) if isinstance(value, list | tuple) else 24


def _cut_prompt(task: Task, fits: Callable[[Task], bool]) -> Task | None:
    """The task whose longest message has lost as much of its beginning as it must; None where that is not enough."""
    text = isinstance(task.prompt, str)
    messages = [{"content": task.prompt}] if isinstance(task.prompt, str) else list(task.prompt)
    place = max(range(len(messages)), key=lambda i: len(str(messages[i]["content"])))
    content = str(messages[place]["content"])

    def shortened(lost: int) -> Task:
        changed = {**messages[place], "content": content[lost:]}
        prompt = changed["content"] if text else (*messages[:place], changed, *messages[place + 1 :])
        return replace(task, prompt=prompt)

    low, high = 0, len(content) - 1  # the fewest characters to lose lie in (low, high]
    if high < 1 or not isinstance(messages[place]["content"], str) or not fits(shortened(high)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(shortened(middle)) else (middle, high)
    return shortened(high)
