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

    What is trained on is green in a terminal, and between ⟦ and ⟧ elsewhere: the replies that sft trains on, and both
    replies of a pair."""

    tasks: int = 2
    """Number of rows that are shown."""
    columns: str | None = None
    """Columns of a dataset that have unusual names: prompt=text,answer=gold."""
    train_on: str = "all"
    """What is trained on in a conversation: all replies, the last one, or everything."""
    model: str | None = None
    """Show the rows as this model reads them, through its chat template, with their numbers of tokens."""
    chat_template: str | None = None
    """Show them through this template: a file with a Jinja template, or chatml, plain, none or tools; in tiny's tokens
    where no --model is named."""
    system_prompt: str | None = None
    """The system message of every conversation that has none."""
    template_option: str | None = None
    """Values for the chat template, key=value, several with commas: enable_thinking=false."""


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
    from burnish.tasks.replies import cut_to_replies, left_out
    from burnish.tasks.resolve import datasets_of, resolve_task

    if options.train_on not in TRAIN_ON:
        raise ValueError(f"--train-on is {options.train_on!r}; it is {', '.join(TRAIN_ON[:-1])} or {TRAIN_ON[-1]}")
    if options.tasks < 1:
        raise ValueError(f"--tasks is {options.tasks}; it must be at least 1")
    source = resolve_task(name, columns=options.columns)
    if not source.gives & {"demo", "chosen", "responses", "env"}:
        cut_to_replies(source)  # as sft reads them
    chat = _chat(options)
    sizes = {split: source.size(split) for split in ("train", "heldout")}  # before anything is said: rows may be bad
    console.print(Text.assemble((source.name, "bold cyan"), f"   {source.summary}"))
    counted = ", ".join(f"{'endless' if size is None else size} {split}" for split, size in sizes.items())
    same = sum(dataset.left_out() for dataset in datasets_of(source))
    counted += f"; {same} rows whose replies are equal or ranked the same are left out" if same else ""
    counted += f"; {cut}" if (cut := left_out(source)) else ""
    console.print(
        Text(f"{counted}; gives {', '.join(sorted(source.gives)) or 'nothing beyond the prompt'}", style="dim")
    )
    for index in range(min(options.tasks, sizes["train"] or options.tasks)):
        task = source.task("train", index)
        console.print()
        if chat is not None and "env" not in task.given:
            _rendered(task, chat, options.train_on, console)
        else:
            console.print(_shown(task, options.train_on, console.is_terminal))


def _chat(options: TasksOptions) -> Chat | None:
    """The tokenizer and template through which rows are shown; None where they are shown as they are."""
    from burnish.models.known_models import resolve
    from burnish.models.load import load_chat
    from burnish.models.template import Style, read_template

    style = Style(read_template(options.chat_template), options.system_prompt, options.template_option)
    if options.model is None and style == Style():
        return None
    return load_chat(resolve(options.model or "tiny"), style)


def _shown(task: Task, train_on: str, colours: bool) -> Table:
    """A task as a table of its messages and columns."""
    from burnish.core.messages import seen

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    messages, weights = _weighed(task, train_on)
    for message, weight in zip(messages, weights, strict=True):
        said = seen(message) + "".join(_call(call) for call in message.get("tool_calls") or ())
        part = f" x{weight:g}" if weight not in (0.0, 1.0) else ""
        role = "text" if task.prompt == "" else "demo" if len(messages) == 2 and weight else message["role"]
        table.add_row(f"{role}{part}", _marked(said, bool(weight), colours))
    for column in ("chosen", "rejected"):
        if column in task.given:
            table.add_row(
                column, _marked(str(task.given[column]), True, colours, "red" if column == "rejected" else "")
            )
    for column in ("answer", "mistake", "label", "tools", "dataset"):
        if column in task.given:
            table.add_row(column, Text(str(task.given[column]), style="red" if column == "mistake" else ""))
    return table


def _weighed(task: Task, train_on: str) -> tuple[list[Any], list[float]]:
    """The messages of a task, and what each counts where its demonstration is trained on.

    Replies of the prompt do not count: the reply to it alone is trained on, unless the whole conversation is given.
    """
    from burnish.models.conversation import message_weights

    prompt = [{"role": "prompt", "content": task.prompt}] if isinstance(task.prompt, str) else list(task.prompt)
    if len(prompt) == 1:
        prompt = [{**prompt[0], "role": "prompt"}]
    prompt = [message for message in prompt if message["content"] or message.get("tool_calls")]
    if "demo" not in task.given:
        return prompt, [0.0] * len(prompt)
    if "messages" in task.given:
        messages = list(task.given["messages"])
        return messages, message_weights(messages, train_on)
    before = 1.0 if train_on == "everything" else 0.0
    return [*prompt, {"role": "assistant", "content": task.given["demo"]}], [*[before] * len(prompt), 1.0]


def _call(call: dict[str, Any]) -> str:
    return f"{call['function']['name']}({json.dumps(call['function']['arguments'], ensure_ascii=False)})"


def _marked(text: str, trained: bool, colours: bool, colour: str = "") -> Text:
    if not trained:
        return Text(text, style="bold")
    return Text(text, style=colour or "green") if colours else Text(f"{MARKS[0]}{text}{MARKS[1]}")


def _rendered(task: Task, chat: Chat, train_on: str, console: Console) -> None:
    """A task as the model reads it, with what is trained on marked: its demonstration, and each reply of a pair."""
    from burnish.models.chat_pictures import spelled_out
    from burnish.models.conversation import Piece
    from burnish.rollout.demonstrated import demonstration

    prompt = Piece(chat.prompt(task), 0.0)
    samples = [("", pieces) for pieces in demonstration(task, chat, train_on)] if "demo" in task.given else []
    samples += [
        (f"{column}: ", [prompt, Piece(chat.reply(str(task.given[column])), 1.0)])
        for column in ("chosen", "rejected")
        if column in task.given
    ]
    if not samples:
        console.print(Text(f"{len(prompt.tokens)} tokens; a reply is sampled after them", style="dim"))
        samples = [("", [prompt])]
    for name, pieces in samples:
        sizes = [(len(piece.tokens), bool(piece.weight)) for piece in pieces]
        trained = sum(size for size, counts in sizes if counts)
        if trained:
            console.print(Text(f"{name}{sum(size for size, _ in sizes)} tokens, {trained} trained on", style="dim"))
        text = Text()
        for piece in pieces:
            said = spelled_out(chat.tokenizer, piece.tokens)
            colour = "red" if name.startswith("rejected") else ""
            text.append(_marked(said, bool(piece.weight), console.is_terminal, colour))
        console.print(text, soft_wrap=True)
