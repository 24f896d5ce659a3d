"""`burnish tasks`: list the built-in tasks, or show one with samples and what is trained on in them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from burnish.config.flags import read
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from burnish.core.task import Task
    from burnish.models.chat import Chat

ELSEWHERE = """\
Besides these:
  [cyan]gym:NAME[/]        a task of reasoning-gym, for example gym:chain_sum (pip install 'burnish\\[gym]')
  [cyan]FILE.py:CLASS[/]   your own environment; others: gymnasium:ID, textarena:ID, openenv:URL, verifiers:NAME
  [cyan]FILE or FOLDER[/]  your own data: .jsonl, .json, .csv, .parquet with prompts, answers, demonstrations or pairs
  [cyan]OWNER/NAME[/]      a dataset of the Hugging Face hub (pip install 'burnish\\[data]')
Several with weights are a mixture: a.jsonl*0.7,b.jsonl*0.3
burnish tasks NAME shows samples: burnish tasks sort:3"""
MARKS = ("⟦", "⟧")  # around what is trained on, where there are no colours


@dataclass(frozen=True)
class TasksOptions:
    """burnish tasks [NAME]: list the built-in tasks, or show NAME (sort, sort:3, gym:chain_sum, data.jsonl).

    What SFT trains on is green in a terminal, and between ⟦ and ⟧ elsewhere."""

    rows: int = 2
    """How many tasks are shown."""
    columns: str | None = None
    """Columns of a dataset that have unusual names: prompt=text,answer=gold."""
    train_on: str = "all"
    """What is trained on in a conversation: all replies, the last one, or everything."""
    model: str | None = None
    """Show the rows as this model reads them, through its chat template, with their numbers of tokens."""


def main(words: list[str]) -> int:
    asked = read(TasksOptions, "tasks", words, plain=1)
    if asked is None:
        return 0
    console = stdout_console()
    if asked[0]:
        _one(asked[0][0], asked[1], console)
        return 0
    from burnish.tasks.resolve import installed
    from burnish.tasks.table import GENERATED

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("task", style="cyan", no_wrap=True)
    for column in ("levels", "what it asks", "what it gives"):
        table.add_column(column)
    for name, kind in GENERATED.items():
        table.add_row(name, " ".join(map(str, kind.levels)), kind.summary, ", ".join(sorted(kind.gives)))  # type: ignore[attr-defined]
    for name, loads in installed().items():
        table.add_row(name, "", f"of an installed package, {loads}", "")
    console.print(table)
    console.print(Text("NAME:LEVEL chooses a level; 2 is the default.\n", style="dim"))
    console.print(ELSEWHERE)
    return 0


def _one(name: str, options: TasksOptions, console: Console) -> None:
    from burnish.models.conversation import TRAIN_ON
    from burnish.tasks.resolve import datasets_of, resolve_task

    if options.train_on not in TRAIN_ON:
        raise ValueError(f"--train-on is {options.train_on!r}; it is {', '.join(TRAIN_ON[:-1])} or {TRAIN_ON[-1]}")
    if options.rows < 1:
        raise ValueError(f"--rows is {options.rows}; it must be at least 1")
    source = resolve_task(name, columns=options.columns)
    chat = _chat(options.model) if options.model else None
    sizes = {split: source.size(split) for split in ("train", "heldout")}  # before anything is said: rows may be bad
    console.print(Text.assemble((source.name, "bold cyan"), f"   {source.summary}"))
    counted = ", ".join(f"{'endless' if size is None else size} {split}" for split, size in sizes.items())
    left_out = sum(dataset.left_out() for dataset in datasets_of(source))
    counted += f"; {left_out} rows whose replies are equal or ranked the same are left out" if left_out else ""
    console.print(
        Text(f"{counted}; gives {', '.join(sorted(source.gives)) or 'nothing beyond the prompt'}", style="dim")
    )
    for index in range(min(options.rows, sizes["train"] or options.rows)):
        task = source.task("train", index)
        console.print()
        if chat is not None and "demo" in task.given:
            _rendered(task, chat, options.train_on, console)
        else:
            console.print(_shown(task, options.train_on, console.is_terminal))


def _chat(model: str) -> Chat:
    from burnish.models.known_models import resolve
    from burnish.models.load import load_chat

    return load_chat(resolve(model))


def _shown(task: Task, train_on: str, colours: bool) -> Table:
    """A task as a table of its messages and columns."""
    from burnish.core.messages import text_of
    from burnish.models.conversation import message_weights

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    prompt = [{"role": "prompt", "content": task.prompt}] if isinstance(task.prompt, str) else list(task.prompt)
    if len(prompt) == 1:
        prompt = [{**prompt[0], "role": "prompt"}]
    messages = task.given.get("messages")
    if messages is None:
        reply = [{"role": "assistant", "content": task.given["demo"]}] if "demo" in task.given else []
        messages = [*(message for message in prompt if message["content"]), *reply]
    weights = message_weights(messages, train_on)
    for message, weight in zip(messages, weights, strict=True):
        said = text_of(message) + "".join(_call(call) for call in message.get("tool_calls") or ())
        part = f" x{weight:g}" if weight not in (0.0, 1.0) else ""
        role = "text" if task.prompt == "" else "demo" if len(messages) == 2 and weight else message["role"]
        table.add_row(f"{role}{part}", _marked(said, bool(weight), colours))
    for column in ("answer", "mistake", "chosen", "rejected", "label", "tools", "dataset"):
        if column in task.given:
            colour = "red" if column in ("mistake", "rejected") else "green" if column == "chosen" else ""
            table.add_row(column, Text(str(task.given[column]), style=colour))
    return table


def _call(call: dict[str, Any]) -> str:
    return f"{call['function']['name']}({json.dumps(call['function']['arguments'], ensure_ascii=False)})"


def _marked(text: str, trained: bool, colours: bool) -> Text:
    if not trained:
        return Text(text, style="bold")
    return Text(text, style="green") if colours else Text(f"{MARKS[0]}{text}{MARKS[1]}")


def _rendered(task: Task, chat: Chat, train_on: str, console: Console) -> None:
    """A demonstration as the model reads it, with what is trained on marked."""
    from burnish.rollout.demonstrated import demonstration

    for pieces in demonstration(task, chat, train_on):
        sizes = [(len(piece.tokens), bool(piece.weight)) for piece in pieces]
        trained = sum(size for size, counts in sizes if counts)
        console.print(Text(f"{sum(size for size, _ in sizes)} tokens, {trained} trained on", style="dim"))
        text = Text()
        for piece in pieces:
            said = chat.tokenizer.decode(piece.tokens.tolist(), skip_special_tokens=False)
            text.append(_marked(said, bool(piece.weight), console.is_terminal))
        console.print(text, soft_wrap=True)
