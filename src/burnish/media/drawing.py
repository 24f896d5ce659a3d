"""Drawing small pictures by rule: shapes, glyphs and files, with numpy alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]  # [height, width, 3]
Mask = npt.NDArray[np.bool_]

SIDE = 64  # pixels of a picture
UNIT = 4  # pixels; places in answers are whole numbers of it, from 0 to 16
BOARD, CELL = 32, 8  # pixels of a board's side, and of a cell's; models see it twice as large
ACROSS = BOARD // CELL
COLOURS = {"red": (220, 40, 40), "green": (40, 170, 60), "blue": (50, 80, 220)}
KINDS = ("circle", "square", "cross")
INK = (30, 30, 30)

_ROWS = {  # five rows of three pixels, the leftmost pixel worth 4
    "0": "75557",
    "1": "26227",
    "2": "71747",
    "3": "71717",
    "4": "55711",
    "5": "74717",
    "6": "74757",
    "7": "71122",
    "8": "75757",
    "9": "75717",
    "A": "25755",
    "C": "74447",
    "E": "74647",
    "F": "74644",
    "H": "55755",
    "K": "56465",
    "L": "44447",
    "P": "75744",
    "T": "72222",
    "U": "55557",
    "X": "55255",
}
GLYPHS = tuple(_ROWS)


def blank(grey: int, side: int = SIDE) -> Pixels:
    """A picture of one grey."""
    return np.full((side, side, 3), grey, dtype=np.uint8)


def shape(kind: str, height: int, width: int) -> Mask:
    """[height, width]: the pixels of a shape that touches all four sides of its box."""
    y, x = np.mgrid[0:height, 0:width]
    v, u = (2 * y - height + 1) / height, (2 * x - width + 1) / width  # from -1 to 1
    if kind == "circle":
        return np.asarray(u**2 + v**2 <= 1.0)
    if kind == "square":
        return np.ones((height, width), dtype=bool)
    return np.asarray(np.minimum(abs(u), abs(v)) <= 0.3)


def glyph(letter: str, scale: int) -> Mask:
    """[5 scale, 3 scale]: the pixels of a digit or a capital letter."""
    rows = [[int(row) >> bit & 1 for bit in (2, 1, 0)] for row in _ROWS[letter]]
    return np.kron(np.array(rows, dtype=bool), np.ones((scale, scale), dtype=bool))


def put(pixels: Pixels, mask: Mask, y: int, x: int, colour: tuple[int, int, int]) -> None:
    """Paint a mask with its upper left corner at (y, x)."""
    height, width = mask.shape
    pixels[y : y + height, x : x + width][mask] = colour


def as_file(pixels: Pixels) -> bytes:
    """A picture as a PPM file: the same bytes on every machine, with no library."""
    height, width, _ = pixels.shape
    return f"P6 {width} {height} 255\n".encode() + pixels.tobytes()


def on_cell(kind: str) -> Mask:
    """[CELL, CELL]: the pixels of a shape in the middle of a cell."""
    y, x = np.mgrid[0:CELL, 0:CELL] - (CELL - 1) / 2
    if kind == "circle":
        return np.asarray(x**2 + y**2 <= 9.5)
    if kind == "square":
        return np.asarray(np.maximum(abs(x), abs(y)) <= 2.5)
    return np.asarray((np.minimum(abs(x), abs(y)) <= 0.5) & (np.maximum(abs(x), abs(y)) <= 3.5))


def put_on_board(pixels: Pixels, kind: str, cell: int, colour: tuple[int, int, int]) -> None:
    """Paint a shape on a cell of a board of 4 x 4 cells, counted row by row."""
    put(pixels, on_cell(kind), cell // ACROSS * CELL, cell % ACROSS * CELL, colour)
