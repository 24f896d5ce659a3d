"""The padding token of a scoring model, by which transformers finds the token whose score counts.

Sequence classification in transformers reads a row at the last token that is not padding. Many tokenizers pad with the
token that also ends a reply. transformers then reads the token before it, and burnish trains the end of the reply: one
model, two scores. So a model that burnish trains gets a padding token that ends no reply, and of any other model the
token is scored that transformers would score.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from burnish.forward.module import bare, vocabulary_size
from burnish.models.chat import Chat
from burnish.models.known_models import is_adapter
from burnish.roles import Role


def settle_padding(module: nn.Module, chat: Chat, role: Role, path: Path) -> None:
    """Set the padding token of a scoring model: a trained one gets one that ends no reply, in its files too.

    path: its directory. Adapters have no config.json: their tokenizer names the padding that they were trained with.
    """
    config, own = bare(module).config, chat.tokenizer.pad_token_id
    if role.liveness == "frozen":
        chat.padding = own if is_adapter(path) else config.pad_token_id
        return
    special = [own, *chat.tokenizer.all_special_ids]
    fit = [token for token in special if token is not None and token < vocabulary_size(module)]
    chosen = next((token for token in fit if token not in chat.stops), None)
    config.pad_token_id = chosen
    if chosen is not None and chosen != own:
        _pad_with(chat.tokenizer, chosen)


def _pad_with(tokenizer: Any, token: int) -> None:
    """Give a tokenizer another of its special tokens as padding, for its files: burnish itself never pads texts."""
    text = tokenizer.decode([token])
    if hasattr(tokenizer, "use_padding"):
        tokenizer.use_padding(text)
    else:
        tokenizer.pad_token = text
