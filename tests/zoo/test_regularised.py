"""Noisy inputs, mixed inputs and resting halves: by hand, and what is left when they are switched off."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, credited
from test_learn import TASK, same_gradient
from torch import nn, tensor

from burnish.core.loop import loop
from burnish.core.types import Trace, Turn
from burnish.methods.imitation import sft
from burnish.zoo.hft import half, hft
from burnish.zoo.ift import ift, own_guess, suffix_weighted_nll
from burnish.zoo.nefttune import neftune, uniform_noise


def test_neftune_noise_by_hand() -> None:
    """alpha / sqrt(L d) = 6 / sqrt(4 * 9) = 1: entries move by less than 1, evenly, and the same key
    moves them alike.
    """
    trace = Trace((Turn(torch.arange(4), "task"),))
    trace.streams["noise"] = torch.arange(4) + 1
    noisy = uniform_noise(6.0).call(torch.zeros(4, 9), trace, nn.Identity())
    assert float(noisy.abs().max()) < 1 and float(noisy.std()) == pytest.approx(1 / 3**0.5, abs=0.12)
    assert torch.equal(noisy, uniform_noise(6.0).call(torch.zeros(4, 9), trace, nn.Identity()))


def test_neftune_without_noise_is_sft(small_model: Path) -> None:
    same_gradient(neftune(TASK, alpha=0.0), sft(TASK), small_model)


def test_own_guess_by_hand() -> None:
    """share 0.25 at the demonstrated token: 0.75 E[y] + 0.25 E[guess]; the prompt is read as it is."""
    table = nn.Embedding.from_pretrained(tensor([[0.0], [4.0], [8.0]]))
    trace = Trace((Turn(tensor([1]), "task"), Turn(tensor([1]), "demo")))
    trace.streams["greedy"] = tensor([float("nan"), 2.0])
    assert own_guess(0.25).call(table(trace.tokens), trace, table).flatten().tolist() == [4.0, 5.0]


def test_suffix_weights_by_hand() -> None:
    """nll (1, 2), gamma 0.5: S = (1 + 1, 2) = (2, 2), so both weigh alike: 1.5. gamma 1: S = (3, 2): (3
    + 4) / 5 = 1.4.
    """
    nll = tensor([1.0, 2.0])
    assert suffix_weighted_nll(nll, 0.5).item() == pytest.approx(1.5)
    assert suffix_weighted_nll(nll, 1.0).item() == pytest.approx(1.4)
    assert suffix_weighted_nll(nll, 0.0).item() == pytest.approx(1.5)


def test_ift_switched_off_is_the_sequence_mean_of_sft(small_model: Path) -> None:
    """share 0, gamma 0: each demonstration's mean nll, averaged. (Inputs are held, so only the table's input gradient
    is missing.)
    """
    built = ift(TASK, share=0.0, gamma=0.0)
    for phase, groups, step in credited(built, build_cast(built, small_model)):
        from burnish.learn.learn import measure

        total = measure(groups, phase.learn, step)
        means = []
        for group in groups:
            trace = group.traces[0]
            with torch.no_grad():
                means.append(
                    -step.models["policy"].outputs([trace.tokens], [trace.by("demo")], {"logp"})["logp"].mean()
                )
        assert total == pytest.approx(float(torch.stack(means).mean()), rel=1e-5)


def test_half_rests_what_the_paper_says() -> None:
    for layer in range(6):
        resting = half(0, 0, layer)
        assert len(resting & {"q_proj", "k_proj", "v_proj", "o_proj"}) == 2
        assert len(resting & {"input_layernorm", "post_attention_layernorm"}) == 1
        assert len(resting & {"gate_proj", "up_proj", "down_proj"}) == 1 + layer % 2
    assert {half(0, 0, 3), half(0, 1, 3), half(1, 0, 3)} != {half(0, 0, 3)}


def test_hft_moves_one_half_and_leaves_the_other(small_model: Path) -> None:
    built = hft(TASK)
    models = build_cast(built, small_model)
    before = {name: p.detach().clone() for name, p in models["policy"].module.named_parameters()}
    next(loop(built, models, SMALL, steps=1))
    for name, p in models["policy"].module.named_parameters():
        resting = any(f"layers.{layer}." in name and part in name for layer in range(2) for part in half(0, 0, layer))
        assert torch.equal(before[name], p) == resting, name
