"""Which token of a conversation a scoring model's number is read at, in burnish and in transformers.

Sequence classification in transformers reads a row at the last token that is not padding, and its users give it what
the chat template writes of a conversation. burnish trains a scoring model at the token that ends the reply. Two habits
of model directories take these apart: padding is often the token that ends a reply, which transformers then skips; and
many templates write a line end after it (ChatML), which is then read in its place. So

- a model that burnish trains gets a padding token that ends no reply, and its template stops at the end of a last reply
- any other model is read where transformers reads it: after what its own template writes, before padding
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from burnish.core.roles import Role
from burnish.core.tokenizer import Tokenizer
from burnish.forward.module import bare, vocabulary_size
from burnish.models.chat import Chat
from burnish.models.chat_style import use_template
from burnish.models.known_models import is_adapter
from burnish.models.load import load_chat
from burnish.models.template import Style


def settle_end(module: nn.Module, chat: Chat, role: Role, path: Path, style: Style | None) -> None:
    """Settle the token that a scoring model is read at. path: its directory; style: the run's chat template.

    Adapters have no config.json: their tokenizer names the padding that they were trained with.
    """
    config: Any = bare(module).config
    padding = chat.tokenizer.pad_token_id
    if role.liveness == "frozen":
        own = chat if style is None or style.template is None else load_chat(path)
        chat.padding = padding if is_adapter(path) else config.pad_token_id
        chat.tail = chat.encode_rendered(after_turn(own), own.turn_end[0], False) if after_turn(own) else None
        return
    special = [padding, *chat.tokenizer.all_special_ids]
    fit = [token for token in special if token is not None and token < vocabulary_size(module)]
    config.pad_token_id = next((token for token in fit if token not in chat.stops), None)
    if config.pad_token_id not in (None, padding):
        _pad_with(chat.tokenizer, config.pad_token_id)
    if after := after_turn(chat):
        use_template(chat.tokenizer, ending_with_the_turn(chat.template.text, chat.turn_end[0], after))


def after_turn(chat: Chat) -> str:
    """What a template writes after the end of the last reply."""
    end = chat.turn_end[0]
    return chat.after_last.removeprefix(end) if end and not chat.assumed and chat.after_last.startswith(end) else ""


def ending_with_the_turn(template: str, end: str, after: str) -> str:
    """The same template without what it writes after the end of a last reply: `after`, behind `end`.

    The empty expressions keep Jinja from taking the template's own line ends for those of the tags around it.
    """
    whole = "{%- set conversation_ %}{{ '' }}" + template.removesuffix("\n") + "{{ '' }}{% endset %}"
    last = "not add_generation_prompt and messages and messages[-1]['role'] == 'assistant'"
    cut = f"{{{{ conversation_[:-{len(after)}] }}}}"
    return (
        f"{whole}{{%- if {last} and conversation_.endswith({json.dumps(end + after)}) %}}{cut}"
        "{%- else %}{{ conversation_ }}{%- endif %}"
    )


def _pad_with(tokenizer: Tokenizer, token: int) -> None:
    """Give a tokenizer another of its special tokens as padding, for its files: burnish itself never pads texts."""
    text = tokenizer.decode([token])
    if hasattr(tokenizer, "use_padding"):
        tokenizer.use_padding(text)
    else:
        plain: Any = tokenizer
        plain.pad_token = text
