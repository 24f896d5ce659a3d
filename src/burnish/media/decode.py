"""From the bytes of a picture file to pixels, within limits: what is too large is refused before it is decoded.

Pillow decodes, in a process of its own with limits on memory and time (media/decoder.py), and only the formats below,
which need no code or network of their own. The result is 8-bit RGB, and upright: the rotation that a camera notes
(EXIF) is applied, transparent places are white, 16-bit grey is scaled, CMYK is converted.
"""

from __future__ import annotations

import importlib.util
import io
import re
import warnings
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
MOST_BYTES = 64 << 20  # of a file
MOST_PIXELS = 50_000_000  # of a picture: 150 MB once it is decoded
DEEP = ("I", "I;16", "I;16B", "I;16L", "I;16N")  # Pillow's 16-bit modes, which its own conversion cuts off at 255


_DRAWN = re.compile(rb"P6 (\d{1,5}) (\d{1,5}) 255\n")  # as media/drawing.py writes it


class BadPicture(ValueError):
    """A picture that cannot be read. The message says what is wrong with it, without its name."""


def has_pillow() -> bool:
    """Whether pictures can be decoded."""
    return importlib.util.find_spec("PIL") is not None


def require_pillow() -> None:
    """Refuse, in one sentence, where they cannot."""
    if not has_pillow():
        raise ValueError("pictures are read with Pillow, which is not installed; pip install 'burnish[pictures]'")


def decoded(raw: bytes) -> Image:
    """The pixels of a picture file."""
    require_pillow()
    from PIL import Image

    from burnish.media.decoder import DECODER

    check_bytes(raw)
    drawn = _DRAWN.match(raw)
    if drawn is not None:  # what tasks draw: pixels as they are, which nothing decodes
        width, height = int(drawn[1]), int(drawn[2])
        if 0 < width * height <= MOST_PIXELS and len(raw) == drawn.end() + 3 * width * height:
            return Image.frombytes("RGB", (width, height), raw[drawn.end() :])
    return Image.frombytes("RGB", *DECODER.pixels(raw))


def size_of(raw: bytes) -> tuple[int, int]:
    """Width and height from the header; BadPicture where it is no picture, or too large."""
    require_pillow()
    from burnish.media.decoder import DECODER

    check_bytes(raw)
    return DECODER.size(raw)


def decoded_here(raw: bytes) -> Image:
    """The pixels of a picture file, decoded in this process: that of the decoder."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow's own, lower limit, and of odd metadata
            picture = Image.open(io.BytesIO(raw), formats=FORMATS)
            _check_size(picture)
            picture.load()
            return _rgb(ImageOps.exif_transpose(picture) or picture)
    except (BadPicture, MemoryError):
        raise
    except UnidentifiedImageError:
        raise BadPicture(f"is no picture in a format that is read ({', '.join(FORMATS)})") from None
    except Image.DecompressionBombError:
        raise BadPicture(f"has more than {MOST_PIXELS:,} pixels; make it smaller") from None
    except Exception as error:  # decoders of broken files raise all kinds
        why = (str(error).strip().partition("\n")[0] or type(error).__name__)[:100].rstrip(". ")
        raise BadPicture(f"cannot be decoded ({why}); the file is damaged or cut off") from None


def size_here(raw: bytes) -> tuple[int, int]:
    """Width and height from the header, read in this process: that of the decoder."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            picture = Image.open(io.BytesIO(raw), formats=FORMATS)
            _check_size(picture)
    except (BadPicture, MemoryError):
        raise
    except Exception:
        raise BadPicture(f"is no picture in a format that is read ({', '.join(FORMATS)})") from None
    return picture.size


def check_bytes(raw: bytes) -> None:
    """Refuse, without decoding, what is empty, too long, or an SVG drawing."""
    if not raw:
        raise BadPicture("is empty")
    if len(raw) > MOST_BYTES:
        raise BadPicture(f"has {len(raw) >> 20} MiB, and {MOST_BYTES >> 20} is the most; make it smaller")
    head = raw[:512].lstrip().lower()
    if head.startswith((b"<svg", b"<?xml", b"<!doctype svg")):
        raise BadPicture("is an SVG drawing, which is not rendered; export it as PNG")


def _check_size(picture: Image) -> None:
    """Refuse what is too large, or is more than one picture, by its header."""
    width, height = picture.size
    if width * height > MOST_PIXELS:
        raise BadPicture(f"has {width} x {height} pixels, and {MOST_PIXELS:,} is the most; make it smaller")
    frames = getattr(picture, "n_frames", 1)
    if frames > 1:
        raise BadPicture(f"is animated ({frames} frames), and one picture is read; save the frame that is meant")


def _rgb(picture: Image) -> Image:
    from PIL import Image

    if picture.mode in DEEP:
        deep = np.asarray(picture).astype(np.float64) / 257  # 65535 becomes 255
        picture = Image.fromarray(np.clip(np.rint(deep), 0, 255).astype(np.uint8), "L")
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        clear = picture.convert("RGBA")
        white = Image.new("RGBA", clear.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, clear).convert("RGB")
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def drawn_example() -> bytes:
    """A small picture in which no two places are alike, as a file."""
    from PIL import Image

    y, x = np.mgrid[0:48, 0:64]
    pixels = np.stack([4 * x, 5 * y, (x * y) % 251], -1).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels, "RGB").save(file, "PNG")
    return file.getvalue()
