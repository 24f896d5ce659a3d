"""One bad input, and what all kinds of them are made from."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from dataclasses import dataclass

SMALL = [
    "--steps",
    "1",
    "--prompts",
    "1",
    "--max-new-tokens",
    "2",
    "--eval-tasks",
    "0",
    "--device",
    "cpu",
    "--quiet",
    "--record",
    "0",
]
HUGE = "9" * 400
ODD = [
    "",
    " ",
    "-1",
    "0",
    "nan",
    "inf",
    "-inf",
    "1e999",
    HUGE,
    "0x10",
    "1_0",
    "none",
    "null",
    "true",
    "[]",
    "{}",
    "a=b",
    "--",
    "-",
    "é",
    "\ud800",
    "../..",
    "/",
    "/dev/null",
    "/proc/self/mem",
    ".",
    "~",
    "x" * 300,
    "x" * 5000,
    "a\0b",
    "a\nb",
    "*",
    "%s",
    "{0}",
    "$(id)",
    "';--",
    "<b>",
    "[bold]",
    "[/]",
    ":",
    "::",
    ":x",
    "x:",
    "1:2:3",
    "gym:",
    "gym:nosuch",
    "sort:-1",
    "sort:x",
    "sort:" + HUGE,
]
DEEP = "[" * 100_000


class Wrong(Exception):
    """An answer that no client should get: a failure of the server, or none at all."""


@dataclass
class Case:
    """One bad input: what kind, the words of the command line, and what is in the file that they name.

    call: in place of a command, a function that gives the input; its exit code
    """

    kind: str
    words: list[str]
    what: str = ""
    call: Callable[[], int] | None = None


def noise(rng: random.Random) -> str:
    return "".join(rng.choice(string.printable) for _ in range(rng.randrange(1, 30)))


def damaged(rng: random.Random, content: bytes) -> bytes:
    """The bytes cut short, with one changed, with some put in, or none."""
    how, at = rng.randrange(4), rng.randrange(len(content) + 1)
    if how == 0:
        return content[:at]
    if how == 1 and content:
        at = min(at, len(content) - 1)
        return content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :]
    return content[:at] + rng.randbytes(rng.randrange(1, 20)) + content[at:] if how == 2 else b""
