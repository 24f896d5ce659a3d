"""The default of --max-new-tokens: as long as the task's own replies, within the model's context.

A dataset with replies (demonstrations, preferences, worked answers) asks for replies of that length; one with prompts
alone, or with short final answers, does not say how long a reply is, and a model needs room to work. The tasks in the
box, and games, are short.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from burnish.core.messages import shown
from burnish.core.task import Task
from burnish.models.chat import Chat
from burnish.models.load import load_chat, stored_context
from burnish.models.template import Style
from burnish.tasks.resolve import datasets_of
from burnish.tasks.source import Source

SHORT = 64  # of the tasks in the box
UNKNOWN = 256  # where the data do not say
ROWS = 128  # rows of a dataset that are read, evenly spread
SLACK = 1.25  # a model says the same in more words
BLOCK = 64  # lengths are multiples of it
BRIEF = 24  # tokens of an answer that is no worked reply


def reply_length(source: Source, base: Path, style: Style | None = None) -> int:
    """The longest reply of a run that does not say, in tokens."""
    datasets = datasets_of(source)
    if not datasets or "env" in source.gives:
        return SHORT
    chat = _chat(base, style)
    tasks = [task for dataset in datasets for task in _spread(dataset)]
    replies = max((_tokens(text, chat) for task in tasks for text in _replies(task)), default=0)
    answers = max((_tokens(str(task.given.get("answer") or ""), chat) for task in tasks), default=0)
    longest = replies or (answers if answers > BRIEF else 0)
    wanted = -(-int(SLACK * longest) // BLOCK) * BLOCK if longest else UNKNOWN
    prompt = max((_tokens(_prompt(task), chat) for task in tasks), default=0)
    context = stored_context(base)
    return max(1, min(max(SHORT, wanted), max(SHORT, (context - prompt - BLOCK) // BLOCK * BLOCK), context // 2))


def _chat(base: Path, style: Style | None) -> Chat | None:
    """The tokenizer; None where there is none yet (`burnish plan` needs a config.json alone)."""
    try:
        return load_chat(base, style)
    except ValueError:
        return None


def _tokens(text: str, chat: Chat | None) -> int:
    """The tokens of a text; without a tokenizer a third of its bytes."""
    return len(chat.plain(text)) if chat is not None else len(text.encode(errors="replace")) // 3


def _spread(source: Source) -> Iterator[Task]:
    split = "train" if source.size("train") else "heldout"
    size = source.size(split) or 0
    for i in range(min(size, ROWS)):
        yield source.task(split, i * size // min(size, ROWS))


def _replies(task: Task) -> Iterator[str]:
    """The replies that a row gives; of a conversation each reply is one."""
    for column in ("demo", "chosen", "rejected"):
        if isinstance(said := task.given.get(column), str):
            yield said
    yield from (str(said) for said in task.given.get("responses") or ())
    for message in task.given.get("messages") or ():
        if message["role"] == "assistant":
            yield shown(message)


def _prompt(task: Task) -> str:
    return task.prompt if isinstance(task.prompt, str) else "\n".join(map(shown, task.prompt))
