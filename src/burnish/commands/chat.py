"""`burnish chat MODEL`: talk to a model. The conversation is kept as tokens: what was said is never tokenised again."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from burnish.commands.flags import read

if TYPE_CHECKING:
    from torch import Tensor

    from burnish.cast.member import Member


@dataclass(frozen=True)
class ChatOptions:
    """burnish chat MODEL: a conversation in the terminal; from a pipe, one message a line.

    MODEL is a name (burnish models) or a directory, for example runs/DIR/model.
    /reset starts over, /quit (or the end of input) leaves."""

    temperature: float = 0.7
    """The temperature of sampling; 0 is greedy."""
    max_new_tokens: int = 256
    """The longest reply, in tokens."""
    seed: int = 0
    """The same seed and the same messages give the same replies."""
    device: str = "auto"
    """cpu, cuda, or auto."""


@dataclass
class Conversation:
    """The turns so far, as tokens."""

    member: Member
    options: ChatOptions
    tokens: list[Tensor] = field(default_factory=list)

    def say(self, text: str) -> str:
        """Add a message, sample the reply, add it, and return what it says."""
        import torch

        from burnish.cast.local import Request
        from burnish.nouns import Task
        from burnish.randomness import key_of

        chat = self.member.chat
        asked = Task("question", ({"role": "user", "content": text},), {}, "chat")
        heard = [*self.tokens, chat.observation(text) if self.tokens else chat.prompt(asked)]
        prompt = torch.cat(heard)
        if len(prompt) >= self.member.context:
            raise ValueError(
                f"the conversation has {len(prompt)} tokens and the model reads {self.member.context}: /reset starts over"
            )
        key = key_of("chat", self.options.seed, len(heard))
        (reply,) = self.member.generate([Request(prompt, key, self.options.max_new_tokens, self.options.temperature)])
        closing = torch.tensor([chat.stops[-1]] if reply.stopped == "length" else [], dtype=torch.long)
        self.tokens = [*heard, reply.tokens, closing]
        return chat.text(reply.tokens)


def main(words: list[str]) -> int:
    asked = read(ChatOptions, "chat", words, plain=1)
    if asked is None:
        return 0
    models, options = asked
    if not models:
        raise ValueError("say which model to talk to: burnish chat tiny, or burnish chat runs/DIR/model")
    if options.max_new_tokens < 1:
        raise ValueError(f"--max-new-tokens is {options.max_new_tokens}; it must be at least 1")
    from burnish.commands.member import alone
    from burnish.step import Settings

    talk = Conversation(alone(models[0], Settings(), options.device)["policy"], options)
    console, errors = Console(highlight=False), Console(stderr=True, highlight=False)
    if console.is_terminal and sys.stdin.isatty():
        console.print(Text.assemble((models[0], "bold cyan"), (f", temperature {options.temperature:g}. /reset starts over, /quit leaves.", "dim")))  # fmt: skip
    for message in _messages(console):
        if message == "/quit":
            break
        if message == "/reset":
            talk.tokens = []
            continue
        try:
            console.print(Text(talk.say(message)), soft_wrap=True)
        except ValueError as error:
            errors.print(Text(str(error), style="yellow"), soft_wrap=True)
    return 0


def _messages(console: Console):  # noqa: ANN202 - a generator of str
    """What is typed, or what is piped, a line at a time; empty lines say nothing."""
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
