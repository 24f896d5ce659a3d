"""The type of parsed JSON."""

from __future__ import annotations

Json = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
