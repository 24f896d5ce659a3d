"""A table of chances between a few replies, read from a JSON file."""

from __future__ import annotations

import json
from dataclasses import dataclass

from burnish.util.paths import expanded

CLOSE = 1e-6  # how far P(a > b) + P(b > a) may be from 1


@dataclass(frozen=True)
class Chances:
    """P(a > b) of every two different replies of a file."""

    replies: tuple[str, ...]
    over: dict[tuple[str, str], float]

    def of(self, first: str, second: str, unlisted: float) -> float:
        """P(first > second); unlisted: the chance of a reply that is not in the file against one that is."""
        if first == second:
            return 0.5
        if first in self.replies and second in self.replies:
            return self.over[first, second]
        if first not in self.replies and second not in self.replies:
            return 0.5
        return 1 - unlisted if first in self.replies else unlisted


def read_table(file: str) -> Chances:
    """The chances in a file; raises ValueError for a pair that is missing, or said twice in different ways."""
    try:
        rows = json.loads(expanded(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"the table of preferences {file!r} cannot be read ({error}); it is a JSON file") from None
    if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
        raise ValueError(f'{file}: a table of preferences is {{"reply": {{"rival": chance}}}}')
    over: dict[tuple[str, str], float] = {}
    for first, row in rows.items():
        for second, chance in row.items():
            if isinstance(chance, bool) or not isinstance(chance, int | float) or not 0 <= chance <= 1:
                raise ValueError(f"{file}: the chance of {first!r} over {second!r} is {chance!r}; it is from 0 to 1")
            if abs(over.get((first, second), chance) - chance) > CLOSE:
                raise ValueError(
                    f"{file}: {first!r} over {second!r} is {chance:g}, and {second!r} over {first!r} is "
                    f"{1 - over[first, second]:g}; the two must add to 1"
                )
            over[first, second], over[second, first] = float(chance), 1 - float(chance)
    replies = tuple(dict.fromkeys(name for pair in over for name in pair))
    for a in replies:
        for b in replies:
            if a != b and (a, b) not in over:
                raise ValueError(f"{file}: the chance of {a!r} over {b!r} is missing; give it one way or the other")
    if len(replies) < 2:
        raise ValueError(f"{file}: a table of preferences has at least two replies")
    return Chances(replies, over)
