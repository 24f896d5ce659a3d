"""Chat messages: {"role": ..., "content": ...}, where content is text or a list of parts.

    {"role": "user", "content": "2 + 2?"}
    {"role": "user", "content": [{"type": "text", "text": "2 + 2?"}]}
    {"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text": "What is it?"}]}
    {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {...}}]}
    {"role": "tool", "name": "calculator", "content": "4"}

`check_message` is the one place that knows which parts there are; a Task checks its messages when it is made.
Everything behind it asks `text_of` for a message's text, or changes a message by `prepended` and `appended`, which keep
its parts and its other keys. A picture's value is a reference: the path of a file, or what media/store.py made of bytes
that came inside a row. A further kind of part needs an entry in PARTS and, in models/chat.py, its tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]
IMAGE = "image"
PARTS = {"text": str, IMAGE: str}  # type of a part -> type of its value, which stands under the key of the same name


def as_messages(said: str | Sequence[Message]) -> tuple[Message, ...]:
    """A prompt or an observation as messages: text is a user's."""
    return ({"role": "user", "content": said},) if isinstance(said, str) else tuple(said)


def well_formed(value: Any) -> Any:
    """The same value with "?" for lone surrogates in its texts: they are no characters, and no tokenizer encodes them.

    Python has them in text that is not UTF-8 (names of files, output that was decoded with surrogateescape), JSON in
    escapes such as \\ud800.
    """
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {well_formed(key): well_formed(one) for key, one in value.items()}
    return type(value)(map(well_formed, value)) if type(value) in (list, tuple) else value


def check_message(message: object) -> None:
    """Raise ValueError, in one sentence, if this is not a message that burnish can read."""
    if not isinstance(message, Mapping):
        raise ValueError(f"a message is {str(message)[:80]!r}; it must be a mapping with 'role' and 'content'")
    content = message.get("content")
    if isinstance(content, str) or (content is None and message.get("tool_calls")):
        return
    if not isinstance(content, list | tuple):
        raise ValueError(
            f"the content of a message is {str(content)[:80]!r}; it must be text or a list of parts such as "
            '{"type": "text", "text": "..."}'
        )
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(kind, str) or kind not in PARTS:
            raise ValueError(
                f"a message has a part of type {str(kind)[:40]!r}, which cannot be read; the types are "
                f"{', '.join(PARTS)}: leave the part out or write it as text"
            )
        if not isinstance(part.get(kind), PARTS[kind]):
            raise ValueError(f"a message has a part of type {kind!r} without {kind!r}; add it or leave the part out")


def text_of(message: Message) -> str:
    """The text of a message: its content, or its text parts one after the other; "" where it has none."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content or () if part["type"] == "text")


def pictures_of(messages: Sequence[Message]) -> list[str]:
    """The references of the pictures in messages, in order."""
    contents = (message.get("content") for message in messages)
    parts = (part for content in contents if isinstance(content, list | tuple) for part in content)
    return [str(part[IMAGE]) for part in parts if part["type"] == IMAGE]


def seen(message: Message) -> str:
    """The text of a message with its pictures by the names of their files."""
    content = message.get("content")
    if not isinstance(content, list | tuple):
        return text_of(message)
    return "".join(part["text"] if part["type"] == "text" else f"[{part[IMAGE]}]" for part in content)


def shown(message: Message) -> str:
    """A message for people to read: its text, pictures by the names of their files, and its tool calls as JSON."""
    calls = [json.dumps(call, ensure_ascii=False, default=str) for call in message.get("tool_calls") or ()]
    return "\n".join(piece for piece in (seen(message), *calls) if piece)


def prompt_shown(prompt: str | Sequence[Message]) -> str:
    """A prompt as text: one line "role: content" per message, or the content alone of a single message."""
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return shown(prompt[0])
    return "\n".join(f"{message['role']}: {shown(message)}" for message in prompt)


def prepended(message: Message, text: str) -> Message:
    """The message with a text before its content."""
    content = message.get("content")
    parts = [{"type": "text", "text": text}, *(content or ())] if not isinstance(content, str) else text + content
    return {**message, "content": parts}


def appended(message: Message, text: str) -> Message:
    """The message with a text after its content."""
    content = message.get("content")
    parts = [*(content or ()), {"type": "text", "text": text}] if not isinstance(content, str) else content + text
    return {**message, "content": parts}
