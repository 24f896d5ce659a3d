"""Where a reply begins: what a chat template writes between the last message and the words of a reply.

A prompt ends with the template's generation prompt, after which a sample begins. A demonstration must begin there too,
and three kinds of templates differ in it:

- most write the same before a reply as for generation ("<|im_start|>assistant\\n"): the reply is its text;
- those of reasoning models open the thoughts in the generation prompt ("<|im_start|>assistant\\n<think>\\n"): a
  demonstration that begins with "<think>" would open them twice, so the tag is not written again;
- some have no generation prompt: the model writes the header of its message itself, and a demonstration has it too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Around:
    """What a template writes before and after a reply in the middle of a conversation, and after the last one."""

    before: str
    after: str
    last: str


@dataclass(frozen=True)
class ReplyStart:
    """header: what a reply begins with before its text; opened: the beginning of a reply that the prompt holds."""

    header: str = ""
    opened: str = ""

    def text(self, reply: str) -> str:
        """What of a reply is written after the prompt (and the header)."""
        tag = self.opened.strip()
        if not tag or not reply.lstrip().startswith(tag):
            return reply
        rest = reply.lstrip()[len(tag) :]
        space = self.opened[len(self.opened.rstrip()) :]
        return rest.removeprefix(space) if rest.startswith(space) else rest.lstrip("\n")


def reply_start(render: Callable[[bool], str], written: str, has_control: Callable[[str], bool]) -> ReplyStart:
    """How replies begin.

    render       the prompt of one message; True: for generation
    written      what the template writes before the text of a reply to that message
    has_control  whether a text holds a control token
    """
    prompt = render(True)
    if prompt.startswith(written):
        return ReplyStart(opened=prompt[len(written) :])
    header = written.removeprefix(prompt)
    if header != written and prompt == render(False) and has_control(header):
        return ReplyStart(header=header)
    return ReplyStart()
