"""Activations on the host: the same gradient, weights stay where they are, and the flag."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SMALL
from torch import Tensor, nn

from burnish.cli import main
from burnish.config.options import Options, configure
from burnish.forward import offload
from burnish.forward.offload import Saved, offloaded
from burnish.methods.table import METHODS
from burnish.models.build import Models, build
from burnish.tasks.table import source

ROWS = [torch.arange(5, 45), torch.arange(30, 90)]
MASKS = [torch.arange(len(row)) > 3 for row in ROWS]


def built(base: Path) -> Models:
    return build(METHODS["sft"].build(source("add")).models, base, SMALL, device="cpu")


@pytest.mark.parametrize("kind", ["packed", "padded"])
def test_gradients_are_the_same_bits(kind: str, small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offload, "LEAST", 1)
    found, moved = [], []
    pack = offload.Offloading.pack

    def counted(self: offload.Offloading, x: Tensor) -> Tensor | Saved:
        moved.append(pack(self, x))
        return moved[-1]

    monkeypatch.setattr(offload.Offloading, "pack", counted)
    for activations in ("off", "offload"):
        model = built(small_model)["policy"]
        model.activations, model.packed = activations, kind == "packed"
        out = model.outputs(ROWS, MASKS, {"logp", "entropy"})
        (out["logp"].sum() + out["entropy"].sum()).backward()
        found.append([p.grad for p in model.module.parameters()])
        if activations == "off":
            assert not moved
    assert sum(isinstance(one, Saved) for one in moved) > 5
    for kept, back in zip(*found, strict=True):
        assert kept is not None and back is not None and torch.equal(kept, back)


def test_weights_small_tensors_and_views_with_gaps_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Linear(300, 300)
    x = torch.randn(200, 900, requires_grad=True)
    with offloaded(layer) as held:
        y = layer(x[:, :300])  # saves a view with gaps, and the weight
        z = y.exp() * y.sum()
    where = [one.host.shape for one in held.saved]
    assert where == [y.shape, y.shape]  # of exp and of the product; its sum is a single number
    z.sum().backward()
    assert x.grad is not None and bool(x.grad[:, :300].any())


def test_other_orders_of_axes_come_back_as_they_were() -> None:
    held = offload.Offloading(set())
    for x in (torch.randn(80, 300).t(), torch.randn(4, 70, 90).transpose(1, 2), torch.randn(1, 50_000)):
        one = held.pack(x)
        assert isinstance(one, Saved)
        back = held.unpack(one)
        assert back is not x and back.stride() == x.stride() and torch.equal(back, x)
    gaps = torch.randn(300, 300)[:, ::2]
    assert held.pack(gaps) is gaps


def test_what_was_read_is_not_brought_back_again() -> None:
    """An operation that packs a, b, c reads them in that order: reading b must not copy a back a second time."""
    held = offload.Offloading(set())
    saved = [held.pack(torch.randn(300, 300)) for _ in range(12)]
    assert all(isinstance(one, Saved) for one in saved)
    numbers = {one: [each.number for each in held.due(held.saved[one])] for one in (11, 3, 0)}
    assert numbers == {11: [11, 10, 9, 8, 7, 6, 5, 4, 3], 3: [3, 2, 1, 0], 0: [0]}
    for one in (9, 10):
        held.unpack(held.saved[one])
    assert [each.number for each in held.due(held.saved[11])] == [11, 8, 7, 6, 5, 4, 3]
    assert held.due(held.saved[9])[0] is held.saved[9]  # read once more, it comes once more


@pytest.mark.parametrize(
    ("given", "value"), [(True, "recompute"), ("on", "recompute"), (False, "off"), ("offload", "offload")]
)
def test_the_option_is_a_switch_with_a_choice(given: object, value: str) -> None:
    config = configure(METHODS["sft"], "sft", {"checkpoint_activations": given})
    assert config.options == Options(checkpoint_activations=value)


def test_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    plan = ["plan", "sft", "--model", "tiny"]
    assert main([*plan, "--checkpoint-activations"]) == 0
    assert "--checkpoint-activations recompute" in capsys.readouterr().out
    assert main(["plan", "--checkpoint-activations", "offload", *plan[1:]]) == 0
    assert "--checkpoint-activations offload" in capsys.readouterr().out
    assert main([*plan, "--checkpoint-activations=disk"]) == 2
    assert "must be off, recompute or offload" in capsys.readouterr().err
