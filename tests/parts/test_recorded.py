"""Which packs are replayed, at which size, and how a pack is filled up to it. The recordings themselves need a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import make_model

from burnish.cast import packing, recorded, working
from burnish.cast.load import load_model
from burnish.cast.packing import TILE, TooShort, families_of, lines_for, pack, packed_tokens
from burnish.cast.recorded import AFTER, PATIENCE, Recorder, size_for
from burnish.cast.working import Working

CPU = torch.device("cpu")


def rows_of(*lengths: int, shared: int = 5) -> tuple[list[torch.Tensor], list[int]]:
    start = torch.arange(shared)
    return [torch.cat([start, torch.full((n,), 7 + i)]) for i, n in enumerate(lengths)], [shared] * len(lengths)


@pytest.mark.parametrize("tokens", [1, 255, 256, 257, 4097, 8192, 24576, 69632, 100_001])
def test_a_size_is_a_sixteenth_too_large_at_most(tokens: int) -> None:
    assert tokens <= size_for(tokens) <= max(tokens + 256, tokens * 17 / 16)
    assert size_for(size_for(tokens)) == size_for(tokens)


def test_tokens_are_counted_as_they_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "on_gpu", lambda device: True)
    for lengths in ((3, 4, 200), (70,), (1, 1)):
        rows, asked = rows_of(*lengths)
        assert packed_tokens(rows, asked, families_of(rows, asked)) == len(pack(rows, asked, CPU).tokens)
        assert packed_tokens(rows, None, families_of(rows, None)) == len(pack(rows, None, CPU).tokens)


def test_a_pack_is_filled_with_tokens_that_nobody_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "on_gpu", lambda device: True)
    rows, asked = rows_of(3, 100)
    plain, filled = pack(rows, asked, CPU), pack(rows, asked, CPU, 512)
    n = len(plain.tokens)
    assert len(filled.tokens) == 512 and torch.equal(filled.tokens[:n], plain.tokens)
    assert (filled.lines == plain.lines).all() and (filled.starts == plain.starts).all()
    assert plain.table is not None and filled.table is not None and len(filled.table) == lines_for(512)
    assert torch.equal(filled.table[: len(plain.table)], plain.table)
    start, length, own, end, _, root_length, kids, kids_end = filled.table.T.tolist()
    assert sum(length) == 512 and max(length) <= TILE
    for i in range(len(plain.table), len(filled.table)):  # fillers look at themselves alone, and nobody at them
        assert own[i] == start[i] and end[i] == start[i] + length[i] and not root_length[i] and kids[i] == kids_end[i]


def test_stretches_too_short_for_the_table_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "on_gpu", lambda device: True)
    many = [torch.tensor([1, 2]) for _ in range(lines_for(256) + 1)]
    with pytest.raises(TooShort, match="more than"):
        pack(many, None, CPU, 1024 if len(many) * 2 > 1024 else 256)


def test_sizes_are_recorded_when_they_come_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working, "on_gpu", lambda device: True)
    model = load_model(make_model(tmp_path), 0, CPU, native=False)
    recorder: Recorder = Working(model, frozen=False).copy.recorder  # type: ignore[assignment]
    assert [recorder._size(8000) for _ in range(AFTER + 1)] == [None] * AFTER + [8192]
    recorder.kept[8192] = None  # type: ignore[assignment]
    assert recorder._size(8192) == 8192 and recorder._size(7000) == 8192, "one that is a little too large serves"
    small = [recorder._size(2000) for _ in range(PATIENCE + 1)]
    assert small == [8192] * PATIENCE + [2048], "and for a while one that is much too large, until its own is worth it"
    assert recorder._size(recorded.LARGEST + 1) is None
    with torch.no_grad():
        assert not recorder._may()
    assert recorder._may()
    recorder.off = True
    assert not recorder._may()
