"""Pictures that a model drew, or that it is to learn to draw: as tokens of a reply, and as the text of one.

As text such a picture is a PNG file inside of it (data:image/png;base64,...): what a verifier or a reward function in
another process is given, what stands in records, and what a data file may hold (or the path of a file). As tokens it is
media ids (media/ids.py), which name its file; a sampled picture has one for each step that drew, a given one has one.
"""

from __future__ import annotations

import base64
import binascii
from functools import partial
from pathlib import Path

import numpy as np

from burnish.media import png
from burnish.media.decode import BadPicture, decoded
from burnish.media.drawing import Pixels
from burnish.media.store import STORE, Ready, digest

READER = "drawn"
BEGIN = "data:image/png;base64,"


def as_text(pixels: Pixels) -> str:
    """A picture as the text of a reply."""
    return BEGIN + base64.b64encode(png.written(pixels)).decode()


def pixels_in(text: str) -> Pixels | None:
    """The pixels of a picture that `as_text` wrote; None for any other text."""
    if not text.startswith(BEGIN):
        return None
    try:
        raw = base64.b64decode(text[len(BEGIN) :], validate=True)
    except (binascii.Error, ValueError):
        return None
    return png.read(raw)


def kept(pixels: Pixels) -> int:
    """Keep a picture; its key (media/ids.py)."""
    raw = png.written(pixels)
    reference = STORE.keep(raw)
    return STORE.ready(digest(raw), READER, partial(_made, reference)).key


def given(text: str, height: int, width: int) -> int:
    """Keep the picture that a reply of a data file is, by its text or the path of a file, as large as the model draws
    it; its key. ValueError for anything else.
    """
    pixels = pixels_in(text)
    if pixels is None or pixels.shape[:2] != (height, width):
        pixels = _decoded(text, height, width)
    return kept(pixels)


def _decoded(text: str, height: int, width: int) -> Pixels:
    try:
        if text.startswith("data:image/"):
            raw = base64.b64decode(text.partition(",")[2], validate=True)
        else:
            raw = Path(text.strip()).read_bytes()
        picture = decoded(raw)
    except (OSError, binascii.Error, ValueError) as error:
        why = f" ({error})" if isinstance(error, BadPicture) else ""
        raise ValueError(
            f"a reply is {text[:60]!r}, which is no picture{why}; the model draws, so its replies in the data are the "
            "paths of pictures or data:image/png;base64,..."
        ) from None
    if picture.size != (width, height):
        picture = picture.resize((width, height))
    return np.asarray(picture, dtype=np.uint8).copy()


def pixels_of(key: int) -> Pixels:
    """The picture with this key."""
    pixels: Pixels = STORE.of(key).inputs["pixels"].numpy()
    return pixels


def text_of(key: int) -> str | None:
    """The picture with this key as text; None where it is one that a model read, or not at hand."""
    pixels = drawn_pixels(key)
    return None if pixels is None else as_text(pixels)


def drawn_pixels(key: int) -> Pixels | None:
    """The picture with this key; None where it is one that a model read, or not at hand."""
    if not STORE.known(key):
        return None
    made = STORE.of(key)
    return made.inputs["pixels"].numpy() if made.reader == READER else None


def _made(reference: str) -> Ready:
    import torch

    from burnish.media.store import key_for

    raw = STORE.raw(reference)
    pixels = png.read(raw)
    assert pixels is not None, "a kept picture is a file of our own"
    inputs = {"pixels": torch.from_numpy(pixels)}
    return Ready(key_for(digest(raw), READER), (), 0, inputs, READER, (pixels.shape[1], pixels.shape[0]))
