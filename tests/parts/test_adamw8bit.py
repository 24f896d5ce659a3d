"""AdamW with moments in 8 bits: the codes, and steps beside those of torch's AdamW."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from runs import halted_after

import burnish
from burnish.api.train import resume
from burnish.checkpoint.diff import differences
from burnish.models.adamw8bit import (
    BLOCK,
    AdamW8bit,
    positive_codes,
    positive_values,
    signed_codes,
    signed_values,
)


def dice() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_codes_by_hand() -> None:
    """Scale 2: -2 is code -127; 2 (100/127)^2 = 1.24 is code 100 with no chance of another; 0 is 0.
    Scale 16: 16 is code 255, 16 (51/255)^4 = 0.0256 is code 51."""
    codes, scales = signed_codes(torch.tensor([-2.0, 2 * (100 / 127) ** 2, 0.0]), dice())
    assert scales.tolist() == [2.0] and codes.tolist()[::2] == [-127, 0] and abs(int(codes[1]) - 100) <= 1
    back = signed_values(torch.tensor([-127, 100], dtype=torch.int8), scales)
    assert torch.allclose(back, torch.tensor([-2, 1.24]), atol=1e-3)
    codes, scales = positive_codes(torch.tensor([16.0, 0.0, 16 * (51 / 255) ** 4]), dice())
    assert scales.tolist() == [16.0] and codes.tolist()[:2] == [255, 0] and abs(int(codes[2]) - 51) <= 1
    assert float(positive_values(torch.tensor([51], dtype=torch.uint8), scales)[0]) == pytest.approx(0.0256)


def test_rounding_is_right_on_average_and_blocks_are_apart() -> None:
    torch.manual_seed(0)
    x = torch.randn(3 * BLOCK + 10)
    x[BLOCK : 2 * BLOCK] *= 1e-6
    for numbers, code, value in ((x, signed_codes, signed_values), (x.square(), positive_codes, positive_values)):
        throws, thrown = dice(), torch.zeros_like(numbers)
        for _ in range(400):
            thrown += value(*code(numbers, throws))
        thrown /= 400
        for block in (thrown[:BLOCK] - numbers[:BLOCK], (thrown - numbers)[BLOCK : 2 * BLOCK] * 1e6):
            assert float(block.abs().max()) < 0.02


def test_steps_are_those_of_adamw_within_the_codes() -> None:
    torch.manual_seed(0)
    start, goal = torch.randn(40, 30), torch.randn(40, 30)
    ends = []
    for kind in (torch.optim.AdamW, AdamW8bit):
        p = torch.nn.Parameter(start.clone())
        optimiser = kind([{"params": [p], "weight_decay": 0.01}])
        optimiser.param_groups[0]["lr"] = 0.02
        for _ in range(150):
            p.grad = p.detach() - goal
            optimiser.step()
        ends.append(p.detach())
    exact, ours = ends
    assert float((exact - goal).norm() / (start - goal).norm()) < 0.2
    assert float((ours - exact).norm() / (exact - start).norm()) < 0.02
    first = [torch.nn.Parameter(start.clone()) for _ in range(2)]
    for p, kind in zip(first, (torch.optim.AdamW, AdamW8bit), strict=True):
        optimiser = kind([p])
        optimiser.param_groups[0] |= {"lr": 0.02, "weight_decay": 0.0}
        p.grad = goal.clone()
        optimiser.step()
    assert torch.allclose(*first, atol=1e-6)  # nothing has been rounded before the first step


def test_a_spoilt_step_moves_nothing() -> None:
    p = torch.nn.Parameter(torch.ones(10))
    optimiser = AdamW8bit([p])
    optimiser.param_groups[0]["lr"] = 0.1
    p.grad, optimiser.found_inf = torch.full((10,), float("nan")), torch.ones(())
    optimiser.step()
    assert torch.equal(p.detach(), torch.ones(10)) and not optimiser.state[p]


def test_a_run_resumes_exactly(small_model: Path, tmp_path: Path) -> None:
    options = {"model": str(small_model), "task": "sort", "prompts": 2, "eval_tasks": 0, "lr": 1e-2, "device": "cpu"}
    burnish.train("sft", out=str(tmp_path / "whole"), steps=4, save_every=2, optimiser="adamw8bit", **options)
    resume(halted_after(2, tmp_path / "whole", tmp_path / "halted"))
    assert not differences(tmp_path / "whole", tmp_path / "halted")
