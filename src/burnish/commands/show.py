"""`burnish show METHOD`: describe a method."""

from __future__ import annotations

from dataclasses import dataclass

from burnish.config.flags import read
from burnish.util.terminal import stdout_console


@dataclass(frozen=True)
class ShowOptions:
    """burnish show METHOD: its paper, formula, composition, models and flags.

    METHOD is a name of `burnish methods` or path/file.py:function."""


def main(words: list[str]) -> int:
    asked = read(ShowOptions, "show", words, plain=1)
    if asked is None:
        return 0
    if not asked[0]:
        raise ValueError("say which method to show: burnish show grpo (burnish methods lists them)")
    from burnish.methods.table import find
    from burnish.report.show import show

    show(find(asked[0][0]), asked[0][0], stdout_console())
    return 0
