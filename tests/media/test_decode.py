"""Pictures that are wrong, or unusual: refused in a sentence before they are decoded, or read as they look."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from burnish.media import decode
from burnish.media.decode import BadPicture, decoded, size_of


def _file(picture: Image.Image, kind: str = "PNG", **how: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **how)
    return file.getvalue()


def _flat(mode: str, colour: object, size: tuple[int, int] = (4, 4)) -> Image.Image:
    return Image.new(mode, size, colour)  # type: ignore[arg-type]


def _bomb() -> bytes:
    """A PNG of 100,000 x 100,000 pixels in a few bytes: 30 GB if it were decoded."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def _animated() -> bytes:
    frames = [_flat("RGB", colour) for colour in ("red", "blue", "green")]
    return _file(frames[0], "GIF", save_all=True, append_images=frames[1:])


PNG = _file(Image.fromarray(np.arange(4800, dtype=np.uint8).reshape(40, 40, 3)))
WRONG = {
    "empty": (b"", "is empty"),
    "text": (b"no picture at all", "is no picture in a format that is read"),
    "cut off": (PNG[: len(PNG) // 2], "damaged or cut off"),
    "svg": (b'<?xml version="1.0"?><svg/>', "SVG drawing, which is not rendered; export it as PNG"),
    "bomb": (_bomb(), "more than 50,000,000 pixels"),
    "animated": (_animated(), r"is animated \(3 frames\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_refused_in_a_sentence(name: str) -> None:
    raw, why = WRONG[name]
    with pytest.raises(BadPicture, match=why):
        decoded(raw)


def test_a_file_that_is_too_long_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "MOST_BYTES", 100)
    for read in (decoded, size_of):
        with pytest.raises(BadPicture, match="is the most; make it smaller"):
            read(PNG)


def _pixel(raw: bytes, at: tuple[int, int] = (0, 0)) -> tuple[int, ...]:
    picture = decoded(raw)
    assert picture.mode == "RGB"
    return tuple(np.asarray(picture)[at[1], at[0]].tolist())


def test_unusual_files_are_read_as_they_look() -> None:
    assert _pixel(_file(_flat("RGB", (1, 2, 3), (1, 1)))) == (1, 2, 3)
    assert _pixel(_file(_flat("L", 0))) == (0, 0, 0)
    assert _pixel(_file(_flat("CMYK", (0, 255, 255, 0)), "TIFF")) == (255, 0, 0)
    assert _pixel(_file(_flat("RGBA", (9, 9, 9, 0)))) == (255, 255, 255)  # a clear place is white, not what is below it
    deep = Image.fromarray(np.full((4, 4), 32896, dtype=np.uint16))
    assert _pixel(_file(deep)) == (128, 128, 128)  # 32896 / 257; Pillow's own conversion gives 255
    palette = _flat("RGB", (10, 200, 30)).convert("P", palette=Image.Palette.ADAPTIVE)
    assert _pixel(_file(palette, "GIF")) == (10, 200, 30)


def test_the_rotation_that_a_camera_notes_is_applied() -> None:
    picture = Image.new("RGB", (4, 2), "white")
    picture.putpixel((0, 0), (255, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise: the upper left corner becomes the upper right
    raw = _file(picture, "PNG", exif=exif)
    assert decoded(raw).size == (2, 4) and _pixel(raw, (1, 0)) == (255, 0, 0)


def test_deep_values_beyond_sixteen_bits_are_white() -> None:
    """Pillow's mode I has 32 bits: 65535 is 255, and so is all above it; below 0 it is black."""
    deep = Image.fromarray(np.array([[0, 257, 65535, 70000, -5]], dtype=np.int32))
    assert decode._rgb(deep).tobytes()[::3] == bytes([0, 1, 255, 255, 0])
