"""How a job behaves from few GPUs to thousands, synchronous and with a lag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from burnish.simulator.costs import Rates, decode_slots
from burnish.simulator.simulate import CALM, Job, Placement, Trouble, simulate

TRAINED = 18.0  # bytes of a trained weight: bf16, fp32 master, gradient and two moments, divided over the trainers
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


@dataclass(frozen=True)
class Point:
    """One simulated size of a cluster. samplers: the share of the GPUs that sample, of those that were tried; 0: all
    GPUs do both in turns; idle: of all GPUs."""

    gpus: int
    lag: int
    samplers: float
    step_seconds: float
    tokens_per_second: float
    idle: float
    staleness: float
    failures: int

    def told(self) -> dict[str, float]:
        """As numbers with four digits, for a file."""
        return {name: float(f"{value:.4g}") for name, value in asdict(self).items()}


def engine_size(job: Job, most: int) -> int | None:
    """The fewest GPUs that hold an engine with at least eight replies; None if `most` do not."""
    sizes = [size for size in (1, 2, 4, 8, 16, 32) if size <= most]
    length = job.lengths.mean + job.prompt
    return next((size for size in sizes if decode_slots(job.model, job.gpu, size, length) >= 8), None)


def best_split(job: Job, gpus: int, lag: int, rates: Rates, trouble: Trouble, steps: int = 3) -> Point | None:
    """The fastest of the ways to divide so many GPUs; None where the model fits none of them."""
    tensor = engine_size(job, gpus if not lag else gpus // 2)
    if tensor is None:
        return None
    shares = (
        sorted({round(gpus * share / tensor) * tensor for share in (0.25, 0.375, 0.5, 0.625, 0.75)}) if lag else [0]
    )
    points = []
    for samplers in shares:
        if lag and not tensor <= samplers < gpus:
            continue
        if TRAINED * job.model.weights > 0.8 * job.gpu.memory * (gpus - samplers):
            continue
        place = Placement(gpus - samplers, samplers, tensor, lag=lag)
        outcome = simulate(job, place, rates, steps=steps + lag, trouble=trouble)
        sampling = place.sampling / gpus
        learning = place.trainers / gpus
        idle = (
            sampling * outcome.sampler_idle + learning * outcome.trainer_idle
            if samplers
            else max(0.0, outcome.sampler_idle + outcome.trainer_idle - 1)
        )
        points.append(
            Point(
                gpus,
                lag,
                samplers / gpus,
                outcome.step_seconds,
                outcome.tokens_per_second,
                idle,
                outcome.staleness,
                outcome.failures,
            )
        )
    return max(points, key=lambda point: point.tokens_per_second, default=None)


def scaling(
    job: Job, rates: Rates, sizes: Sequence[int] = SIZES, lags: Sequence[int] = (0, 1, 4), trouble: Trouble = CALM
) -> list[Point]:
    """Points of every size and lag that the model fits; the batch stays the same."""
    points = [best_split(job, gpus, lag, rates, trouble) for lag in lags for gpus in sizes]
    return [point for point in points if point is not None]
