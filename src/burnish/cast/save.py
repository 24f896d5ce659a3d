"""From a model to a directory that transformers loads."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from burnish.cast.chat import Chat
from burnish.cast.lora import is_lora, merged


def save_directory(
    model: nn.Module, chat: Chat, path: Path, *, merge: bool = False, weights: dict[str, Tensor] | None = None
) -> None:
    """The model (or its adapters; merge=True adds them into the weights) and the tokenizer.

    weights: what to save in place of the model's present weights.
    """
    whole = merged(model) if merge and is_lora(model) else model
    whole.save_pretrained(path, state_dict=weights)  # type: ignore[operator]
    for name, content in chat.files.items():
        (path / name).write_bytes(content)
