"""Which placement of a run on a cluster is fastest: every one that fits into memory is simulated.

Colocated: all GPUs sample, then all learn. Split: some sample while the others learn, one or more weight versions apart.
Rows `hybridflow` (arXiv 2409.19256) and `realhf` (2406.14088) of the literature choose placements so; they search a
larger space (a placement and degrees for each model of the run), here all models of a run are where the trainer is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from burnish.cluster.costs import Rates, Work, decode_slots, learn_seconds
from burnish.cluster.hardware import Cluster
from burnish.cluster.simulate import Job, Placement, simulate

# What burnish reaches on an H200 with models of 135M to 8B weights, roundly (benchmarks/results/large_models.json).
OURS = Rates(training=0.5, expert_training=0.2, decoding=0.6, launch=25e-6, fixed=0.1)
USABLE = 0.9  # of a GPU's memory; the rest is the allocator's and CUDA's
SHARES = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75)


@dataclass(frozen=True)
class Fit:
    """How the trainer fits on so many GPUs: what is sharded, and the bytes that each GPU holds at the peak."""

    shard: str
    bytes: float


@dataclass(frozen=True)
class Candidate:
    """One placement, with what is predicted of it. idle: the share of all GPU seconds in which nothing is computed."""

    placement: Placement
    fit: Fit
    seconds: float
    tokens_per_second: float
    idle: float
    staleness: float

    @property
    def title(self) -> str:
        """In words: colocated, or split a + b with its lag."""
        place = self.placement
        if not place.samplers:
            return "all GPUs sample, then learn"
        return f"{place.samplers} sample, {place.trainers} learn, lag {place.lag}"


def candidates(
    job: Job, cluster: Cluster, fits: Callable[[int], Fit | None], rates: Rates, lags: Sequence[int] = (1, 2, 4)
) -> list[Candidate]:
    """All placements that fit, the fastest first. fits: how the trainer fits on a number of GPUs, None if it does not."""
    found = []
    for place in _placements(job, cluster.gpus, lags):
        fit = fits(place.trainers)
        if fit is None or fit.bytes > USABLE * job.gpu.memory:
            continue
        told = simulate(job, place, rates, steps=2 + place.lag)
        sampling, learning = place.sampling / place.gpus, place.trainers / place.gpus
        idle = (
            sampling * told.sampler_idle + learning * told.trainer_idle
            if place.samplers
            else max(0.0, told.sampler_idle + told.trainer_idle - 1)
        )
        found.append(Candidate(place, fit, told.step_seconds, told.tokens_per_second, idle, told.staleness))
    return sorted(found, key=lambda one: -one.tokens_per_second)


def _placements(job: Job, gpus: int, lags: Sequence[int]) -> Iterator[Placement]:
    length = job.lengths.mean + job.prompt
    for tensor in (1, 2, 4, 8, 16):
        if tensor > gpus or decode_slots(job.model, job.gpu, tensor, length) < 1:
            continue
        yield Placement(gpus, 0, tensor)
        for samplers in sorted({round(gpus * share / tensor) * tensor for share in SHARES}):
            if tensor <= samplers < gpus:
                yield from (Placement(gpus - samplers, samplers, tensor, lag=lag) for lag in lags)


def given_seconds(job: Job, gpus: int, rates: Rates, rows: int) -> float:
    """A step of a method that learns from given rows."""
    tokens = rows * (job.lengths.mean + job.prompt)
    work = Work(rows, tokens, job.lengths.longest + job.prompt, job.updates, job.passes)
    return learn_seconds(job.model, job.gpu, rates, gpus, Placement(gpus).parallel, work) + rates.fixed
