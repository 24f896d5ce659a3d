"""A population of adapters around the policy: CMA-ES on their singular values (ESSA, arXiv 2507.04453)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from burnish.core import randomness
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.learn.cma_es import CMAES, Vector, default_population
from burnish.learn.search import Search
from burnish.learn.singular_values import SingularValues, factors_of

NO_ADAPTERS = (
    "evolution moves the singular values of LoRA adapters, and the policy has none: add --lora 16, or with --model the "
    "adapters of an SFT run add --lora and their rank"
)
CANDIDATE = "candidate"  # in a trace's note: the number of the candidate that wrote it


class Population:
    """The candidates of each step, and the distribution that they are drawn from. Stateful.

    size   candidates of a step; 0: as many as CMA-ES takes by default, 4 + floor(3 ln n)
    sigma  the first step size, in multiples of the singular values
    share  of the singular values that are searched, the largest of each factor
    who    the model that moves; start: the model that stays as `who` was at the beginning

    Candidate i of a step is a function of the distribution, the seed, the step and i alone.
    """

    name = "population"

    def __init__(self, size: int, sigma: float, share: float, *, who: str = "policy", start: str = "start") -> None:
        if size == 1:
            raise ValueError("a population of 1 has no better half; it must be at least 2, or 0 for the default")
        self.size, self.sigma, self.share, self.who, self.start = size, sigma, share, who, start
        self._space: SingularValues | None = None
        self._search: CMAES | None = None
        self._saved: dict[str, Any] = {}

    def prepare(self, step: Step) -> tuple[SingularValues, CMAES]:
        """The space that is searched, and the distribution in it; made from the start's adapters at first."""
        if self._space is None or self._search is None:
            factors = factors_of(step.models[self.start].module)
            if not factors or not factors_of(step.models[self.who].module):
                raise ValueError(NO_ADAPTERS)
            self._space = SingularValues(factors, self.share)
            n = self._space.size
            self._search = CMAES(np.zeros(n), self.sigma, self.size or default_population(n))
            if self._saved:
                self._search.load_state_dict(self._saved)
        return self._space, self._search

    def noise(self, step: Step) -> Vector:
        """The noise [lambda, n] of a step's candidates."""
        space, search = self.prepare(step)
        clock = step.clock
        keys = ((clock.seed, "population", clock.step, clock.tick, i) for i in range(search.population))
        return np.stack([randomness.generator(*key).standard_normal(space.size) for key in keys])

    def members(self, step: Step) -> Iterator[int]:
        """The numbers of the candidates, one after the other; at each the model is that candidate, afterwards the mean
        again.
        """
        _, search = self.prepare(step)
        candidates = search.ask(self.noise(step))
        try:
            for i, x in enumerate(candidates):
                self._become(x, step)
                yield i
        finally:
            self._become(search.mean, step)

    def tell(self, fitness: list[float], step: Step) -> None:
        """Move the distribution towards the fittest candidates of the step, and the model to its mean."""
        _, search = self.prepare(step)
        search.tell(self.noise(step), fitness)
        self._become(search.mean, step)
        step.models[self.who].fresh = False
        step.notes.add("evolution/best", max(fitness))
        step.notes.add("evolution/spread", float(np.std(fitness)))
        step.notes.add("evolution/sigma", search.sigma)
        step.notes.add("evolution/distance", float(np.sqrt(np.mean(np.square(search.mean)))))

    def _become(self, x: Vector, step: Step) -> None:
        space, _ = self.prepare(step)
        model = step.models[self.who]
        step.models.before_move()
        space.write(x, model.module)
        model.weights_moved()
        model.send()

    def state_dict(self) -> dict[str, Any]:
        return self._search.state_dict() if self._search is not None else dict(self._saved)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._saved, self._search = dict(state), None


def evolve(population: Population) -> Search:
    """Moves the policy to where the fittest of its candidates are (stream "fitness")."""

    def call(groups: list[Group], step: Step) -> None:
        traces = [trace for group in groups for trace in group.traces]
        found = {trace.note[CANDIDATE]: float(trace.streams["fitness"][-1]) for trace in traces}
        _note_distance(traces, population, step)
        worst = min(found.values())  # also of a candidate whose replies were all dropped
        members = range(population.prepare(step)[1].population)
        population.tell([found.get(i, worst) for i in members], step)

    return Search("evolve", (population.who,), frozenset({"stream:fitness"}), call, NO_ADAPTERS)


def _note_distance(traces: list[Trace], population: Population, step: Step) -> None:
    """Add the metric start_kl: per sampled token, the candidate's log-prob minus that of the start."""
    masks = [trace.by(population.who) for trace in traces]
    start = step.models[population.start].streams(traces, masks, {"logp"}, step.settings.token_budget)
    for trace, mask, then in zip(traces, masks, start, strict=True):
        now = torch.cat([turn.logp for turn in trace.turns if turn.author == population.who and turn.logp is not None])
        step.notes.add("start_kl", float((now - then["logp"][mask]).sum()), len(now))
