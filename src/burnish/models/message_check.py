"""Messages that a chat template cannot write: refused before it drops a part of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from burnish.core.messages import Message


def refuse_tool_calls(messages: Sequence[Message]) -> None:
    """Raise ValueError where a message has tool calls."""
    if any(message.get("tool_calls") for message in messages):
        raise ValueError(
            "a message has tool calls, but the chat template writes none; --chat-template tools adds them to the "
            "model's own, and --chat-template FILE takes another"
        )


def check_role(message: Mapping[str, object]) -> None:
    """Raise ValueError where a message has no role that templates have."""
    role = message.get("role")
    if not isinstance(role, str) or not role.replace("_", "").replace("-", "").isalnum():
        raise ValueError(
            f"a message has the role {str(role)[:40]!r}; roles are words such as system, user, assistant and tool"
        )
