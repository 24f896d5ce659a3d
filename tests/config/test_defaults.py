"""Defaults are promises: those of every method are on its page, and a change of one is a change of the docs."""

from __future__ import annotations

from pathlib import Path

from at_once import at_once

import burnish
from burnish.config.flags import dashed, flags_of_method
from burnish.methods.table import METHODS

PAGES = Path(burnish.__file__).parents[2] / "docs" / "methods"


@at_once("name", sorted(METHODS))
def test_the_defaults_of_a_method_are_those_on_its_page(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text()
    for flag in flags_of_method(METHODS[name]):
        row = f"| `--{dashed(flag.name)}` | {flag.kind} | {flag.default} |"
        assert row in page, f"docs/methods/{name}.md lacks {row!r}; run scripts/write_method_docs.py"
