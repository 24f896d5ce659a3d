"""Separable CMA-ES: a normal distribution with a diagonal covariance that moves towards what scores best.

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
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def default_population(n: int) -> int:
    """lambda = 4 + floor(3 ln n), the tutorial's."""
    return 4 + math.floor(3 * math.log(n))


def recombination_weights(population: int) -> Vector:
    """[lambda]: the weight of each candidate by its rank, the best first; those behind the best half have none."""
    mu = population // 2
    weights = np.zeros(population)
    weights[:mu] = math.log(mu + 0.5) - np.log(np.arange(1, mu + 1))
    return weights / weights.sum()


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

    def state_dict(self) -> dict[str, Any]:
        return {
            "mean": self.mean.tolist(),
            "sigma": self.sigma,
            "variances": self.variances.tolist(),
            "path_sigma": self.path_sigma.tolist(),
            "path_c": self.path_c.tolist(),
            "generation": self.generation,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in ("mean", "variances", "path_sigma", "path_c"):
            setattr(self, name, np.array(state[name], dtype=np.float64))
        self.sigma, self.generation = float(state["sigma"]), int(state["generation"])
