"""Equality of mathematical expressions, by math-verify. It evaluates its input, so only the sandbox may call it."""

from __future__ import annotations

import logging
import re

from burnish.verifiers.final_answer import small_powers

LONGEST = 200  # characters


def _tame(text: str) -> bool:
    """Whether a text is cheap for a computer algebra system: short, without towers of powers, sums and integrals."""
    return (
        len(text) <= LONGEST and small_powers(text) and not re.search(r"!|[0-9]{30}|\\(?:sum|prod|int|lim|binom)", text)
    )


def same_mathematics(answer: str, right: str) -> bool:
    """Equality by math-verify, if it is installed and both texts are cheap to evaluate. The sandbox limits the time."""
    try:
        from math_verify import parse, verify
    except ImportError:
        return False
    if not _tame(answer) or not _tame(right):
        return False
    for module in ("parser", "grader"):
        logging.getLogger(f"math_verify.{module}").setLevel(logging.ERROR)  # no warning that its time limit is off
    try:
        gold, parsed = (parse(f"${text.strip().strip('$')}$", parsing_timeout=None) for text in (right, answer))
        return bool(verify(gold, parsed, timeout_seconds=None))
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - a text that the parser cannot handle is not equal
        return False
