"""Types of options that several groups use."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any

from burnish.core.option import Option

Count = Annotated[int, Option(at_least=1)]
CountOrNone = Annotated[int | None, Option(at_least=1)]
CountOrZero = Annotated[int, Option(at_least=0)]
Amount = Annotated[float, Option(at_least=0)]
AmountOrNone = Annotated[float | None, Option(at_least=0)]
Seconds = Annotated[float, Option(above=0)]


def may_change(default: Any) -> Any:
    """A default of an option that a resume may change: it does not change what is learned, or only from then on."""
    return field(default=default, metadata={"resumable": True})
