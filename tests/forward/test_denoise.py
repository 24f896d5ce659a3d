"""Denoisers: a step of each sampler by hand, its limits, and what is taken for the log-prob of a picture."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from flow_models import flow_model
from torch import Tensor

from burnish.core.canvas import Chain
from burnish.core.randomness import generator
from burnish.core.types import Drawn
from burnish.engine.local import LocalEngine
from burnish.engine.request import Request, Sample
from burnish.forward.denoise import Denoising, denoising_of, estimate, outputs, scaled, set_denoising
from burnish.forward.gaussian import SAMPLERS, log_density, step
from burnish.forward.runner import TransformersRunner
from burnish.media import drawn
from burnish.media.ids import ids_of, split
from burnish.models.load import load_chat, load_model
from burnish.tasks.codes.paint import Paint

PROMPT = torch.tensor([3, 40, 41, 42, 1, 4])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return flow_model(tmp_path_factory.mktemp("flow"))


@pytest.fixture
def model(directory: Path) -> torch.nn.Module:
    return load_model(directory, 0, torch.device("cpu"))


def known_of(model: torch.nn.Module) -> Denoising:
    known = denoising_of(model)
    assert known is not None
    return known


def once(sampler: str, noise: float, t: float = 0.6, s: float = 0.4, x0: float = 0.7, eps: float = -0.4) -> list[float]:
    """Mean and std of a step of one number, the second level being 0.9."""
    x, v = (torch.tensor([[value]], dtype=torch.float64) for value in ((1 - t) * x0 + t * eps, eps - x0))
    levels = torch.tensor([[t]], dtype=torch.float64), torch.tensor([[s]], dtype=torch.float64)
    mean, std = step(sampler, noise, 0.9, x, v, levels)
    return [float(mean), float(std)]


@pytest.mark.parametrize(
    ("sampler", "noise", "wanted"),
    [
        ("consistency", 1.0, [0.42, 0.4]),  # 0.6 x 0.7
        ("ddim", 1.0, [0.348889, 0.358323]),  # a = 4/13, 9/13; std^2 = 0.16 (5/9) (13/9); 0.42 - 0.4 x 0.177778
        ("cps", 0.5, [0.306863, 0.282843]),  # std 0.4 sin 45; 0.42 - 0.4 sqrt(0.16 - 0.08)
        ("flow_sde", 0.7, [0.309, 0.383406]),  # w^2 = 0.49 x 0.6 / 0.4; 0.04 - 0.2 (-1.1 - 0.735 x 0.4 / 1.2)
        ("dance_sde", 0.3, [0.266, 0.134164]),  # 0.04 - 0.2 (-1.1 - 0.09 x 0.4 / 1.2)
    ],
)
def test_a_step_by_hand(sampler: str, noise: float, wanted: list[float]) -> None:
    """x_0.6 = 0.4 x 0.7 - 0.6 x 0.4 = 0.04, v = -1.1."""
    assert once(sampler, noise) == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_without_noise_every_sampler_is_the_ode(sampler: str) -> None:
    """0.04 + 1.1 x 0.2 = 0.26, which is 0.6 x 0.7 - 0.4 x 0.4."""
    assert once(sampler, 0.0) == pytest.approx([0.26, 0.0], abs=1e-12)


def test_the_step_of_ddim_is_ddims_own() -> None:
    """abar 0.3 -> 0.6, x0 0.7, eps -0.4, eta 1: std 0.53452 and mean 0.40699 in DDIM's units, sqrt((1 - s)^2 + s^2)
    times as much in ours."""
    t, s = (1 / (1 + math.sqrt(a / (1 - a))) for a in (0.3, 0.6))
    size = math.hypot(1 - s, s)
    assert [value / size for value in once("ddim", 1.0, t, s)] == pytest.approx([0.40699, 0.53452], abs=1e-5)


def test_the_first_step_of_the_sde_takes_the_second_level() -> None:
    """At t = 1: w^2 = 0.49 x 1 / (1 - 0.9) = 4.9, and not infinite."""
    assert once("flow_sde", 0.7, 1.0, 0.9)[1] == pytest.approx(math.sqrt(4.9 * 0.1))


@pytest.mark.parametrize(("sampler", "noise"), [("flow_sde", 0.7), ("dance_sde", 0.8), ("ddim", 1.0), ("cps", 0.0)])
def test_sde_and_ode_have_the_same_marginals(sampler: str, noise: float) -> None:
    """Pictures of one number, N(0.5, 0.2^2), for which the best velocity is known. Half way and at the end the samples
    have the mean and the spread of (1 - t) x0 + t eps, whatever the noise."""
    mean, spread, steps = 0.5, 0.2, 200
    dice = torch.Generator().manual_seed(0)
    x = torch.randn(20_000, 1, generator=dice, dtype=torch.float64)
    levels = [1 - k / steps for k in range(steps)] + [0.0]
    for t, s in zip(levels[:-1], levels[1:], strict=True):
        wide = (1 - t) ** 2 * spread**2 + t**2
        away = (x - (1 - t) * mean) / wide
        v = t * away - (mean + (1 - t) * spread**2 * away)
        now, then = torch.tensor([[t]], dtype=torch.float64), torch.tensor([[s]], dtype=torch.float64)
        middle, std = step(sampler, noise, levels[1], x, v, (now, then))
        x = middle + std * torch.randn(x.shape, generator=dice, dtype=torch.float64) if s else x - t * v
        if abs(s - 0.5) < 1e-9:
            assert [float(x.mean()), float(x.std())] == pytest.approx([0.25, math.hypot(0.1, 0.5)], abs=0.02)
    assert float(x.mean()) == pytest.approx(mean, abs=0.01)
    assert float(x.std()) == pytest.approx(spread, abs=0.02)


def test_the_log_density_by_hand() -> None:
    """-1/2 - log 0.5 - log(2 pi)/2 = -0.7258 one std away, -0.2258 at the mean: mean -0.4758, sum -0.9516."""
    x, mean, std = torch.tensor([[1.5, 1.0]]), torch.tensor([[1.0, 1.0]]), torch.tensor([[0.5]])
    assert float(log_density(x, mean, std, "mean")) == pytest.approx(-0.475791, abs=1e-5)
    assert float(log_density(x, mean, std, "sum")) == pytest.approx(-0.951583, abs=1e-5)


class Words:
    stops = (1,)

    def text(self, tokens: Tensor) -> str:
        return ""


def draw(model: torch.nn.Module, keys: list[int], temperature: float = 1.0) -> list[Sample]:
    engine = LocalEngine(TransformersRunner(model), Words(), 256)
    return engine.generate([Request(PROMPT, key, 64, temperature) for key in keys])


def logps(model: torch.nn.Module, sample: Sample, want: str = "logp") -> Tensor:
    row = torch.cat([PROMPT, sample.tokens])
    assert isinstance(sample.canvas, Chain)
    how = Drawn(canvases=[[(len(PROMPT), len(row), sample.canvas)]])
    with torch.no_grad():
        return outputs(model, known_of(model), [row], [torch.arange(len(row)) >= len(PROMPT)], {want}, how)[want]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_what_the_sampler_records_is_computed_again(sampler: str, model: torch.nn.Module) -> None:
    """So ratios start at 1. A picture depends on its own key alone, not on what is drawn beside it."""
    set_denoising(model, known_of(model).__class__((3, 16, 16), (1,), 4, sampler, SAMPLERS[sampler].noise, at=3))
    one, other = draw(model, [5, 6])
    assert one.tokens.tolist() == draw(model, [5])[0].tokens.tolist() != other.tokens.tolist()
    assert len(one.tokens) == 3 and len(set(split(one.tokens.numpy())[0].tolist())) == 1
    assert logps(model, one).tolist() == pytest.approx(one.logp.tolist(), abs=1e-5)
    assert isinstance(one.canvas, Chain) and isinstance(other.canvas, Chain)
    assert torch.equal(one.canvas.states[0], other.canvas.states[0]) == SAMPLERS[sampler].same_start


def test_the_log_prob_of_a_step_by_hand(model: torch.nn.Module) -> None:
    """Step 1 of 4, from level 0.75 to 0.5, from the network's own velocity."""
    sample = draw(model, [7])[0]
    chain = sample.canvas
    assert isinstance(chain, Chain) and chain.levels == (1.0, 0.75, 0.5, 0.25, 0.0)
    x, after = chain.states[1].double(), chain.states[2].double()
    with torch.no_grad():
        v = model(chain.states[1][None], torch.tensor([0.75]), PROMPT[None], torch.ones(1, len(PROMPT)))[0].double()
    w2 = 0.49 * 0.75 / 0.25
    mean = x + (v + w2 / 1.5 * (x + 0.25 * v)) * -0.25
    each = -((after - mean) ** 2) / (2 * w2 * 0.25) - 0.5 * math.log(2 * math.pi * w2 * 0.25)
    assert float(logps(model, sample)[1]) == pytest.approx(float(each.mean()), abs=1e-5)


def test_half_the_squared_distance_of_drifts_is_the_kl_of_steps(model: torch.nn.Module, directory: Path) -> None:
    """mean over pixels of (mu - mu')^2 / (2 std^2), for two models on one chain."""
    sample = draw(model, [7])[0]
    other = load_model(flow_model(directory.parent / "other", seed=1), 0, torch.device("cpu"))
    chain = sample.canvas
    assert isinstance(chain, Chain)
    both = []
    for one in (model, other):
        with torch.no_grad():
            v = estimate(one, known_of(one), chain.states[:1], torch.ones(1), [PROMPT.numpy()], 1.0)
        levels = torch.ones(1, 1, 1, 1), torch.full((1, 1, 1, 1), 0.75)
        both.append(step("flow_sde", 0.7, 0.75, chain.states[:1], v, levels))
    wanted = ((both[0][0] - both[1][0]) ** 2 / (2 * both[0][1] ** 2)).mean()
    found = 0.5 * (logps(model, sample, "drift")[0] - logps(other, sample, "drift")[0]).square().sum()
    assert float(wanted) > 1e-4 and float(found) == pytest.approx(float(wanted), rel=1e-4)
    assert float(logps(model, sample, "std")[0]) == pytest.approx(float(both[0][1]))


def test_guidance_moves_away_from_no_caption(model: torch.nn.Module) -> None:
    """v = v_0 + g (v_c - v_0): 1 is the caption's own, 0 the one without; half way lies half way."""
    known, x = known_of(model), torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    captions, levels = [PROMPT.numpy(), PROMPT[:4].numpy()], torch.tensor([0.3, 0.8])
    with torch.no_grad():
        own, half, none = (estimate(model, known, x, levels, captions, g) for g in (1.0, 0.5, 0.0))
        free = estimate(model, known, x, levels, [np.array([1])] * 2, 1.0)
    assert torch.allclose(none, free, atol=1e-6) and not torch.allclose(none, own, atol=1e-3)
    assert torch.allclose(half, (own + none) / 2, atol=1e-6)


def test_a_given_picture_by_hand(model: torch.nn.Module, directory: Path) -> None:
    """-1/2 mean (v - (noise - picture))^2 at the level and with the noise of the row and the step of the run."""
    chat = load_chat(directory)
    task = Paint(2).task("train", 0)
    row = torch.cat([chat.prompt(task), chat.reply(task.given["demo"])])
    begin, values = len(row) - 1, []
    for at in (0, 1):
        known = Denoising((3, 16, 16), (1,), at=at)
        with torch.no_grad():
            found = outputs(model, known, [row], [torch.arange(len(row)) >= begin], {"logp"})["logp"]
        dice = generator("level", at, row.numpy().tobytes())
        level, pixels = float(dice.random()), drawn.pixels_in(task.given["demo"])
        assert pixels is not None
        noise = torch.from_numpy(dice.standard_normal((3, 16, 16)).astype(np.float32))
        x = (1 - level) * scaled(pixels) + level * noise
        with torch.no_grad():
            v = model(x[None], torch.tensor([level]), row[None, :begin], torch.ones(1, begin))[0]
        assert float(found) == pytest.approx(float(-0.5 * ((v - noise + scaled(pixels)) ** 2).mean()), abs=1e-5)
        values.append(float(found))
    assert values[0] != values[1]


def test_a_greedy_picture_is_the_odes(model: torch.nn.Module) -> None:
    """From its own noise; its steps have no log-prob."""
    one, again = draw(model, [5, 5], temperature=0.0)
    assert one.tokens.tolist() == again.tokens.tolist() and one.logp.tolist() == [0, 0, 0]
    chain = one.canvas
    assert isinstance(chain, Chain)
    with torch.no_grad():
        v = estimate(model, known_of(model), chain.states[:1], torch.ones(1), [PROMPT.numpy()], 1.0)
    assert torch.allclose(chain.states[1], chain.states[0] - 0.25 * v[0], atol=1e-5)
    with pytest.raises(ValueError, match="without noise"):
        logps(model, one)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda m: outputs(m, known_of(m), [PROMPT], [torch.arange(6) > 3], {"logp"}), "asked about words"),
        (lambda m: outputs(m, known_of(m), [PROMPT], [torch.arange(6) > 3], {"value"}), "has no value"),
        (
            lambda m: LocalEngine(TransformersRunner(m), Words(), 256).generate([Request(PROMPT, 1, 8, top_p=0.5)]),
            "leave out --top-p",
        ),
    ],
)
def test_what_it_cannot_do_is_said_in_a_sentence(
    ask: Callable[[torch.nn.Module], object], words: str, model: torch.nn.Module
) -> None:
    with pytest.raises(ValueError, match=words):
        ask(model)


def test_a_reply_is_a_png_and_back(directory: Path, tmp_path: Path) -> None:
    """The text of a reply holds the picture; a file of another size and format is read by Pillow."""
    from PIL import Image

    chat, task = load_chat(directory), Paint(3).task("train", 4)
    tokens = chat.reply(task.given["demo"])
    assert chat.text(tokens) == task.given["demo"] and len(tokens) == 1
    Image.new("RGB", (40, 40), (200, 10, 30)).save(tmp_path / "a.jpg", quality=95)
    key = int(split(chat.reply(str(tmp_path / "a.jpg")).numpy())[0][0])
    assert drawn.pixels_of(key).shape == (16, 16, 3) and abs(int(drawn.pixels_of(key)[8, 8, 0]) - 200) < 6
    with pytest.raises(ValueError, match="is no picture"):
        chat.reply("a red square")
    unknown = torch.from_numpy(ids_of(12345, 2))
    assert chat.text(unknown) == "<image>"
