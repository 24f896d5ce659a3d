"""The results of a comparison in one JSON file, which is replaced atomically; several files can be merged."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path

from burnish.compare.budget import Budget
from burnish.compare.job import RunResult

PAUSE = 5.0  # seconds between two writes while results arrive


class ResultsFile:
    """Results by key. A finished result is kept; a failed one is replaced by a later attempt."""

    def __init__(self, file: Path, about: dict[str, object] | None = None) -> None:
        self.file, self.rows, self._wrote = file, dict[str, RunResult](), 0.0
        self.about: dict[str, object] = dict(about or {})
        if file.is_file():
            self.merge(file)

    def merge(self, file: Path) -> None:
        """Add the results of another file."""
        try:
            stored = json.loads(file.read_text())
            rows = [RunResult.from_json(row) for row in stored["runs"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file} holds no results of a comparison ({error}); name another file") from None
        self.about = {**stored.get("about", {}), **self.about}
        for row in rows:
            self._put(row)

    def add(self, result: RunResult) -> None:
        """Add a result; the file is written at most every PAUSE seconds, so call `save` at the end."""
        self._put(result)
        if time.monotonic() - self._wrote > PAUSE:
            self.save()

    def save(self) -> None:
        self._wrote = time.monotonic()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        partial = self.file.with_name(f".{self.file.name}.partial")
        rows = ",\n".join(json.dumps(row.to_json()) for _, row in sorted(self.rows.items()))
        partial.write_text(f'{{"about": {json.dumps(self.about)},\n"runs": [\n{rows}\n]}}\n')
        partial.rename(self.file)

    def done(self, key: str) -> bool:
        return key in self.rows and self.rows[key].done

    def of(self, budget: Budget) -> list[RunResult]:
        """All results. Raises ValueError if one has another budget, because they cannot be compared."""
        for row in self.rows.values():
            if row.budget != budget:
                raise ValueError(
                    f"{self.file} holds results under the budget {row.budget}, not {budget}: they do not compare; "
                    "use the same budget, or name another file"
                )
        return list(self.rows.values())

    def _put(self, result: RunResult) -> None:
        if not self.done(result.key):
            self.rows[result.key] = result


def by_label(rows: Iterable[RunResult]) -> dict[str, list[RunResult]]:
    """The results of each candidate in the order of seeds; candidates in the order of appearance."""
    results: dict[str, list[RunResult]] = {}
    for row in sorted(rows, key=lambda row: row.seed):
        results.setdefault(row.label, []).append(row)
    return results
