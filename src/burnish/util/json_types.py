"""Types of JSON: what was parsed, and objects that are written."""

from __future__ import annotations

from typing import Any

Json = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
JsonObject = dict[str, Any]  # one that is written here: its values are chosen, not looked at
