"""ESSA: Evolutionary Strategies for Scalable Alignment (arXiv 2507.04453).

Separable CMA-ES: a normal distribution with a diagonal covariance that moves towards what scores best.

Hansen, "The CMA Evolution Strategy: A Tutorial" (arXiv 1604.00772); the diagonal form is that of Ros and Hansen, "A
Simple Modification in CMA-ES Achieving Linear Time and Space Complexity" (2008). Of n numbers and lambda candidates:

    x_i = m + sigma y_i,   y_i = sqrt(c) z_i,   z_i ~ N(0, I);   sorted by fitness, the best first
    w_i = (ln(mu + 1/2) - ln i) / sum,  i = 1 .. mu,  mu = lambda / 2;    mu_eff = 1 / sum w_i^2
    m     <- m + sigma y_w,  y_w = sum w_i y_i,  z_w = sum w_i z_i
    p_s   <- (1 - c_s) p_s + sqrt(c_s (2 - c_s) mu_eff) z_w
    sigma <- sigma exp( c_s / d_s (|p_s| / E|N(0, I)| - 1) )
    h     =  1 where |p_s| / sqrt(1 - (1 - c_s)^(2 (g + 1))) < (1.4 + 2 / (n + 1)) E|N(0, I)|, else 0
    p_c   <- (1 - c_c) p_c + h sqrt(c_c (2 - c_c) mu_eff) y_w
    c     <- (1 - c_1 - c_mu + (1 - h) c_1 c_c (2 - c_c)) c + c_1 p_c^2 + c_mu sum w_i y_i^2

    c_s = (mu_eff + 2) / (n + mu_eff + 5),   d_s = 1 + c_s + 2 max(0, sqrt((mu_eff - 1) / (n + 1)) - 1)
    c_c = (4 + mu_eff / n) / (n + 4 + 2 mu_eff / n),   E|N(0, I)| = sqrt(n) (1 - 1 / (4 n) + 1 / (21 n^2))
    c_1 = (n + 2) / 3 x 2 / ((n + 1.3)^2 + mu_eff)
    c_mu = min(1 - c_1, (n + 2) / 3 x 2 (mu_eff - 2 + 1 / mu_eff) / ((n + 2)^2 + mu_eff))

(n + 2) / 3 is the diagonal form's; without it c_1 and c_mu are the tutorial's. Departure, for scores of few values:
candidates that tie share their weights equally, so that their order decides nothing, and where all tie nothing moves.

LoRA adapters as a short vector: the singular values of their factors, which alone move.

A population of adapters around the policy: CMA-ES on their singular values (ESSA, arXiv 2507.04453).

Replies of a population: every candidate of a step answers the same prompts with the same noise.

What a candidate of a population is worth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from burnish import draw, learn, score
from burnish.core import randomness
from burnish.core.parts import Part, Rollout, supplies
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.learn.search import Search
from burnish.method import Method, Option, method, roles, snapshot
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.sample import sample

ESSA = Paper("essa", "2507.04453", "ESSA: Evolutionary Strategies for Scalable Alignment")

METRICS = (
    ("evolution/sigma", "Learning", "step size of CMA-ES after the step, in multiples of the singular values"),
    (
        "evolution/distance",
        "Learning",
        "root mean square of how far the singular values have moved, in multiples of them",
    ),
    ("start_kl", "Learning", "mean over reply tokens of log-prob minus that of the policy at the start of the run"),
)


Vector = NDArray[np.float64]

NOTES = {"candidate": "the number of the candidate that wrote it"}


def default_population(n: int) -> int:
    """lambda = 4 + floor(3 ln n), the tutorial's."""
    return 4 + math.floor(3 * math.log(n))


def recombination_weights(population: int) -> Vector:
    """[lambda]: the weight of each candidate by its rank, the best first; those behind the best half have none."""
    mu = population // 2
    weights = np.zeros(population)
    weights[:mu] = math.log(mu + 0.5) - np.log(np.arange(1, mu + 1))
    shares: np.ndarray = weights / weights.sum()
    return shares


def weights_by_fitness(fitness: Sequence[float]) -> Vector:
    """[lambda]: the weight of each candidate, in the order given; the highest fitness is best, ties share equally."""
    values = np.asarray(fitness, dtype=np.float64)
    by_rank = recombination_weights(len(values))
    order = np.argsort(-values, kind="stable")
    found = np.empty(len(values))
    found[order] = by_rank
    for value in np.unique(values):
        found[values == value] = found[values == value].mean()
    return found


class CMAES:
    """The distribution over vectors of n numbers: `ask` for candidates, `tell` their fitness, which is maximised.

    Both take the candidates' noise [lambda, n], so that nothing but the numbers of `state_dict` decides what follows.
    sigma = 0 never moves.
    """

    def __init__(self, start: Vector, sigma: float, population: int) -> None:
        if population < 2:
            raise ValueError(f"a population of {population} has no better half; it must be at least 2")
        n, weights = len(start), recombination_weights(population)
        self.mean, self.sigma, self.population = np.array(start, dtype=np.float64), float(sigma), population
        self.variances, self.generation = np.ones(n), 0
        self.path_sigma, self.path_c = np.zeros(n), np.zeros(n)
        self.mu_eff = float(1 / np.square(weights).sum())
        self.c_sigma = (self.mu_eff + 2) / (n + self.mu_eff + 5)
        self.d_sigma = 1 + self.c_sigma + 2 * max(0.0, math.sqrt((self.mu_eff - 1) / (n + 1)) - 1)
        self.c_c = (4 + self.mu_eff / n) / (n + 4 + 2 * self.mu_eff / n)
        diagonal = (n + 2) / 3
        self.c_1 = min(1.0, diagonal * 2 / ((n + 1.3) ** 2 + self.mu_eff))
        c_mu = diagonal * 2 * (self.mu_eff - 2 + 1 / self.mu_eff) / ((n + 2) ** 2 + self.mu_eff)
        self.c_mu = min(1 - self.c_1, c_mu)
        self.expected_norm = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))

    def ask(self, noise: Vector) -> Vector:
        """The candidates [lambda, n] of this noise, which is standard normal."""
        return self.mean + self.sigma * np.sqrt(self.variances) * noise

    def tell(self, noise: Vector, fitness: Sequence[float]) -> None:
        """Move towards the candidates of this noise with the highest fitness."""
        assert noise.shape == (self.population, len(self.mean)) and len(fitness) == self.population
        self.generation += 1
        if len(set(fitness)) == 1:
            return
        w, steps = weights_by_fitness(fitness), np.sqrt(self.variances) * noise
        y, z = w @ steps, w @ noise
        self.mean = self.mean + self.sigma * y
        keep, add = 1 - self.c_sigma, math.sqrt(self.c_sigma * (2 - self.c_sigma) * self.mu_eff)
        self.path_sigma = keep * self.path_sigma + add * z
        length = float(np.linalg.norm(self.path_sigma))
        settled = math.sqrt(1 - keep ** (2 * self.generation))
        h = float(length / settled < (1.4 + 2 / (len(self.mean) + 1)) * self.expected_norm)
        spread = self.c_c * (2 - self.c_c)
        self.path_c = (1 - self.c_c) * self.path_c + h * math.sqrt(spread * self.mu_eff) * y
        kept = 1 - self.c_1 - self.c_mu + (1 - h) * self.c_1 * spread
        self.variances = kept * self.variances + self.c_1 * self.path_c**2 + self.c_mu * (w @ steps**2)
        self.sigma *= math.exp(self.c_sigma / self.d_sigma * (length / self.expected_norm - 1))

    def state_dict(self) -> State:
        return {
            "mean": self.mean.tolist(),
            "sigma": self.sigma,
            "variances": self.variances.tolist(),
            "path_sigma": self.path_sigma.tolist(),
            "path_c": self.path_c.tolist(),
            "generation": self.generation,
        }

    def load_state_dict(self, state: State) -> None:
        for name in ("mean", "variances", "path_sigma", "path_c"):
            setattr(self, name, np.array(state[name], dtype=np.float64))
        self.sigma, self.generation = float(state["sigma"]), int(state["generation"])


def factors_of(module: nn.Module) -> dict[str, nn.Parameter]:
    """The factors A and B of every adapter, by name; empty where the model has no adapters."""
    return {name: p for name, p in module.named_parameters() if ".lora_A." in name or ".lora_B." in name}


class SingularValues:
    """The map from a vector x [size] to adapters, around those of the start (ESSA, arXiv 2507.04453).

        M(x) = M_0 + U_k diag(scale x_M) V_k^T,   M_0 = U diag(s) V^T, for each factor M (A or B of an adapter)

    k is the number of largest singular values that are kept, ceil(share rank) of each factor; U and V stay. scale is
    the mean of the kept values of the factor, so that x counts in multiples of them. A factor of zeros, as the B of
    fresh adapters is, takes the scale of its partner. x = 0 gives the start bit for bit.
    """

    def __init__(self, start: Mapping[str, Tensor], share: float) -> None:
        self.start = {name: factor.detach().clone() for name, factor in start.items()}
        self.parts: list[tuple[str, Tensor, Tensor]] = []  # name, U_k scale, V_k^T
        kept = {name: _largest(factor, share) for name, factor in self.start.items()}
        for name, (u, s, v) in kept.items():
            scale = float(s.mean()) or float(kept.get(_partner(name), (u, s, v))[1].mean())
            factor = self.start[name]
            left, right = (part.to(factor.device, torch.float32) for part in (u * scale, v))
            self.parts.append((name, left.contiguous(), right.contiguous()))
        self.size = sum(v.shape[0] for _, _, v in self.parts)

    @torch.no_grad()
    def write(self, x: NDArray[np.float64], module: nn.Module) -> None:
        """Set the adapters of a model to those of x."""
        place, begin = factors_of(module), 0
        for name, left, right in self.parts:
            mine = torch.from_numpy(x[begin : begin + right.shape[0]]).to(left)
            place[name].copy_(self.start[name] + ((left * mine) @ right).to(self.start[name].dtype))
            begin += right.shape[0]


def _largest(factor: Tensor, share: float) -> tuple[Tensor, Tensor, Tensor]:
    """U [m, k], s [k], V^T [k, n] of the largest singular values, in fp64 on the CPU."""
    u, s, v = torch.linalg.svd(factor.detach().cpu().double(), full_matrices=False)
    k = math.ceil(share * len(s))
    return u[:, :k], s[:k], v[:k]


def _partner(name: str) -> str:
    """The other factor of the same adapter."""
    return name.replace(".lora_B.", ".lora_A.") if ".lora_B." in name else name.replace(".lora_A.", ".lora_B.")


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

    def state_dict(self) -> State:
        return self._search.state_dict() if self._search is not None else dict(self._saved)

    def load_state_dict(self, state: State) -> None:
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


def by_population(population: Population, n: int = 1) -> Rollout:
    """n replies per task by each candidate, in one group; a trace's note says which candidate wrote it.

    Reply j of every candidate has the same sampling key (common random numbers), so that candidates differ by their
    weights alone. While a candidate writes, the policy's weights are the candidate's; afterwards they are as before.
    """
    plain = sample(n, who=population.who)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        groups = [Group(task, []) for task in tasks]
        for i in population.members(step):
            for group, found in zip(groups, plain.call(tasks, step), strict=True):
                group.traces += [
                    replace(trace, index=i * n + trace.index, note={**trace.note, CANDIDATE: i})
                    for trace in found.traces
                ]
        return groups

    return Rollout(
        name=f"by_population({n})",
        call=call,
        reads=plain.reads | {f"model:{population.start}.logp"},
        writes=plain.writes,
        state=(population,),
    )


@supplies("stream:fitness")
def fitness(population: Population, *, score: str = "reward") -> Part:
    """Stream "fitness": the mean score of all replies that the same candidate wrote, over the whole batch."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        scores: dict[int, list[float]] = {}
        for trace in traces:
            scores.setdefault(trace.note[CANDIDATE], []).append(trace.scores[score])
        means = {candidate: sum(own) / len(own) for candidate, own in scores.items()}
        for trace in traces:
            trace.streams["fitness"] = torch.full((len(trace),), means[trace.note[CANDIDATE]], dtype=torch.float64)
        return groups

    return Part(
        name="fitness",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"stream:fitness"}),
        state=(population,),  # learning moves it, and sampling needs it moved
    )


NEVER = 2**62  # steps: a snapshot that is due then stays as it was loaded
START = snapshot("policy", offset=NEVER)


@register(
    ESSA,
    family="policy",
    summary="An evolution strategy on the singular values of LoRA adapters: no gradient, no optimiser state.",
    when="Backward passes do not fit or are not possible, sampling is cheap, and an SFT run has made adapters.",
    example="burnish train essa --lora 8 --prompts 64 --population 24",
    trial={"n": 1, "population": 4, "lora": 2},
)
def essa(
    task: draw.Source,
    *,
    population: Annotated[
        int, Option("Candidates of a step; 0: 4 + floor(3 ln n) for n singular values.", at_least=0)
    ] = 96,
    sigma: Annotated[
        float, Option("First step size, in multiples of the singular values; 0 moves nothing.", at_least=0)
    ] = 1.0,
    share: Annotated[
        float, Option("Share of the singular values of each factor that moves, the largest.", above=0, at_most=1)
    ] = 0.4,
    n: Annotated[int, Option("Replies of each candidate to each prompt.", at_least=1)] = 1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """ESSA: CMA-ES on the singular values of LoRA factors; a step is one generation, of forward passes alone.

    A = U_A diag(s_A) V_A^T, B = U_B diag(s_B) V_B^T of each adapter at the start;  U and V stay, x = (s_A, s_B, ...)
    x_i = m + sigma sqrt(c) z_i;  f_i = mean reward of candidate i over the step's prompts;  m, sigma, c by CMA-ES

    All candidates answer the same prompts with the same sampling keys. The policy is the mean m. The formulas of CMA-ES
    are in zoo/essa.py. sigma = 0 is the model at the start. It needs --lora; start from the adapters of an SFT
    run (--model DIR --lora RANK). The best populations of the paper are about 192, the top share 40%, ranks 8 to 64.
    Departures: the covariance is diagonal; s moves in multiples of the mean of each factor's moving values, and a
    factor of zeros (fresh adapters) takes its partner's; the paper's first step size could not be read; candidates
    that tie share their weights. Weights of four bits are --quantization nf4, not INT4.
    """
    candidates = Population(population, sigma, share)
    return method(
        draw=draw.prompts(task),
        rollout=by_population(candidates, n),
        score=score.scoring(task, reward_model),
        credit=fitness(candidates),
        learn=learn.Learn(search=evolve(candidates)),
        models=roles(start=START, **score.rm_role(reward_model)),
    )
