"""Step times that other systems publish, by which the cost model is fitted and checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files

from burnish.run.step_time import GPUS
from burnish.simulator.costs import Parallel, Rates
from burnish.simulator.lengths import Lengths
from burnish.simulator.shapes import Costs
from burnish.simulator.simulate import Job, Outcome, Placement, simulate

PROMPT = 150  # tokens that a prompt of these rows is taken to have; the tables give lengths with it


@dataclass(frozen=True)
class Published:
    """One row of a table. degrees: tensor, context and pipeline of the trainer; mean: tokens with the prompt."""

    system: str
    gpu: str
    model: str
    lag: int
    gpus: int
    samplers: int
    tensor: int
    degrees: tuple[int, int, int]
    replies: int
    updates: int
    longest: int
    mean: int
    seconds: float

    @property
    def group(self) -> str:
        """Rows that share the rates of training: one release on one kind of GPU."""
        return f"{self.system}, {self.gpu}"

    def simulated(self, costs: Costs, rates: Rates) -> Outcome:
        """The simulated run of this row."""
        place = Placement(self.gpus - self.samplers, self.samplers, self.tensor, Parallel(*self.degrees), self.lag)
        lengths = Lengths(self.mean - PROMPT, self.longest - PROMPT)
        job = Job(costs, GPUS[self.gpu.lower()], self.replies, lengths, PROMPT, self.updates)
        return simulate(job, place, rates, steps=2 if self.lag else 1)


def published() -> tuple[dict[str, Costs], list[Published]]:
    """The models and the rows of published.json."""
    told = json.loads((files("burnish.simulator") / "published.json").read_text())
    models = {name: Costs(name, *sizes) for name, sizes in told["models"].items()}
    return models, [Published(**{**row, "degrees": tuple(row["degrees"])}) for row in told["rows"]]
