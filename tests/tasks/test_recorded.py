"""Which packs are replayed, at which size, and how a pack is filled up to it. The recordings themselves need a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_model, numbers

from burnish.forward import packing
from burnish.forward.outputs import Asked
from burnish.forward.packing import TILE, TooShort, families_of, lines_for, pack, packed_tokens
from burnish.kernels.cuda_graphs.sizes import AFTER, LARGEST, WASTE, SizedGraphs, size_for
from burnish.kernels.cuda_graphs.training import TrainingGraphs
from burnish.kernels.triton.runner import TritonRunner
from burnish.models import mixed_precision
from burnish.models.load import load_model
from burnish.models.mixed_precision import ComputeCopy

CPU = torch.device("cpu")


def graphs_of(copies: ComputeCopy) -> TrainingGraphs:
    assert isinstance(copies.runner, TritonRunner) and copies.runner.graphs is not None
    return copies.runner.graphs


def rows_of(*lengths: int, shared: int = 5) -> tuple[list[torch.Tensor], list[int]]:
    start = torch.arange(shared)
    return [torch.cat([start, torch.full((n,), 7 + i)]) for i, n in enumerate(lengths)], [shared] * len(lengths)


@pytest.mark.parametrize("tokens", [1, 255, 256, 257, 4097, 8192, 24576, 69632, 100_001])
def test_a_size_is_a_thirty_second_too_large_at_most(tokens: int) -> None:
    assert tokens <= size_for(tokens) <= max(tokens + 128, tokens * 33 / 32)
    assert size_for(size_for(tokens)) == size_for(tokens)


def test_tokens_are_counted_as_they_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "on_gpu", lambda device: True)
    for lengths in ((3, 4, 200), (70,), (1, 1)):
        rows, asked = rows_of(*lengths)
        assert packed_tokens(numbers(rows), asked, families_of(numbers(rows), asked)) == len(
            pack(numbers(rows), asked, CPU).tokens
        )
        assert packed_tokens(numbers(rows), None, families_of(numbers(rows), None)) == len(
            pack(numbers(rows), None, CPU).tokens
        )


def test_rows_lie_in_a_pack_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "on_gpu", lambda device: True)
    rows, asked = rows_of(3, 100, 0, 64)
    rows, asked = [*rows, torch.arange(90, 97)], [*asked, 2]  # one that shares nothing
    for given, size, shared in ((asked, None, True), (asked, 512, True), (None, None, False)):
        found = pack(numbers(rows), given, CPU, size)
        assert found.shared == shared and found.longest == 105
        for i, row in enumerate(rows):
            at = np.arange(len(row))
            lines = found.places(np.full(len(row), i), at)
            assert torch.equal(found.tokens[lines], row) and (found.positions[lines].numpy() == at).all()
        assert found.table is not None
        looked_at = {(root, length) for _, _, _, _, root, length, _, _ in found.table.tolist() if length}
        assert looked_at == ({(0, 5)} if shared else set()), (
            "the children of a beginning look at it, and nobody else does"
        )


def test_what_is_asked_about_is_found_row_by_row() -> None:
    masks = [[0, 0, 1, 0, 1], [0, 0], [0, 1, 1], [0]]
    asked = Asked.of([torch.tensor(mask, dtype=torch.bool) for mask in masks])
    assert asked.flat.tolist() == [2, 4, 8, 9]
    assert asked.row.tolist() == [0, 0, 2, 2] and asked.at.tolist() == [2, 4, 1, 2]
    assert asked.first == [2, 1, 1, 1] and asked.last == [4, 0, 2, 0]
    assert asked.ends(False) == [4, 1, 2, 1] and asked.ends(True) == [5, 1, 3, 1], (
        "nothing is read in vain, but one token"
    )


def test_a_pack_is_filled_with_tokens_that_nobody_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "on_gpu", lambda device: True)
    rows, asked = rows_of(3, 100)
    plain, filled = pack(numbers(rows), asked, CPU), pack(numbers(rows), asked, CPU, 512)
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
        pack(numbers(many), None, CPU, 1024 if len(many) * 2 > 1024 else 256)


def test_sizes_are_recorded_when_they_come_again() -> None:
    graphs: SizedGraphs[Any] = SizedGraphs("passes")
    assert [graphs.size(8150) for _ in range(AFTER + 1)] == [None] * AFTER + [8192]
    graphs.kept[8192] = None
    assert graphs.size(8192) == 8192 and graphs.size(7000) == 8192, "one that is a little too large serves"
    graphs.wasted.clear()
    small = [graphs.size(4000) for _ in range(WASTE + 1)]
    assert small == [8192] * WASTE + [4608], "and for a while one that is much too large, until its own is worth it"
    assert [graphs.size(2000) for _ in range(2)] == [8192, 2304], "the sooner, the more is computed in vain"
    assert graphs.size(LARGEST + 1) is None


def test_passes_without_gradient_and_after_a_failed_capture_are_not_training_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixed_precision, "on_gpu", lambda device: True)
    model = load_model(make_model(tmp_path), 0, CPU, native=False)
    graphs = graphs_of(ComputeCopy(model, frozen=False))
    with torch.no_grad():
        assert not graphs._may()
    assert graphs._may()
    graphs.graphs.off = True
    assert not graphs._may()


def test_a_recording_for_short_rows_gives_way_to_one_for_long_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "on_gpu", lambda device: True)
    made: list[bool] = []

    class Noted:
        def __init__(self, packed: packing.Packed) -> None:
            self.layout = packed
            made.append(packed.long)

    graphs: SizedGraphs[Noted] = SizedGraphs("passes")
    graphs.memory = 0
    short, long = (pack(numbers([torch.arange(n)]), None, CPU, 1024) for n in (packing.SPAN, packing.SPAN + 1))
    for packed in (short, short, long, short, long):
        graphs.graph(1024, packed, lambda memory, packed=packed: Noted(packed))
    assert made == [False, True], "one for rows of several spans serves shorter rows, too, and not the other way round"
