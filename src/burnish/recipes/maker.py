"""Commands that can be stages of a recipe: those that write a data file, and those that measure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from burnish.config.flags import ALIASES

Rows = list[dict[str, object]]


@dataclass(frozen=True)
class Maker:
    """A command as a stage.

    options     its dataclass of flags
    main        the command itself, which takes words
    positional  the option that is the first word of the command
    writes      whether it writes a data file (--out); a command that does not prints JSON (--json), which is kept
    replies     whether its model must give replies, so that it cannot be a reward model
    like        rows in the format of its file, for checks before it exists
    """

    name: str
    options: type
    main: Callable[[list[str]], int]
    positional: str = ""
    writes: bool = True
    replies: bool = True
    like: Callable[[Mapping[str, object]], Rows] | None = None

    def known(self) -> set[str]:
        """The options of the stage."""
        names = {one.name for one in dataclasses.fields(self.options)} - {"out", "json"}
        earlier = {old for old, now in ALIASES.items() if now in names}
        return names | earlier | ({self.positional} if self.positional else set())

    def words(self, options: Mapping[str, object]) -> list[str]:
        """The words of the command line that say these options."""
        told: list[str] = [str(options[self.positional])] if self.positional and self.positional in options else []
        for key, value in options.items():
            if key == self.positional or value is None:
                continue
            text = str(value).lower() if isinstance(value, bool) else str(value)
            told.append(f"--{key.replace('_', '-')}={text}")
        return told
