"""Small copies of pictures, for people to look at."""

from __future__ import annotations

import io

from burnish.media import drawn, png
from burnish.media.decode import BadPicture, decoded, has_pillow
from burnish.media.store import STORE

SIDE = 96  # pixels of the longer side


def drawn_thumbnail(key: int) -> bytes | None:
    """The same of a picture that a model drew, by its key; None where it is not at hand. It takes no library."""
    pixels = drawn.drawn_pixels(key)
    if pixels is None:
        return None
    longest = max(pixels.shape[:2])
    times, skip = max(1, SIDE // longest), -(-longest // SIDE)
    return png.written(pixels[::skip, ::skip].repeat(times, 0).repeat(times, 1))


def thumbnail(reference: str) -> bytes | None:
    """A PNG of at most SIDE pixels a side; None where the picture is not at hand any more.

    Small pictures become whole multiples of their size, so that what is drawn of a few pixels stays sharp.
    """
    if not has_pillow():
        return None
    from PIL import Image

    try:
        picture = decoded(STORE.raw(reference))
    except (OSError, ValueError, BadPicture):
        return None
    longest = max(picture.size)
    if longest <= SIDE // 2:
        times = SIDE // longest
        picture = picture.resize((picture.width * times, picture.height * times), Image.Resampling.NEAREST)
    elif longest > SIDE:
        picture.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()
