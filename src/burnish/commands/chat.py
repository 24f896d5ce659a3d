"""`burnish chat MODEL`: talk to a model. The conversation is kept as tokens, and text is never tokenised twice."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from burnish.config.flags import read
from burnish.util.paths import expanded
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from torch import Tensor

    from burnish.core.messages import Message
    from burnish.engine.mixture import Mix
    from burnish.media.drawing import Pixels
    from burnish.models.model import Model


@dataclass(frozen=True)
class ChatOptions:
    """burnish chat MODEL: a conversation in the terminal; from a pipe, one message a line.

    MODEL is a name (burnish models) or a directory, for example runs/DIR/model.
    /image FILE shows it a picture, with the next message (docs/pictures.md). What a model draws becomes a PNG file.
    /reset clears the conversation, /quit (or the end of input) ends it."""

    temperature: float = 0.7
    """Sampling temperature; 0 is greedy."""
    max_new_tokens: int = 256
    """The longest reply, in tokens."""
    seed: int = 0
    """The same seed and the same messages give the same replies."""
    guide: str | None = None
    """Models that guide it token by token, with weights: a, or a*0.7,b*0.3 (docs/decoding.md)."""
    against: str | None = None
    """The model that those of --guide were tuned from: what tuning changed is added, not all that they say."""
    chat_template: str | None = None
    """The chat template: a file with a Jinja template, or chatml, plain, none or tools; by default the model's own."""
    system_prompt: str | None = None
    """The system message of conversations that have none; by default the one that the model was trained with."""
    template_option: str | None = None
    """Values for the chat template, key=value, several with commas: enable_thinking=false."""
    device: str = "auto"
    """cpu, cuda, or auto."""


@dataclass
class Conversation:
    """The tokens of all turns so far. others, mix: models that guide it, and how all of them are mixed. shown: files
    of pictures that stand before the next message. drawn: what the last reply is of a model that draws; captions: how
    many it has drawn.
    """

    model: Model
    options: ChatOptions
    tokens: list[Tensor] = field(default_factory=list)
    others: tuple[Model, ...] = ()
    mix: Mix | None = None
    shown: list[str] = field(default_factory=list)
    drawn: Pixels | None = None
    captions: int = 0

    def show(self, file: str) -> str:
        """Show a picture with the next message; its size and its number of tokens."""
        from burnish.media.store import TEXT_ONLY

        reader = self.model.chat.pictures.reader
        if reader is None:
            raise ValueError(TEXT_ONLY)
        ready = reader.read(str(expanded(file)))
        self.shown.append(str(expanded(file)))
        return f"{ready.size[0]} x {ready.size[1]} pixels, {ready.count} tokens"

    def say(self, text: str) -> str:
        """Append a message, sample and append the reply, and return its text."""
        import torch

        from burnish.commands.pictured import as_new_file
        from burnish.core.randomness import key_of
        from burnish.core.types import Task
        from burnish.engine.local import Request
        from burnish.media.drawn import pixels_in
        from burnish.models.reply_end import unwritten_end

        chat = self.model.chat
        said: Message = {"role": "user", "content": text}
        if self.shown:
            pictures = [{"type": "image", "image": file} for file in self.shown]
            said = {**said, "content": [*pictures, {"type": "text", "text": text}]}
        task = Task("question", (said,), {}, "chat")
        turns = [*self.tokens, chat.observation((said,)) if self.tokens else chat.prompt(task)]
        prompt = torch.cat(turns)
        if len(prompt) >= self.model.context:
            raise ValueError(
                f"the conversation has {len(prompt)} tokens and the model's context holds {self.model.context}: "
                "/reset clears it"
            )
        key = key_of("chat", self.options.seed, len(turns) + self.captions)
        asked = Request(prompt, key, self.options.max_new_tokens, self.options.temperature)
        (reply,) = self.model.generate([asked], self.others, self.mix)
        self.shown = []
        text = chat.text(reply.tokens)
        self.drawn = pixels_in(text)
        if self.drawn is not None:  # such a model reads a caption, and no conversation
            self.captions += 1
            return f"{as_new_file(self.drawn, Path.cwd())} ({self.drawn.shape[1]} x {self.drawn.shape[0]} pixels)"
        self.tokens = [*turns, reply.tokens, unwritten_end(chat, reply.tokens)]
        return text


def main(words: list[str]) -> int:
    asked = read(ChatOptions, "chat", words, plain=1)
    if asked is None:
        return 0
    models, options = asked
    if not models:
        raise ValueError("say which model to talk to: burnish chat tiny, or burnish chat runs/DIR/model")
    if options.max_new_tokens < 1:
        raise ValueError(f"--max-new-tokens is {options.max_new_tokens}; it must be at least 1")
    from burnish.commands.guiding import read_guides
    from burnish.commands.loaded import load_policy, print_assumed_template
    from burnish.core.step import Settings
    from burnish.models.template import Style, read_template

    style = Style(read_template(options.chat_template), options.system_prompt, options.template_option)
    guides = read_guides(options.guide, options.against)
    loaded = load_policy(models[0], Settings(), options.device, style, more=guides.models)
    guides.check(loaded)
    conversation = Conversation(loaded["policy"], options)
    if guides.blend is not None:
        conversation.others = tuple(loaded[name] for name in guides.blend.others)
        conversation.mix = guides.blend.mix
    console, errors = stdout_console(), Console(stderr=True, highlight=False)
    print_assumed_template(conversation.model.chat, errors)
    if console.is_terminal and sys.stdin.isatty():
        hint = f", temperature {options.temperature:g}. /reset clears the conversation, /quit ends it."
        console.print(Text.assemble((models[0], "bold cyan"), (hint, "dim")))
    for message in _messages(console):
        if message == "/quit":
            break
        if message == "/reset":
            conversation.tokens, conversation.shown = [], []
            continue
        try:
            if message.startswith("/image "):
                console.print(Text(conversation.show(message.removeprefix("/image ").strip()), style="dim"))
                continue
            said = Text(conversation.say(message))
            if conversation.drawn is not None and console.is_terminal:
                from burnish.commands.pictured import in_blocks

                console.print(in_blocks(conversation.drawn), end="")
            console.print(said, soft_wrap=True)
        except ValueError as error:
            errors.print(Text(str(error), style="yellow"), soft_wrap=True)
    return 0


def _messages(console: Console) -> Iterator[str]:
    """Yield the lines that are typed or piped in, without empty ones."""
    if not sys.stdin.isatty():
        yield from (line.strip() for line in sys.stdin if line.strip())
        return
    import readline  # noqa: F401 - arrow keys and history at the prompt

    while True:
        try:
            message = console.input("[bold cyan]>[/] ").strip()
        except (EOFError, KeyboardInterrupt):
            console.print()
            return
        if message:
            yield message
