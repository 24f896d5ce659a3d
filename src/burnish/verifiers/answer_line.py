"""The format of worked replies: working steps, then the line `answer: ...`."""

from __future__ import annotations

import re

LONGEST_REPLY = 4000  # characters at the end of a reply that a verifier reads
_ANSWER = re.compile(r"answer\s*:", re.IGNORECASE)


def format_reply(answer: str, *steps: str) -> str:
    """A reply in the standard format: one working step per line, then the line `answer: ...`."""
    return "\n".join([*steps, f"answer: {answer}"])


def answer_of(reply: str) -> str | None:
    """The text after the last `answer:` on its line, without surrounding spaces and final full stop; None if absent."""
    places = list(_ANSWER.finditer(reply[-LONGEST_REPLY:]))
    if not places:
        return None
    lines = reply[-LONGEST_REPLY:][places[-1].end() :].strip().splitlines()
    return lines[0].strip().rstrip(".").strip() if lines else ""
