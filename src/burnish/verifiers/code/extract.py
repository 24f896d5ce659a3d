"""The program in a reply: its last block of code, or the whole reply where it has no block."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.MULTILINE | re.DOTALL)
_PYTHON = ("", "python", "python3", "py", "py3")
_CODE = re.compile(
    r"^\s*(def|class|import|from|for|while|if|return|print|with|try|async|raise|assert|lambda|@)\b|=|\(|^\s*[-\w.]+\s*$",
    re.MULTILINE,
)
LONGEST = 100_000  # characters of a program


@dataclass(frozen=True)
class Program:
    """A program for a run.

    code   what is run
    start  character of the reply at which the reply's own part begins
    above  lines of `code` that are not of the reply (a header from the prompt)
    own    the reply's own part
    """

    code: str
    start: int
    above: int
    own: str

    def below(self, header: str) -> Program:
        """The same program, with code of the problem above it."""
        if not header.strip():
            return self
        header = header if header.endswith("\n") else header + "\n"
        return Program(header + self.code, self.start, self.above + header.count("\n"), self.own)

    def place(self, line: int | None) -> tuple[int, int] | None:
        """The characters of a line of the reply's part (from 1) in the reply."""
        lines = self.own.splitlines(keepends=True)
        if line is None or not 1 <= line <= len(lines):
            return None
        start = self.start + sum(map(len, lines[: line - 1]))
        return start, start + len(lines[line - 1].rstrip("\r\n"))


def program_of(reply: str, entry: str | None = None, prompt: str = "") -> Program | None:
    """The program of a reply; None if there is no code in it.

    entry, prompt: a function that the prompt begins, as in HumanEval. A reply that defines it gets what comes before
    it in the prompt (imports, helpers); a reply that does not is its body.
    """
    block = _block(reply)
    if block is None:
        return None
    own, start, fenced = block
    begun = _definition(prompt, entry)
    if begun is None or entry is None:
        return Program(own, start, 0, own) if own.strip() else None
    if _definition(own, entry) is not None:
        header = prompt[: begun.start()]
        header += "" if header.endswith("\n") or not header else "\n"
        return Program(header + own, start, header.count("\n"), own)
    if not fenced:
        own = _body(own)
    if not own.strip():
        return None
    header = prompt if prompt.endswith("\n") else prompt + "\n"
    return Program(header + own, start, header.count("\n"), own)


def _block(reply: str) -> tuple[str, int, bool] | None:
    """The last block of Python, its place, and whether it was fenced."""
    blocks = [match for match in _FENCE.finditer(reply) if match[1].lower() in _PYTHON and match[2].strip()]
    if blocks:
        last = blocks[-1]
        return last[2][:LONGEST], last.start(2), True
    if "```" in reply or not reply.strip() or not _CODE.search(reply):
        return None
    return reply[:LONGEST], 0, False


def _definition(text: str, entry: str | None) -> re.Match[str] | None:
    if entry is None:
        return None
    return re.search(rf"^[ \t]*(?:async[ \t]+)?def[ \t]+{re.escape(entry)}[ \t]*\(", text, re.MULTILINE)


def _body(text: str) -> str:
    """The lines of a function's body, up to the first that is not indented."""
    body: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.strip() and not line[0].isspace():
            break
        body.append(line)
    return "".join(body)
