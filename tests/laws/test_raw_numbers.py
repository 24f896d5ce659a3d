"""A table with measured numbers names its raw file or its script: in its section, or at the top of the page.

WITHOUT holds the sections that do not yet; it may only shrink. A page of a method (docs/methods) is written from
benchmarks/curves.json, that of a preference method from benchmarks/results/preference_methods.json
(tests/tools/test_preference_results.py holds them equal).
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MEASURED = re.compile(r"\d ?%|±|\d \[[-+.\d]+, [-+.\d]+\]")
RAW = re.compile(r"[\w/-]+\.json\b|(scripts|benchmarks)/\w+\.py|tests/\w+/\w+\.py|`tests/\w+")
ADVICE = {"troubleshooting.md"}  # its numbers are limits, not measurements
WITHOUT: dict[str, int] = {
    "agent-credit.md": 3,
    "agent-rewards.md": 2,
    "agent-search.md": 2,
    "async.md": 1,
    "decoding.md": 5,
    "environments.md": 1,
    "evolution.md": 1,
    "offline-agents.md": 1,
    "process-rewards.md": 1,
    "reward-models.md": 1,
    "swarm.md": 1,
    "tree-search.md": 2,
}


def sections(text: str) -> list[tuple[str, str]]:
    """(heading, body) of every section of a page, down to the third level; code is left out."""
    plain = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    pieces = re.split(r"^(#{1,3} .*)$", plain, flags=re.MULTILINE)
    return list(zip(pieces[1::2], pieces[2::2], strict=True))


def unnamed(text: str) -> list[str]:
    """The headings of sections with a table of measured numbers and neither a raw file nor a script."""
    found: list[str] = []
    parts = sections(text)
    if parts and RAW.search(parts[0][1]):
        return found
    for heading, body in parts:
        rows = [line for line in body.splitlines() if line.startswith("|") and not set(line) <= set("|-: ")]
        measured = [row for row in rows[1:] if MEASURED.search(row)]
        if len(measured) > 1 and not RAW.search(body):
            found.append(heading.strip("# "))
    return found


def test_a_table_of_numbers_names_its_raw_file() -> None:
    table = "| a | b |\n|---|---|\n| x | 12% |\n| y | 13% |\n"
    assert unnamed(f"# A\n{table}") == ["A"] and unnamed(f"# A\n{table}\nRaw: results/x.json\n") == []
    assert unnamed("# A\n| a | b |\n|---|---|\n| x | 12 |\n") == []


def test_no_page_quotes_numbers_without_a_raw_file() -> None:
    pages = [
        path
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if path.parent.name != "methods" and path.name not in ADVICE
    ]
    missing = {str(path.relative_to(ROOT / "docs")): unnamed(path.read_text()) for path in pages}
    found = {name: len(headings) for name, headings in missing.items() if headings}
    grown = {name: missing[name] for name, count in found.items() if count > WITHOUT.get(name, 0)}
    assert not grown, f"name the raw file or the script of these tables: {grown}"
    assert found == WITHOUT, "some have one now: lower WITHOUT"
