"""`Rows`: a table that is read row by row, so that its size does not matter. Lists, and tables joined end to end."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Protocol

Row = dict[str, Any]


class Rows(Protocol):
    """Rows with random access. A row is parsed when it is asked for, and not kept."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...

    def __iter__(self) -> Iterator[Any]:
        """All rows in order: faster than one by one."""
        ...

    def where(self, index: int) -> str:
        """The place of a row, for error messages: "data.jsonl, line 7"."""
        ...


class ListRows:
    """Rows that are in memory already."""

    def __init__(self, rows: Sequence[Any], name: str) -> None:
        self.rows, self.name = rows, name

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def where(self, index: int) -> str:
        return f"{self.name}, row {index + 1}"


class JoinedRows:
    """Several tables end to end."""

    def __init__(self, tables: Sequence[Rows]) -> None:
        self.tables = tables
        self._ends = list(accumulate(len(table) for table in tables))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Any:
        table, inside = self._find(index)
        return table[inside]

    def __iter__(self) -> Iterator[Any]:
        for table in self.tables:
            yield from table

    def where(self, index: int) -> str:
        table, inside = self._find(index)
        return table.where(inside)

    def _find(self, index: int) -> tuple[Rows, int]:
        number = bisect_right(self._ends, index)
        return self.tables[number], index - (self._ends[number - 1] if number else 0)


def joined(tables: Sequence[Rows]) -> Rows:
    """One table of several."""
    return tables[0] if len(tables) == 1 else JoinedRows(tables)
