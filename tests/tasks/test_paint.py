"""The task `paint`: what is seen in a picture, and what a picture scores."""

from __future__ import annotations

import numpy as np
import pytest

from burnish.core.seeds import rng
from burnish.media import png
from burnish.media.drawn import BEGIN, as_text, pixels_in
from burnish.tasks.codes.paint import GROUNDS, Figure, Paint, Seen, painted, seen

ASKED = (2, "red", "square", "grey", 0)
RIGHT = [(0, "red", "square"), (5, "red", "square")]


@pytest.mark.parametrize(
    ("figures", "ground", "score", "why"),
    [
        (RIGHT, "grey", 1.0, ""),
        ([*RIGHT, (15, "red", "square")], "grey", 0.75, "3 figures, not 2"),
        ([RIGHT[0], (5, "blue", "square")], "grey", 0.875, "not all figures are red"),
        ([RIGHT[0], (5, "red", "ring")], "grey", 0.875, "not all figures are a square"),
        (RIGHT, "black", 0.75, "the ground is black"),
        ([], "grey", 0.25, "0 figures"),
    ],
)
def test_a_quarter_for_ground_count_colour_and_kind(
    figures: list[tuple[int, str, str]], ground: str, score: float, why: str
) -> None:
    verdict = Paint().verdict(ASKED, as_text(painted(figures, ground)))
    assert (verdict.score, verdict.correct) == (score, not why) and why in verdict.reason


def test_specks_are_no_figures_and_no_pictures() -> None:
    """Two pixels are overlooked, three are not; five that hang together are a figure of no kind."""
    pixels = painted(RIGHT, "grey")
    for at in (8, 10):
        pixels[15, at] = (230, 40, 40)
    assert Paint().verdict(ASKED, as_text(pixels)).correct
    pixels[15, 12] = (230, 40, 40)
    verdict = Paint().verdict(ASKED, as_text(pixels))
    assert verdict.score == 1.0 and not verdict.correct and "3 pixels" in verdict.reason
    pixels[15, 8:13] = (230, 40, 40)
    assert seen(pixels).figures[-1] in (Figure("red", ""), Figure("red", "square")) and len(seen(pixels).figures) == 3


def test_colours_are_the_nearest_of_the_palette() -> None:
    dice = np.random.default_rng(0)
    noisy = painted([(3, "blue", "ring")], "white").astype(int) + dice.integers(-30, 31, (16, 16, 3))
    assert seen(noisy.clip(0, 255).astype(np.uint8)) == Seen("white", (Figure("blue", "ring"),), 0)


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_solutions_are_right_and_mistakes_wrong(level: int) -> None:
    task = Paint(level)
    for index in range(20):
        problem = task.problem("train", index)
        assert task.verdict(problem, task.solve(problem, rng(index))).correct
        assert not task.verdict(problem, task.mistake(problem, rng(index))).correct
        assert 1 <= problem[0] <= 2 * level and str(problem[0]) in str(task.ask(problem))


@pytest.mark.parametrize("reply", ["", "3 squares", BEGIN + "!!!", BEGIN + "QUJD", BEGIN + "iVBORw0KGgo="])
def test_what_is_no_picture_scores_nothing(reply: str) -> None:
    verdict = Paint().verdict(ASKED, reply)
    assert verdict.score == 0.0 and "no picture" in verdict.reason


def test_pngs_are_read_as_they_were_written_and_by_pillow() -> None:
    import io

    from PIL import Image

    pixels = np.random.default_rng(1).integers(0, 256, (7, 5, 3), dtype=np.uint8)
    raw = png.written(pixels)
    assert np.array_equal(png.read(raw), pixels) and np.array_equal(np.asarray(Image.open(io.BytesIO(raw))), pixels)
    assert np.array_equal(pixels_in(as_text(pixels)), pixels)
    file = io.BytesIO()
    Image.fromarray(pixels).convert("L").save(file, "PNG")
    assert png.read(file.getvalue()) is None


def test_a_bomb_is_not_unpacked() -> None:
    """A file that says it is 16 x 16 and holds 50 MB of zeros is no picture, and costs what 16 x 16 do."""
    import struct
    import time
    import zlib

    header = struct.pack(">IIBBBBB", 16, 16, *png.RGB8)
    raw = png.SIGNATURE + png._chunk(b"IHDR", header) + png._chunk(b"IDAT", zlib.compress(bytes(50_000_000), 9))
    start = time.perf_counter()
    assert png.read(raw) is None and time.perf_counter() - start < 0.1
    huge = png.SIGNATURE + png._chunk(b"IHDR", struct.pack(">IIBBBBB", 1 << 20, 1 << 20, *png.RGB8))
    assert png.read(huge) is None


def test_grounds_are_no_figures_colours() -> None:
    assert not {"red", "green", "blue", "yellow"} & set(GROUNDS)
