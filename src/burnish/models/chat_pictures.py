"""Pictures in what a chat template renders.

A template of a model that sees takes parts and writes the model's own placeholder where a picture stands; one that
takes text gets a mark there, which becomes the placeholder after rendering. The placeholder's token is then replaced by
the tokens of the picture, once (media/processor.py). A placeholder that a user spells stays plain text, as every
control token does.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from burnish.core.messages import IMAGE, Message, pictures_of, text_of
from burnish.core.task import Task
from burnish.core.tokenizer import Tokenizer
from burnish.forward.sight import sight_of
from burnish.media.decode import drawn_example, has_pillow
from burnish.media.drawn import given
from burnish.media.ids import FIRST, ids_of, media_in, runs_of
from burnish.media.processor import PictureReader
from burnish.media.store import STORE, TEXT_ONLY, Ready
from burnish.models.template import Template

_SAID = "\u2042a\u2042"


def shows_pictures(task: Task) -> bool:
    """Whether a task's prompt has pictures."""
    return not isinstance(task.prompt, str) and bool(pictures_of(task.prompt))


class ChatPictures:
    """Pictures of one chat: how its template gets them. reader: None where the model reads text alone.

    draws: height and width of the pictures that replies are; None: they are words
    """

    def __init__(self, reader: PictureReader | None = None) -> None:
        self.reader = reader
        self.mark = f"picture{secrets.token_hex(12)}e"  # no text can name what it does not know
        self._by_parts: dict[str, bool] = {}  # by template, whether it takes parts
        self.draws: tuple[int, int] | None = None

    def drawn(self, text: str) -> Tensor | None:
        """The one token of a picture that a reply of the data is; None for a model that writes words.

        It is in no cache of texts: this process must have read the picture.
        """
        return None if self.draws is None else torch.from_numpy(ids_of(given(text, *self.draws), 1))

    def with_parts(self, template: Template) -> Template:
        """The template, which from now on is given parts if it takes nothing else."""
        if self.reader is not None:
            message = {"role": "user", "content": _SAID}
            template.parts = _SAID not in _rendered(template, message) and _SAID in _rendered(
                template, {**message, "content": [{"type": "text", "text": _SAID}]}
            )
        return template

    def takes_parts(self, template: Template) -> bool:
        """Whether a template writes the placeholder of a part that is a picture."""
        assert self.reader is not None
        if template.text not in self._by_parts:
            asked = {"role": "user", "content": [{"type": IMAGE}, {"type": "text", "text": _SAID}]}
            self._by_parts[template.text] = self.reader.placeholder in _rendered(template, asked)
        return self._by_parts[template.text]

    def told(self, message: Message, template: Template | None) -> Message:
        """A message as its template takes it. template: None where there is none."""
        content = message.get("content")
        if content is None or isinstance(content, str):
            return message
        if not pictures_of([message]):
            return {**message, "content": text_of(message)}
        if self.reader is None:
            raise ValueError(TEXT_ONLY)
        if message.get("role") == "assistant":
            raise ValueError("a message of the assistant has a picture, and models that write pictures are not known")
        if template is not None and self.takes_parts(template):
            return {
                **message,
                "content": [dict(part) if part["type"] == "text" else {"type": IMAGE} for part in content],
            }
        return {**message, "content": "".join(p["text"] if p["type"] == "text" else self.mark for p in content)}

    def lines(self, messages: Sequence[Message]) -> str:
        """Messages one after the other, for a model without a template."""
        return "\n".join(text_of(self.told(message, None)) for message in messages)

    def placed(self, rendered: str) -> str:
        """A rendered text with the model's placeholder for each mark."""
        return rendered if self.reader is None else rendered.replace(self.mark, self.reader.placeholder)

    def seen(self, ids: Tensor, messages: Sequence[Message]) -> Tensor:
        """The ids of a conversation, with the tokens of its pictures in place of their placeholders."""
        references = pictures_of(messages)
        if not references:
            return ids
        if self.reader is None:
            raise ValueError(TEXT_ONLY)
        return torch.tensor(self.reader.spliced(ids.tolist(), references), dtype=torch.long)

    def pieces(self, pieces: Sequence[Tensor], messages: Sequence[Message]) -> list[list[tuple[Tensor, bool]]]:
        """Of each piece of a conversation, its tokens cut where a picture begins or ends; whether each part is text.

        A picture is read and never written, so its tokens cannot be trained on.
        """
        references = pictures_of(messages)
        if not references:
            return [[(piece, True)] for piece in pieces]
        if self.reader is None:
            raise ValueError(TEXT_ONLY)
        counts = [int((piece == self.reader.marker).sum()) for piece in pieces]
        if sum(counts) != len(references):
            self.reader.spliced(torch.cat(list(pieces)).tolist(), references)  # which says what is wrong
        given = iter(references)
        return [
            _cut(torch.tensor(self.reader.spliced(piece.tolist(), [next(given) for _ in range(count)])))
            for piece, count in zip(pieces, counts, strict=True)
        ]

    def shown_to(self, *modules: nn.Module) -> Ready | None:
        """The example for a model (and its compute copy), which from now on takes the pictures of this processor alone;
        None where it does not see.
        """
        example = self.example() if sight_of(modules[0]) is not None else None
        for sight in map(sight_of, modules):
            if sight is not None and example is not None:
                sight.reader = example.reader
        return example

    def example(self) -> Ready | None:
        """A small picture as the model reads it, by which its forward is checked; None without a decoder."""
        return None if self.reader is None or not has_pillow() else self.reader.read(STORE.keep(drawn_example()))

    def encoded(self, text: str, first: Callable[[str], Tensor], rest: Callable[[str], Tensor]) -> Tensor | None:
        """The ids of a text with marks, by functions for what stands before and after the first one; None without."""
        stretches = text.split(self.mark)
        if len(stretches) == 1:
            return None
        assert self.reader is not None
        mark = torch.tensor([self.reader.marker])
        return torch.cat([first(stretches[0]), *(part for one in stretches[1:] for part in (mark, rest(one)))])


def _cut(tokens: Tensor) -> list[tuple[Tensor, bool]]:
    text = tokens < FIRST
    changes = torch.nonzero(text[1:] != text[:-1])[:, 0] + 1
    parts = tokens.tensor_split(changes.tolist())
    return [(part, not len(part) or int(part[0]) < FIRST) for part in parts]


def _rendered(template: Template, message: Message) -> str:
    """What a template makes of one message; nothing where it fails."""
    try:
        return template.render([message], generation=False)
    except ValueError:
        return ""


def with_sizes(tokens: Tensor) -> list[Tensor | str]:
    """A row cut at its pictures, each of which is given by its size and its number of tokens."""
    runs = runs_of(tokens.numpy()) if media_in(tokens) else []
    parts: list[Tensor | str] = []
    last = 0
    for run in runs:
        first, end = int(run.at[0]), int(run.at[-1]) + 1
        width, height = STORE.of(run.key).size
        parts += [tokens[last:first], f"[picture {width}x{height}: {len(run.at)} tokens]"]
        between = tokens[first:end]
        parts += [between[between < FIRST]] if end - first > len(run.at) else []
        last = end
    return [*parts, tokens[last:]]


def spelled_out(tokenizer: Tokenizer, tokens: Tensor) -> str:
    """What tokens read as, special ones included; a picture by its size and its number of tokens."""
    return "".join(
        part if isinstance(part, str) else tokenizer.decode(part.tolist(), skip_special_tokens=False)
        for part in with_sizes(tokens)
    )
