"""Messages that log what a template reads of them, and texts that share a beginning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Rendered:
    """A text that is the first `shared` characters of `base` and then `tail`, so that many share one base."""

    base: str
    shared: int
    tail: str = ""

    @classmethod
    def of(cls, text: str) -> Rendered:
        return cls(text, len(text))

    def __len__(self) -> int:
        return self.shared + len(self.tail)

    def part(self, start: int, end: int | None = None) -> str:
        """The characters from `start` to `end`."""
        end = len(self) if end is None else end
        own = self.tail[max(0, start - self.shared) : max(0, end - self.shared)]
        return self.base[start : min(end, self.shared)] + own

    def agrees(self, other: Rendered, length: int) -> bool:
        """Whether both have the same first `length` characters, and so many."""
        if length > min(len(self), len(other)):
            return False
        same = min(self.shared, other.shared, length) if self.base is other.base else 0
        return self.part(same, length) == other.part(same, length)

    def startswith(self, other: Rendered) -> bool:
        return self.agrees(other, len(other))

    def followed_by(self, text: str) -> Rendered:
        return replace(self, tail=self.tail + text)


class Log:
    """What a template has seen of the messages, and how much it has written."""

    def __init__(self) -> None:
        self.seen = 0  # messages, from the first
        self.end = False  # whether it has seen how many there are
        self.written = 0
        self.ahead = 0  # calls under way that look ahead of their loop
        self.points: dict[int, int] = {}

    def saw(self, index: int) -> None:
        self.seen = max(self.seen, index + 1)


class Watched(Sequence[object]):
    """Messages from number `first` on, for a template: whatever it reads of them is logged."""

    def __init__(self, messages: Sequence[object], log: Log, first: int = 0) -> None:
        self._messages, self._log, self._first = messages, log, first

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, int) and 0 <= at < len(self._messages) - self._first:
            self._log.saw(self._first + at)
            return self._messages[self._first + at]
        if isinstance(at, slice) and at.stop is None and at.step in (None, 1) and 0 <= (at.start or 0) <= 1:
            return Watched(self._messages, self._log, self._first + (at.start or 0))
        return self._all()[at]

    def __iter__(self) -> Iterator[object]:
        for number in range(self._first, len(self._messages)):
            self._log.saw(number)
            yield self._messages[number]
        self._log.end = True

    def followed(self) -> Iterator[object]:
        """The messages for the loop over them: what has been written when it asks for the next one is logged."""
        log = self._log
        for number in range(self._first, len(self._messages)):
            if number and not log.end and not log.ahead and log.seen <= number:
                log.points[number] = log.written
            log.saw(number)
            yield self._messages[number]
        log.end = True

    def __len__(self) -> int:
        self._log.end = True
        return len(self._messages) - self._first

    def __bool__(self) -> bool:
        some = len(self._messages) > self._first
        self._log.saw(self._first if some else len(self._messages))
        return some

    def __eq__(self, other: object) -> bool:
        return self._all() == other

    def __hash__(self) -> int:
        raise TypeError("messages cannot be hashed")

    def __repr__(self) -> str:
        return repr(self._all())

    def __add__(self, other: Any) -> Any:
        return self._all() + other

    def __radd__(self, other: Any) -> Any:
        return other + self._all()

    def _all(self) -> list[object]:
        self._log.end = True
        return list(self._messages[self._first :])


def extent(watched: Watched) -> tuple[Sequence[object], int]:
    """All the messages, and the number of the first that is shown. A template cannot ask this: a list has no such
    attributes."""
    return watched._messages, watched._first
