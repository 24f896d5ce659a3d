"""`shapes`: drawn pictures, their questions, and writers who err."""

from __future__ import annotations

import random

import numpy as np
import pytest

from burnish.core.messages import pictures_of, text_of
from burnish.media.decode import decoded
from burnish.media.drawing import COLOURS, as_file
from burnish.media.store import STORE
from burnish.tasks.pictures.shapes import Shapes, drawn

SHAPES = (("circle", "red", 0), ("square", "red", 5), ("cross", "blue", 15))


def test_answers_are_counts() -> None:
    for (kind, colour), count in {("", ""): 3, ("", "red"): 2, ("cross", ""): 1, ("circle", "blue"): 0}.items():
        assert Shapes().answer((kind, colour, SHAPES, 200)) == str(count)


def test_the_picture_shows_the_shapes() -> None:
    """Cell 5 of four across is the second of the second row: pixels 8 to 15 both ways; its middle is red."""
    pixels = drawn(SHAPES, 200)
    assert pixels.shape == (32, 32, 3) and tuple(pixels[11, 11]) == COLOURS["red"]
    assert tuple(pixels[4, 20]) == (200, 200, 200) and tuple(pixels[28, 28]) == COLOURS["blue"]
    assert np.array_equal(np.asarray(decoded(as_file(pixels))), pixels)
    assert int((pixels == COLOURS["red"]).all(-1).sum()) == 32 + 36  # a circle of 32 pixels and a square of 6 x 6


@pytest.mark.parametrize("level", [1, 2, 3, 4])
def test_tasks_have_a_picture_a_question_and_a_verifier(level: int) -> None:
    family = Shapes(level)
    task = family.task("train", 3)
    (reference,) = pictures_of(task.prompt)  # type: ignore[arg-type]
    assert decoded(STORE.raw(reference)).size == (32, 32)
    asked = text_of(task.prompt[0])  # type: ignore[arg-type]
    assert asked.startswith("How many ") and asked.endswith("s?")
    assert family.verify(task, task.given["demo"]).correct and not family.verify(task, task.given["mistake"]).correct
    assert family.task("train", 3).key == task.key != family.task("heldout", 3).key


def test_writers_err_in_several_ways() -> None:
    family, dice = Shapes(4), random.Random(0)
    said = {family.mistake(("circle", "red", SHAPES, 200), dice) for _ in range(50)}
    assert said == {"answer: 0", "answer: 2"}
