"""Help texts: the flags of a command or method as a table, in groups, the common ones first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from burnish.config.flags import Flag, dashed

if TYPE_CHECKING:
    from rich.console import Console


FIRST = ("model", "task", "reward", "steps", "prompts", "max_new_tokens", "lr", "lora", "memory", "out")


def groups() -> dict[str, tuple[str, ...]]:
    """Title -> options of every run, in the order of --help-all; --help shows the ten of FIRST."""
    from burnish.config.groups import GROUPS

    return {str(kind.__doc__): tuple(kind.__annotations__) for kind in GROUPS}


def grouped(flags: Iterable[Flag]) -> dict[str, list[Flag]]:
    """The flags of every run by group."""
    by_name = {flag.name: flag for flag in flags}
    return {title: [by_name[name] for name in names] for title, names in groups().items()}


def print_flags(console: Console, flags: Iterable[Flag]) -> None:
    """Print one flag per row: name and type, help text and default. Help texts wrap; nothing is cut off."""
    from rich.table import Table
    from rich.text import Text

    rows = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    for flag in flags:
        switch = flag.kind == "on/off"
        name = f"  --{'[no-]' if switch and flag.default == 'on' else ''}{dashed(flag.name)}"
        default = "" if flag.default in ("-", "off") else f" [{flag.default}]"
        text = Text.assemble(flag.help.replace("`", ""), (default, "dim"))
        rows.add_row(Text.assemble((name, "cyan"), ("" if switch else f" {flag.kind.upper()}", "dim")), text)
    console.print(rows)
