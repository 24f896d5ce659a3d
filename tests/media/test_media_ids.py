"""Media ids: one number for the content, the processor and the place; cut pictures are found."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from burnish.media.ids import MOST, CutPicture, has_media, ids_of, media_in, runs_of, split
from burnish.media.store import Ready, Store, key_for


def test_an_id_is_its_key_and_its_place() -> None:
    """2^62 + 5 * 8192 + 2, by hand; the largest key and place still fit into 63 bits."""
    assert ids_of(5, 3).tolist() == [4611686018427428864, 4611686018427428865, 4611686018427428866]
    keys, places = split(ids_of(5, 3))
    assert keys.tolist() == [5, 5, 5] and places.tolist() == [0, 1, 2]
    last = int(ids_of((1 << 49) - 1, MOST)[-1])
    assert last == 2**63 - 1 and np.int64(last) > 0
    with pytest.raises(ValueError, match="8,192 is the most"):
        ids_of(0, MOST + 1)


def test_runs_are_whole_pictures_with_text_between_their_tiles() -> None:
    a, b = ids_of(1, 4), ids_of(2, 2)
    row = np.array([7, a[0], a[1], 8, a[2], a[3], *b, 9])
    runs = runs_of(row)
    assert [(run.key, run.at.tolist()) for run in runs] == [(1, [1, 2, 4, 5]), (2, [6, 7])]
    assert has_media(row) and not has_media(np.array([1, 2])) and not media_in(torch.zeros(0, dtype=torch.long))
    twice = runs_of(np.concatenate([b, b]))
    assert [run.at.tolist() for run in twice] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("row", [ids_of(1, 4)[1:], ids_of(1, 4)[[0, 2, 1, 3]], ids_of(1, 4)[[0, 1, 3]]])
def test_a_row_that_was_cut_inside_a_picture_is_refused(row: np.ndarray) -> None:
    with pytest.raises(CutPicture, match="inside a picture"):
        runs_of(row)


def _ready(key: int, size: int) -> Ready:
    return Ready(key, (1,), 1, {"pixel_values": torch.zeros(size)}, "r", (1, 1))


def test_a_picture_is_processed_once_and_again_only_after_it_was_dropped() -> None:
    store, made = Store(ready_bytes=100), []

    def make(content: str) -> Ready:
        made.append(content)
        return _ready(key_for(content, "r"), 20)  # 80 bytes: two do not fit

    a = store.ready("a", "r", lambda: make("a"))
    assert store.ready("a", "r", lambda: make("a")) is a and made == ["a"]
    store.ready("b", "r", lambda: make("b"))
    assert store.of(a.key).key == a.key and made == ["a", "b", "a"]
    with pytest.raises(ValueError, match="has not read"):
        store.of(12345)


def test_two_pictures_with_one_key_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.media.store.key_for", lambda content, reader: 7)
    store = Store()
    store.ready("a", "r", lambda: _ready(7, 1))
    with pytest.raises(ValueError, match="two pictures have one key"):
        store.ready("b", "r", lambda: _ready(7, 1))


def test_bytes_without_a_file_are_kept_or_only_named() -> None:
    store = Store(raw_bytes=10)
    first, second = store.keep(b"12345678"), store.keep(b"abcdefgh")
    assert store.raw(first) == b"12345678" and store.raw(second) == b"abcdefgh"  # one of them from a file
    with store.naming():
        third = store.keep(b"never kept")
    with pytest.raises(ValueError, match="draw it again"):
        store.raw(third)
    assert store.keep(b"12345678") == first != second
