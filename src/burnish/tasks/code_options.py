"""The options of tasks whose replies are programs. Without torch, for grader processes."""

from __future__ import annotations


def check_code_options(canary: object, unsafe_code: object) -> None:
    """Raise ValueError for a share of canaries that is none, and for a permission that is neither yes nor no."""
    if not isinstance(canary, int | float) or not 0 <= canary < 1:
        raise ValueError(f"canary={canary} is not a share; give a number from 0 up to, not including, 1")
    if not isinstance(unsafe_code, bool):
        raise ValueError(f"unsafe_code={unsafe_code} is neither yes nor no; yes runs programs without isolation")
