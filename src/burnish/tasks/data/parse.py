"""JSON from untrusted files: every error says where it is and how to fix it."""

from __future__ import annotations

import json

DEEPEST = 100  # the deepest nesting of lists and objects in a row


def parse_json(text: str | bytes, where: str, fix: str) -> object:
    """Parse JSON; raise ValueError with the place of the error."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        parsed = json.loads(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: cannot be read as UTF-8 text ({error}); write it again") from None
    except json.JSONDecodeError as error:
        line = "" if ", line " in where else f", line {error.lineno}"
        raise ValueError(f"{where}{line}: not valid JSON ({error.msg}); {fix}") from None
    except RecursionError:
        raise ValueError(f"{where}: is nested too deeply to be read; write it with fewer levels") from None
    except ValueError:
        raise ValueError(f"{where}: holds a number of thousands of digits; write it as text, in quotes") from None
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(parsed, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = repr(error.object[error.start])
            raise ValueError(f"{where}: holds {half}, half of a pair, which is no character; remove it") from None
    if text.count("[") + text.count("{") > DEEPEST and _depth(parsed) > DEEPEST:
        raise ValueError(f"{where}: is nested more than {DEEPEST} levels deep; write it with fewer levels")
    return parsed


def _depth(value: object) -> int:
    """The nesting depth of lists and objects; 0 for a plain value."""
    depth, level = 0, [value]
    while level := [item for item in level if isinstance(item, list | dict)]:
        depth += 1
        level = [inner for item in level for inner in (item if isinstance(item, list) else item.values())]
    return depth
