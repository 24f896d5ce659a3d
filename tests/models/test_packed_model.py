"""The model that is packed into the package: eight bits a weight, unpacked whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from burnish.models.known_models import MODELS, TINY_FLOW, TINY_MASK, TINY_OMNI, resolve
from burnish.models.packed_model import PACKED, WEIGHTS, pack, packed, place_of, unpack, unpacked


def test_a_row_is_rounded_to_a_127th_of_its_largest_weight() -> None:
    """254 of a row up to 127 is 2 steps of 1; 0.4 rounds to 0, 0.6 to 1. A vector stays."""
    weights = {"m": torch.tensor([[127.0, 0.4, 0.6, -2.0], [0.0, 0.0, 0.0, 0.0]]), "v": torch.tensor([0.3, 1e-3])}
    found = unpacked(packed(weights))
    assert found["m"].tolist() == [[127.0, 0.0, 1.0, -2.0], [0.0] * 4]
    assert torch.equal(found["v"], weights["v"].to(torch.bfloat16)) and set(found) == {"m", "v"}


def test_a_directory_is_unpacked_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "config.json").write_text("{}")
    save_file({"w": torch.randn(3, 4)}, whole / WEIGHTS)
    folder = tmp_path / "some_model"
    pack(whole, folder)
    assert {file.name for file in folder.iterdir()} == {"config.json", PACKED}
    place = unpack(folder)
    assert place == place_of(folder) and place.name.startswith("some-model-")
    first = (place / WEIGHTS).stat().st_mtime_ns
    assert unpack(folder) == place and (place / WEIGHTS).stat().st_mtime_ns == first
    assert [one.name for one in place.parent.iterdir()] == [place.name]
    assert torch.allclose(load_file(place / WEIGHTS)["w"].float(), load_file(whole / WEIGHTS)["w"], atol=0.05)


@pytest.mark.parametrize(
    ("name", "folder", "most"),
    [("tiny-omni", TINY_OMNI, 4.2e6), ("tiny-mask", TINY_MASK, 3.3e6), ("tiny-flow", TINY_FLOW, 2e6)],
)
def test_a_model_in_the_box_is_found_by_name(
    name: str, folder: Path, most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path))
    path = resolve(name)
    assert path == MODELS[name].place() == place_of(folder) and (path / WEIGHTS).is_file()
    assert (folder / PACKED).stat().st_size < most
