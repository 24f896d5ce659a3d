"""Small copies of pictures: sharp where they are small, smaller where they are large, none where the file is gone."""

from __future__ import annotations

import io
import sqlite3
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from burnish.core.types import Task, Trace, Turn
from burnish.media import drawn
from burnish.media.decode import decoded
from burnish.media.drawing import COLOURS, as_file, blank
from burnish.media.ids import ids_of
from burnish.media.store import STORE
from burnish.media.thumbnail import thumbnail
from burnish.store.rows import MOST_PICTURES, drawn_picture, thumbnails
from burnish.store.schema import connect


def test_a_small_picture_is_multiplied_and_a_large_one_shrunk(tmp_path: Path) -> None:
    pixels = blank(200, 32)
    pixels[:4, :4] = COLOURS["red"]
    small = thumbnail(STORE.keep(as_file(pixels)))
    assert small is not None
    seen = np.asarray(decoded(small))
    assert seen.shape == (96, 96, 3) and np.array_equal(seen, pixels.repeat(3, 0).repeat(3, 1))
    Image.fromarray(blank(100, 300)).save(tmp_path / "large.png")
    large = thumbnail(str(tmp_path / "large.png"))
    assert large is not None and Image.open(io.BytesIO(large)).size == (96, 96)


def test_what_is_gone_or_damaged_has_none(tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    assert thumbnail(str(tmp_path / "bad.png")) is thumbnail(str(tmp_path / "gone.png")) is None


def test_a_prompt_keeps_its_first_pictures() -> None:
    parts = [{"type": "image", "image": STORE.keep(as_file(blank(shade, 8)))} for shade in range(12)]
    prompt = ({"role": "user", "content": [*parts, {"type": "text", "text": "?"}]},)
    shown = thumbnails(Task("question", prompt, {}, "k"))
    assert len(shown) == MOST_PICTURES and np.asarray(decoded(shown[3])).max() == 3
    assert thumbnails(Task("question", "text alone", {}, "k")) == []


def test_a_store_of_an_earlier_version_gets_the_table(tmp_path: Path) -> None:
    db = connect(tmp_path / "store.sqlite")
    db.execute("DROP TABLE pictures")
    db.close()
    db = connect(tmp_path / "store.sqlite")
    db.execute("INSERT INTO pictures VALUES (1, 0, 0, ?)", (b"png",))
    with sqlite3.connect(tmp_path / "store.sqlite") as other:
        assert other.execute("SELECT png FROM pictures").fetchone() == (b"png",)
    db.close()


def test_what_a_model_drew_is_shown_larger() -> None:
    """A picture of 16 pixels becomes 96; words and pictures that were read have none. No library is asked."""
    pixels = blank(90, 16)
    pixels[:4, 4:8] = COLOURS["red"]
    prompt = Turn(torch.tensor([5, 6]), "task")
    drew = Trace((prompt, Turn(torch.from_numpy(ids_of(drawn.kept(pixels), 3)), "policy")))
    png = drawn_picture(drew)
    assert png is not None and np.array_equal(np.asarray(decoded(png)), pixels.repeat(6, 0).repeat(6, 1))
    wrote = Trace((prompt, Turn(torch.tensor([7]), "policy")))
    assert drawn_picture(wrote) is None
