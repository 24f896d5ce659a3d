"""What tokens read as, put together from what each of them reads as alone.

Every reply of a step is read before it can be scored, while the device waits; a tokenizer's own decoding takes four
times as long.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from burnish.core.tokenizer import Tokenizer
from burnish.media.drawn import text_of
from burnish.media.ids import has_media, runs_of, without_media
from burnish.media.processor import MARKER
from burnish.models.tokenizer import Tokens

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

JOINING = ("ByteLevel", "Fuse")  # decoders that lay the tokens end to end and do nothing else to them
REPLACEMENT = "\ufffd"  # how a decoder writes bytes that are half a character


class Detokenizer:
    """A tokenizer's texts, special tokens left out."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    def text(self, ids: npt.NDArray[np.int64]) -> str:
        """What the tokenizer makes of these tokens; it is asked itself where a character is spread over several of
        them.
        """
        try:
            joined = "".join(self.pieces[ids].tolist())
        except IndexError:  # tokens without pieces
            if has_media(ids):
                return self._with_pictures(ids)
            joined = REPLACEMENT
        return self.tokenizer.decode(ids.tolist(), skip_special_tokens=True) if REPLACEMENT in joined else joined

    def _with_pictures(self, ids: npt.NDArray[np.int64]) -> str:
        """The text between pictures. One that a model read is its marker; one that it drew is a PNG file."""
        runs = runs_of(ids)
        stretches = [self.text(without_media(part)) for part in np.split(ids, [int(run.at[0]) for run in runs])]
        marks = [text_of(run.key) or MARKER for run in runs]
        return stretches[0] + "".join(mark + text for mark, text in zip(marks, stretches[1:], strict=True))

    @cached_property
    def pieces(self) -> npt.NDArray[np.object_]:
        """What each token reads as alone; none where a text is more than its pieces. A moment's work, once."""
        inner = _joining(self.tokenizer)
        ids = range(0 if inner is None else inner.get_vocab_size())
        pieces = [] if inner is None else [inner.decode([token], skip_special_tokens=True) for token in ids]
        return np.array(pieces, dtype=object)


def _joining(tokenizer: Tokenizer) -> Backend | None:
    """The tokenizers library's own, if its texts are those of their tokens end to end, as far as each token is whole
    characters.
    """
    ours = isinstance(tokenizer, Tokens)
    inner: Backend | None = getattr(tokenizer, "inner" if ours else "backend_tokenizer", None)
    joins = inner is not None and (ours or _plain(tokenizer)) and type(inner.decoder).__name__ in JOINING
    return inner if joins else None


def _plain(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer of transformers adds nothing of its own."""
    from transformers import PreTrainedTokenizerFast as Plain

    plain: Any = tokenizer
    kind = type(plain)
    same = kind.decode is Plain.decode and kind._decode is Plain._decode
    return same and not plain.clean_up_tokenization_spaces
