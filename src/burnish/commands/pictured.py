"""Pictures that a model drew, in the terminal and as files."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from burnish.media import png
from burnish.media.drawing import Pixels

WIDEST = 64  # columns


def in_blocks(pixels: Pixels) -> Text:
    """A picture as half blocks, two rows of pixels in a line; a wide one is thinned."""
    skip = -(-pixels.shape[1] // WIDEST)
    small = pixels[::skip, ::skip]
    small = small[: len(small) // 2 * 2]
    text = Text()
    for upper, lower in zip(small[::2], small[1::2], strict=True):
        for above, below in zip(upper.tolist(), lower.tolist(), strict=True):
            text.append(
                "\u2580", style=f"rgb({above[0]},{above[1]},{above[2]}) on rgb({below[0]},{below[1]},{below[2]})"
            )
        text.append("\n")
    return text


def as_new_file(pixels: Pixels, folder: Path) -> Path:
    """A picture as drawn-N.png of a folder, with the first N that is free."""
    number = 1
    while (folder / f"drawn-{number}.png").exists():
        number += 1
    file = folder / f"drawn-{number}.png"
    file.write_bytes(png.written(pixels))
    return file
