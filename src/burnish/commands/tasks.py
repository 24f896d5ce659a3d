"""`burnish tasks`: the built-in tasks, or one task with samples."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from burnish.commands.flags import read

SAMPLES = 2

ELSEWHERE = """\
Besides these:
  [cyan]gym:NAME[/]        a task of reasoning-gym, for example gym:chain_sum (pip install 'burnish\\[gym]')
  [cyan]FILE or FOLDER[/]  your own data: .jsonl, .json, .csv, .parquet with prompts, answers, demonstrations or pairs
  [cyan]OWNER/NAME[/]      a dataset of the Hugging Face hub (pip install 'burnish\\[data]')
burnish tasks NAME shows samples: burnish tasks sort:3"""


@dataclass(frozen=True)
class TasksOptions:
    """burnish tasks [NAME]: the built-in tasks; with NAME (sort, sort:3, gym:chain_sum, data.jsonl) a look at one."""


def main(words: list[str]) -> int:
    asked = read(TasksOptions, "tasks", words, plain=1)
    if asked is None:
        return 0
    console = Console(highlight=False)
    if asked[0]:
        _one(asked[0][0], console)
        return 0
    from burnish.tasks.table import BUILTIN

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("task", style="cyan", no_wrap=True)
    for column in ("levels", "what it asks", "what it gives"):
        table.add_column(column)
    for name, kind in BUILTIN.items():
        table.add_row(name, " ".join(map(str, kind.levels)), kind.summary, ", ".join(sorted(kind.gives)))  # type: ignore[attr-defined]
    console.print(table)
    console.print(Text("NAME:LEVEL chooses a level; 2 is the default.\n", style="dim"))
    console.print(ELSEWHERE)
    return 0


def _one(name: str, console: Console) -> None:
    from burnish.tasks.resolve import resolve_task

    source = resolve_task(name)
    console.print(Text.assemble((source.name, "bold cyan"), f"   {source.summary}"))
    sizes = {split: source.size(split) for split in ("train", "heldout")}
    counted = ", ".join(f"{'endless' if size is None else size} {split}" for split, size in sizes.items())
    console.print(
        Text(f"{counted}; gives {', '.join(sorted(source.gives)) or 'nothing beyond the prompt'}", style="dim")
    )
    for index in range(min(SAMPLES, sizes["train"] or SAMPLES)):
        task = source.task("train", index)
        prompt = task.prompt if isinstance(task.prompt, str) else "\n".join(m["content"] for m in task.prompt)
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        table.add_row("prompt", Text(prompt, style="bold"))
        for column in ("answer", "demo", "mistake", "chosen", "rejected"):
            if column in task.given:
                colour = "red" if column in ("mistake", "rejected") else "green"
                table.add_row(column, Text(str(task.given[column]), style=colour))
        console.print()
        console.print(table)
