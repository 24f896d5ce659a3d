"""The licence of a base model, read from the files beside it, never guessed."""

from __future__ import annotations

from pathlib import Path

from burnish.util.safe_yaml import parse_yaml

LICENCE_FILES = ("LICENSE*", "LICENCE*", "NOTICE*", "USE_POLICY*")
MARKS = {  # the first lines of a licence file -> its name on the hub
    "Apache License": "apache-2.0",
    "MIT License": "mit",
    "GNU AFFERO GENERAL PUBLIC LICENSE": "agpl-3.0",
    "GNU LESSER GENERAL PUBLIC LICENSE": "lgpl-3.0",
    "GNU GENERAL PUBLIC LICENSE": "gpl-3.0",
    "Gemma Terms of Use": "gemma",
    "LLAMA 3.3 COMMUNITY LICENSE": "llama3.3",
    "LLAMA 3.2 COMMUNITY LICENSE": "llama3.2",
    "LLAMA 3.1 COMMUNITY LICENSE": "llama3.1",
    "META LLAMA 3 COMMUNITY LICENSE": "llama3",
}
HEAD = 2000  # characters of a licence file that are searched for its name


def licence_of(folder: Path) -> str:
    """The licence that a model directory states: in the front matter of its README.md, or in a licence file; else
    an empty string.
    """
    stated = front_matter(folder / "README.md").get("license")
    if isinstance(stated, str) and stated:
        return stated
    for pattern in LICENCE_FILES[:2]:
        for file in sorted(folder.glob(pattern)):
            head = file.read_text(errors="replace")[:HEAD].upper()
            for mark, name in MARKS.items():
                if mark.upper() in head:
                    return name
    return ""


def front_matter(file: Path) -> dict[str, object]:
    """The YAML between the first two lines --- of a Markdown file; empty where there is none."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    parts = text.split("---\n", 2)
    if len(parts) < 3 or parts[0].strip():
        return {}
    try:
        told = parse_yaml(parts[1])
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}
