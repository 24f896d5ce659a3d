"""The chat template that a tokenizer is used with: its own, the one that a run asks for, or a plain one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from burnish.core.tokenizer import Tokenizer
from burnish.media.processor import PictureReader
from burnish.models.chat import Chat
from burnish.models.chat_pictures import ChatPictures
from burnish.models.template import NAMES, NONE, PLAIN, TEMPLATES, TOOLS, Style, plain_template, special_values
from burnish.models.tool_template import with_tools


def styled_chat(tokenizer: Tokenizer, style: Style, where: str, reader: PictureReader | None = None) -> Chat:
    """A tokenizer with the template, system prompt and options of a style. where: its directory, for messages. reader:
    the processor of a model that sees.
    """
    own = getattr(tokenizer, "chat_template", None)
    if isinstance(own, Mapping):  # several, by name
        own = own.get("default") or next(iter(own.values()))
    base, _, more = (style.template or "").rpartition("+") if style.template in NAMES else (style.template, "", "")
    tools = TOOLS in (style.template, more)
    named = (None if style.template == TOOLS else TEMPLATES.get(base or "", base)) if tools else style.template
    assumed = not own and named is None
    wanted = named or own or PLAIN
    if wanted == NONE:
        if style.system is not None or style.options is not None:
            raise ValueError(
                "--system-prompt and --template-option are written into a chat template, and --chat-template none "
                "asks for none; "
                "leave out one or the other"
            )
        text = None
    else:
        text = plain_template(_begins_with_bos(tokenizer)) if wanted == PLAIN else wanted
        text = style.applied(with_tools(text, special_values(tokenizer)) if tools else text)
    if text != getattr(tokenizer, "chat_template", None):
        use_template(tokenizer, text)
    chat = Chat(tokenizer, assumed=assumed)
    chat.pictures = ChatPictures(reader)
    chat.tool_parser = style.calls
    try:
        chat.check()
    except ValueError as error:
        raise ValueError(f"in {where}, {error}") from None
    if style.system is not None and chat.control.in_text(style.system):
        raise ValueError(
            "--system-prompt contains a control token of the model, and it becomes part of the chat template, where "
            "that would be "
            "more than text; leave it out"
        )
    return chat


def use_template(tokenizer: Tokenizer, template: str | None) -> None:
    """Give a tokenizer another chat template."""
    if hasattr(tokenizer, "use_template"):
        tokenizer.use_template(template)
    else:
        plain: Any = tokenizer
        plain.chat_template = template


def _begins_with_bos(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer begins every text with its bos token."""
    named = getattr(tokenizer, "named", {})
    if not (getattr(tokenizer, "bos_token", None) or named.get("bos_token")):
        return False
    return len(tokenizer.encode("a", add_special_tokens=True)) > len(tokenizer.encode("a", add_special_tokens=False))
