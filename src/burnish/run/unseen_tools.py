"""Tools whose schemas the policy never sees, because its chat template has no place for them."""

from __future__ import annotations

from dataclasses import replace

import torch

from burnish.models.chat import Chat
from burnish.tasks.source import Source


def unseen_tools(source: Source, chat: Chat) -> str:
    """A warning where the first task has tools and its prompt is the same without them; else empty."""
    if not source.gives & {"env", "tools"} or source.size("train") == 0:
        return ""
    task = source.task("train", 0)
    if not task.given.get("tools"):
        return ""
    bare = replace(task, given={key: value for key, value in task.given.items() if key != "tools"})
    if not torch.equal(chat.prompt(task), chat.prompt(bare)):
        return ""
    return (
        "the tasks have tools, and the chat template does not write them: the model is not told their names; "
        "--chat-template tools adds them to the model's own, or describe them in --system-prompt"
    )
