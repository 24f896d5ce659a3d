"""Hostile programs, as data: `=== name` and the source below it."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def attacks(kind: str) -> dict[str, str]:
    """The programs of a file, by name."""
    found: dict[str, str] = {}
    for piece in (HERE / f"{kind}.txt").read_text().split("=== ")[1:]:
        name, _, source = piece.partition("\n")
        assert name not in found, name
        found[name] = source
    return found


def generated() -> dict[str, str]:
    """Forgeries whose source is too long or too odd for a file."""
    return {
        "homoglyph": "def \u0192(x): return 38\ndef f(x): return '\uff13\uff18'",
        "source with null": "def f(x): return 38\0",
        "right to left": "def f(x):\n    return 0 #\u202e 83 nruter",
        "surrogates in the source": "def f(x): return '\ud800'",
        "deep source": f"def f(x): return {'(' * 3000}0{')' * 3000}",
        "deep lambda": f"f = {'lambda x: ' * 2000}0",
        "many arguments": f"def f(x): return max({','.join(['0'] * 20000)})",
        "long sum": f"def f(x): return {'+'.join(['0'] * 20000)}",
        "unary chain": f"def f(x): return {'-' * 50000}0",
        "deep blocks": "\n".join(" " * n + "if 1:" for n in range(200)) + "\n" + " " * 200 + "f = abs",
    }


def parameters(programs: dict[str, str]) -> list[object]:
    return [pytest.param(source, id=name.replace(" ", "-")) for name, source in programs.items()]
