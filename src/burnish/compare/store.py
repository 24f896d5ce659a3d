"""The results of a comparison in one JSON file, rewritten whole and at once; results of several files merge."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path

from burnish.compare.budget import Budget
from burnish.compare.job import Found

PAUSE = 5.0  # seconds between two writings while results come in


class Store:
    """Results by their key. A result that is done stays; a failed one gives way to a later try."""

    def __init__(self, file: Path, about: dict[str, object] | None = None) -> None:
        self.file, self.rows, self._wrote = file, dict[str, Found](), 0.0
        self.about: dict[str, object] = dict(about or {})
        if file.is_file():
            self.merge(file)

    def merge(self, file: Path) -> None:
        """Take over the results of another file."""
        try:
            stored = json.loads(file.read_text())
            found = [Found.from_json(row) for row in stored["runs"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file} holds no results of a comparison ({error}); name another file") from None
        self.about = {**stored.get("about", {}), **self.about}
        for row in found:
            self._put(row)

    def add(self, found: Found) -> None:
        """One more result; it is on disk within seconds, and `save` makes sure."""
        self._put(found)
        if time.monotonic() - self._wrote > PAUSE:
            self.save()

    def save(self) -> None:
        self._wrote = time.monotonic()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        aside = self.file.with_name(f".{self.file.name}.partial")
        rows = ",\n".join(json.dumps(row.to_json()) for _, row in sorted(self.rows.items()))
        aside.write_text(f'{{"about": {json.dumps(self.about)},\n"runs": [\n{rows}\n]}}\n')
        aside.rename(self.file)

    def done(self, key: str) -> bool:
        return key in self.rows and self.rows[key].done

    def of(self, budget: Budget) -> list[Found]:
        """The results; those under another budget are refused, for they cannot be compared."""
        for row in self.rows.values():
            if row.budget != budget:
                raise ValueError(
                    f"{self.file} holds results under the budget {row.budget}, not {budget}: they do not compare; "
                    "ask for the same budget, or name another file"
                )
        return list(self.rows.values())

    def _put(self, found: Found) -> None:
        if not self.done(found.key):
            self.rows[found.key] = found


def by_label(rows: Iterable[Found]) -> dict[str, list[Found]]:
    """Results of each candidate, by seed, candidates in order of appearance."""
    found: dict[str, list[Found]] = {}
    for row in sorted(rows, key=lambda row: row.seed):
        found.setdefault(row.label, []).append(row)
    return found
