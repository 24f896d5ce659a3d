"""The console that commands print to: as wide as the terminal, and without wrapping or padding in a pipe or a file."""

from __future__ import annotations

import re
import sys
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 10_000  # columns of a console that is not a terminal: a table has one line per row


class _Stripped:
    """A text stream that drops the blanks with which tables are padded at the end of a line."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(re.sub(r" +(?=\n)", "", text))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def stdout_console() -> Console:
    """A console on standard output."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, file=cast(IO[str], _Stripped(sys.stdout)), width=PIPE_WIDTH)
