"""CMA-ES against numbers derived by hand, the singular values of adapters, and ESSA as a whole."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import SMALL, coin
from torch import Tensor, nn

import burnish
from burnish.core.loop import loop
from burnish.core.method import Method
from burnish.core.step import Step
from burnish.core.types import Clock
from burnish.models.build import Models, build
from burnish.models.lora import Lora
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded
from burnish.zoo.essa import (
    CANDIDATE,
    CMAES,
    Population,
    SingularValues,
    default_population,
    essa,
    factors_of,
    recombination_weights,
    weights_by_fitness,
)

TASK = rewarded(source("sort"), coin)
NAME = "layer.lora_{}.default.weight"


# --------------------------------------------------------------------------------------------------------------- CMA-ES


def test_weights_and_population_by_hand() -> None:
    """lambda 4: ln 2.5 = .916 and ln 2.5 - ln 2 = .223, divided by 1.139. n 10: 4 + floor(6.9) = 10."""
    assert recombination_weights(4).tolist() == pytest.approx([0.8042, 0.1958, 0, 0], abs=1e-4)
    assert default_population(10) == 10


def test_ties_share_their_weights() -> None:
    """The two best of four tie: each has (.804 + .196) / 2. The last three of four tie: each has .196 / 3."""
    assert weights_by_fitness([0.0, 1.0, 0.5, 1.0]).tolist() == pytest.approx([0, 0.5, 0, 0.5])
    assert weights_by_fitness([0.0, 0.0, 1.0, 0.0]).tolist() == pytest.approx(
        [0.0653, 0.0653, 0.8042, 0.0653], abs=1e-4
    )


def test_one_generation_by_hand() -> None:
    """n = 1, lambda = 4, m = 1, sigma = 0.5, noise (1, -1, 2, 0) with fitness equal to the noise.

    The best are z = 2 and z = 1: z_w = .8042 x 2 + .1958 = 1.8042, so m = 1 + .5 x 1.8042 = 1.9021.
    mu_eff = 1 / (.8042^2 + .1958^2) = 1.4598;  c_s = 3.4598 / 7.4598 = .4638;
    p_s = sqrt(.4638 x 1.5362 x 1.4598) x 1.8042 = 1.0199 x 1.8042 = 1.8400;  E|N| = 1 - 1/4 + 1/21 = .7976
    d_s = 1 + .4638 + 2 max(0, sqrt(.4598 / 2) - 1) = 1.4638
    sigma = .5 exp(.4638 / 1.4638 x (1.8400 / .7976 - 1)) = .5 exp(.3168 x 1.3069) = .7565
    h: 1.8400 / sqrt(1 - .5362^2) = 2.1801 > 2.4 x .7976 = 1.9143, so h = 0 and p_c = 0
    c_c = 5.4598 / 7.9196 = .6894;  c_1 = 2 / (5.29 + 1.4598) = .2963;
    c_mu = 2 (1.4598 - 2 + .6850) / (9 + 1.4598) = .0277
    c = 1 - .2963 - .0277 + .2963 x .6894 x 1.3106 + .0277 (.8042 x 4 + .1958) = .9437 + .0945 = 1.0382
    """
    search, noise = CMAES(np.ones(1), 0.5, 4), np.array([[1.0], [-1.0], [2.0], [0.0]])
    assert search.ask(noise).tolist() == [[1.5], [0.5], [2.0], [1.0]]
    search.tell(noise, [1.0, -1.0, 2.0, 0.0])
    assert search.mean.tolist() == pytest.approx([1.9021], abs=1e-4)
    assert search.path_sigma.tolist() == pytest.approx([1.8400], abs=2e-4)
    assert search.sigma == pytest.approx(0.7565, abs=2e-4)
    assert search.path_c.tolist() == [0.0]
    assert search.variances.tolist() == pytest.approx([1.0382], abs=2e-4)


def quadratic(x: np.ndarray) -> list[float]:
    """Its maximum is 0, at 3 in every coordinate; coordinates differ in steepness by a factor of 100."""
    return (-np.square(x - 3) @ np.logspace(0, 2, x.shape[1])).tolist()


def test_it_finds_the_maximum_of_a_quadratic_and_a_copy_of_its_state_does_the_same() -> None:
    dice, search = np.random.default_rng(0), CMAES(np.zeros(8), 0.5, 12)
    for _ in range(250):
        noise = dice.standard_normal((12, 8))
        twin = CMAES(np.zeros(8), 9.0, 12)
        twin.load_state_dict(search.state_dict())
        for one in (search, twin):
            one.tell(noise, quadratic(one.ask(noise)))
        assert twin.state_dict() == search.state_dict()
    assert np.abs(search.mean - 3).max() < 1e-4
    assert search.variances[0] > 10 * search.variances[-1], "the flat direction is searched further"


def test_nothing_moves_where_all_tie_or_sigma_is_0() -> None:
    noise = np.random.default_rng(0).standard_normal((6, 3))
    flat, still = CMAES(np.ones(3), 0.5, 6), CMAES(np.ones(3), 0.0, 6)
    flat.tell(noise, [1.0] * 6)
    still.tell(noise, list(range(6)))
    assert (flat.mean.tolist(), flat.sigma) == ([1, 1, 1], 0.5)
    assert (still.mean.tolist(), still.sigma) == ([1, 1, 1], 0.0)


# ------------------------------------------------------------------------------------------------------------- adapters


class Adapter(nn.Module):
    """The two factors of one adapter, under the names that peft gives them."""

    def __init__(self, a: Tensor, b: Tensor) -> None:
        super().__init__()
        self.layer = nn.ModuleDict(
            {
                f"lora_{name}": nn.ModuleDict({"default": nn.Linear(*m.shape[::-1], bias=False)})
                for name, m in _both(a, b)
            }
        )
        for name, m in _both(a, b):
            dict(self.named_parameters())[NAME.format(name)].data.copy_(m)


def _both(a: Tensor, b: Tensor) -> list[tuple[str, Tensor]]:
    return [("A", a), ("B", b)]


def test_singular_values_by_hand() -> None:
    """A = diag(4, 2) with its larger value searched: scale 4, so x = .5 gives 4 + 2 = 6. B = 0 has the same scale, and
    x = -.5 gives a matrix of rank 1 with the singular value 2."""
    module = Adapter(torch.diag(torch.tensor([4.0, 2.0])), torch.zeros(3, 2))
    space = SingularValues(factors_of(module), 0.5)
    assert space.size == 2
    space.write(np.array([0.5, -0.5]), module)
    a, b = (factors_of(module)[NAME.format(name)].detach() for name in "AB")
    torch.testing.assert_close(a, torch.diag(torch.tensor([6.0, 2.0])))
    torch.testing.assert_close(torch.linalg.svdvals(b), torch.tensor([2.0, 0.0]))


def test_the_start_comes_back_bit_for_bit_and_vectors_of_the_svd_stay() -> None:
    dice = torch.Generator().manual_seed(0)
    a, b = torch.randn(4, 9, generator=dice), torch.randn(7, 4, generator=dice)
    module = Adapter(a, b)
    space = SingularValues(factors_of(module), 0.5)
    assert space.size == 4
    space.write(np.array([0.1, -0.1, 0.2, 0.3]), module)
    moved = factors_of(module)[NAME.format("A")].detach()
    before, after = torch.linalg.svdvals(a), torch.linalg.svdvals(moved)
    scale = before[:2].mean()
    wanted = before + torch.tensor([0.1, -0.1, 0.0, 0.0]) * scale
    torch.testing.assert_close(after, wanted.sort(descending=True).values)
    space.write(np.zeros(4), module)
    assert torch.equal(factors_of(module)[NAME.format("A")], a) and torch.equal(factors_of(module)[NAME.format("B")], b)


# ----------------------------------------------------------------------------------------------------------------- ESSA


def started(method: Method, model: Path, rank: int = 4) -> Models:
    return build(method.models, model, SMALL, device="cpu", lora=Lora(rank))


def adapters(models: Models) -> Tensor:
    return torch.cat([p.detach().flatten().clone() for p in factors_of(models["policy"].module).values()])


def test_candidates_differ_by_their_weights_alone(small_model: Path) -> None:
    """With sigma 0 all candidates write the same; with a large one they do not, and the policy is itself again."""
    for sigma, same in ((0.0, True), (2.0, False)):
        method = essa(TASK, population=4, sigma=sigma)
        models = started(method, small_model)
        before, step = adapters(models), Step(Clock(0, 4), models, SMALL)
        phase = method.phases[0]
        groups = phase.rollout.call(phase.draw.call(step), step)
        assert [trace.note[CANDIDATE] for trace in groups[0].traces] == [0, 1, 2, 3]
        replies = {tuple(trace.turns[-1].tokens.tolist()) for trace in groups[0].traces}
        assert (len(replies) == 1) == same
        assert torch.equal(adapters(models), before)


def test_sigma_0_is_the_model_at_the_start(small_model: Path) -> None:
    method = essa(TASK, population=4, sigma=0.0)
    models = started(method, small_model)
    before = adapters(models)
    reports = list(loop(method, models, SMALL, steps=3))
    assert torch.equal(adapters(models), before)
    assert all(report.metrics["start_kl"] == pytest.approx(0, abs=1e-5) for report in reports)
    assert models["policy"].version == 3


def test_fitness_is_the_mean_reward_of_a_candidate_and_the_policy_moves_to_the_best(small_model: Path) -> None:
    method = essa(TASK, population=4, sigma=1.0, n=2)
    models = started(method, small_model)
    (report,) = loop(method, models, SMALL, steps=1)
    traces = [trace for group in report.groups["main"] for trace in group.traces]
    fitness = []
    for i in range(4):
        own = [trace for trace in traces if trace.note[CANDIDATE] == i]
        assert len(own) == 2 * SMALL.prompts
        fitness.append(sum(trace.scores["reward"] for trace in own) / len(own))
        assert all(float(trace.streams["fitness"][0]) == fitness[-1] for trace in own)
    assert len(set(fitness)) > 1
    population = method.phases[0].rollout.state[0]
    assert isinstance(population, Population)
    step = Step(Clock(0, 1), models, SMALL)
    wanted = weights_by_fitness(fitness) @ population.noise(step)
    np.testing.assert_allclose(population.prepare(step)[1].mean, wanted, atol=1e-12)
    assert report.metrics["evolution/best"] == max(fitness)
    assert report.metrics["start_kl"] > 0.001


def test_a_policy_without_adapters_is_refused(small_model: Path) -> None:
    method = essa(TASK, population=4)
    with pytest.raises(ValueError, match="the policy has none: add --lora 16"):
        next(loop(method, build(method.models, small_model, SMALL, device="cpu"), SMALL, steps=1))


def test_a_population_of_1_is_refused() -> None:
    with pytest.raises(ValueError, match="no better half"):
        essa(TASK, population=1)


def brief(completions: list[str]) -> list[float]:
    return [-float(len(text)) for text in completions]


@pytest.mark.slow
def test_it_learns_to_be_brief(small_model: Path) -> None:
    """From adapters that are not zero, as those of an SFT run are: replies of a random model become shorter."""
    method = essa(rewarded(source("sort"), brief), population=12, sigma=1.0, share=1.0)
    models, settings = started(method, small_model), replace(SMALL, prompts=6)
    for name in ("policy", "start"):
        dice = torch.Generator().manual_seed(0)
        for factor in factors_of(models[name].module).values():
            factor.data.copy_(0.3 * torch.randn(factor.shape, generator=dice))
        models[name].weights_moved()
    reports = list(loop(method, models, settings, steps=20))
    rewards = [report.metrics["reward"] for report in reports]
    assert sum(rewards[-4:]) / 4 > sum(rewards[:4]) / 4 + 1.0, rewards
    assert not math.isnan(reports[-1].metrics["start_kl"])


def test_it_goes_on_from_the_adapters_of_another_run(small_model: Path, tmp_path: Path) -> None:
    """Warm start: the adapters of an SFT run, whose singular values move, and a model that is saved."""
    common = {"task": "sort", "prompts": 2, "max_new_tokens": 8, "eval_tasks": 0, "device": "cpu", "lora": 2}
    first = burnish.train("sft", model=str(small_model), steps=2, lr=1e-2, out=str(tmp_path / "sft"), **common)
    reward = tmp_path / "reward.py"
    reward.write_text("def size(completions):\n    return [float(len(c)) for c in completions]\n")
    then = burnish.train(
        "essa",
        model=str(first.model),
        steps=2,
        population=4,
        sigma=0.5,
        reward=f"{reward}:size",
        out=str(tmp_path / "essa"),
        **common,
    )
    assert then.model is not None and (then.model / "adapter_model.safetensors").is_file()
    assert then.metrics[-1]["evolution/distance"] > 0
