"""A method with its prompts drawn by the curriculum that --draw names."""

from __future__ import annotations

import difflib

from burnish.core.call_syntax import bound, read_call
from burnish.core.method import Method
from burnish.methods.curricula import CURRICULA
from burnish.tasks.source import Source


def drawn(method: Method, text: str | None, source: Source) -> Method:
    """The method with its prompts drawn by a curriculum."""
    if not text:
        return method
    call = read_call(text)
    if call is None or call.name not in CURRICULA:
        near = difflib.get_close_matches(text, CURRICULA, 2, 0.4)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(CURRICULA)}"
        raise ValueError(f"there is no curriculum {text!r}; {hint}")
    entry = CURRICULA[call.name]
    return entry.build(**bound(call, entry.build))(method, source)
