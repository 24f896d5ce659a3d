"""One test for many quick cases: a failure lists all of them, and pytest collects one item, not hundreds."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any


def at_once(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As pytest.mark.parametrize, for cases that take milliseconds. Fixtures are shared by all cases."""
    keys = (names,) if isinstance(names, str) else names

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            faults, tried = [], 0
            for case in cases:
                tried += 1
                given = dict(zip(keys, (case,) if isinstance(names, str) else case, strict=True))
                try:
                    test(**given, **fixtures)
                except Exception as error:
                    line = traceback.extract_tb(error.__traceback__)[-1]
                    shown = ", ".join(str(value)[:80] for value in given.values())
                    faults.append(f"{shown}: {type(error).__name__} in line {line.lineno}: {str(error)[:400]}")
            assert tried, "there are no cases"
            assert not faults, f"{len(faults)} of {tried}:\n" + "\n".join(faults)

        signature = inspect.signature(test)
        run.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[p for key, p in signature.parameters.items() if key not in keys]
        )
        return run

    return mark
