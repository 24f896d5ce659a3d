"""PNG files of 8-bit RGB, written and read with zlib alone: what a model draws needs no library to be judged."""

from __future__ import annotations

import struct
import zlib

import numpy as np

from burnish.media.drawing import Pixels

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MOST = 1 << 24  # pixels of a picture that is read here
RGB8 = (8, 2, 0, 0, 0)  # bit depth, colours, compression, filters, interlacing


def written(pixels: Pixels) -> bytes:
    """[height, width, 3] as a file. No row is filtered."""
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), dtype=np.uint8), pixels.reshape(height, -1)], axis=1)
    parts = ((b"IHDR", struct.pack(">IIBBBBB", width, height, *RGB8)), (b"IDAT", zlib.compress(rows.tobytes(), 9)))
    return SIGNATURE + b"".join(_chunk(*part) for part in (*parts, (b"IEND", b"")))


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def read(raw: bytes) -> Pixels | None:
    """The pixels of such a file; None for any other one, which Pillow may read (media/decode.py)."""
    at, body = len(SIGNATURE), b""
    size: tuple[int, int] | None = None
    if not raw.startswith(SIGNATURE):
        return None
    while at + 12 <= len(raw):
        (length,) = struct.unpack_from(">I", raw, at)
        name, part = raw[at + 4 : at + 8], raw[at + 8 : at + 8 + length]
        if name == b"IHDR" and length == 13:
            width, height, *kind = struct.unpack(">IIBBBBB", part)
            size = (height, width) if tuple(kind) == RGB8 and 0 < height * width <= MOST else None
        elif name == b"IDAT":
            body += part
        at += 12 + length
    return None if size is None else _pixels(body, *size)


def _pixels(body: bytes, height: int, width: int) -> Pixels | None:
    wanted = height * (1 + 3 * width)
    try:
        plain = zlib.decompressobj().decompress(body, wanted + 1)
    except zlib.error:
        return None
    if len(plain) != wanted:
        return None
    rows = np.frombuffer(plain, dtype=np.uint8).reshape(height, 1 + 3 * width)
    return None if rows[:, 0].any() else rows[:, 1:].reshape(height, width, 3).copy()
