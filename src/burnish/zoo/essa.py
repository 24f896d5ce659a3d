"""ESSA: Evolutionary Strategies for Scalable Alignment (arXiv 2507.04453)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, method, roles, snapshot
from burnish.methods import opt, register
from burnish.papers import Paper

ESSA = Paper("essa", "2507.04453", "ESSA: Evolutionary Strategies for Scalable Alignment")

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
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """ESSA: CMA-ES on the singular values of LoRA factors; a step is one generation, of forward passes alone.

    A = U_A diag(s_A) V_A^T, B = U_B diag(s_B) V_B^T of each adapter at the start;  U and V stay, x = (s_A, s_B, ...)
    x_i = m + sigma sqrt(c) z_i;  f_i = mean reward of candidate i over the step's prompts;  m, sigma, c by CMA-ES

    All candidates answer the same prompts with the same sampling keys. The policy is the mean m. The formulas of CMA-ES
    are in learn/cma_es.py. sigma = 0 is the model at the start. It needs --lora; start from the adapters of an SFT
    run (--model DIR --lora RANK). The best populations of the paper are about 192, the top share 40%, ranks 8 to 64.
    Departures: the covariance is diagonal; s moves in multiples of the mean of each factor's moving values, and a
    factor of zeros (fresh adapters) takes its partner's; the paper's first step size could not be read; candidates
    that tie share their weights. Weights of four bits are --quantization nf4, not INT4.
    """
    candidates = learn.Population(population, sigma, share)
    return method(
        draw=draw.prompts(task),
        rollout=rollout.by_population(candidates, n, temperature=temperature),
        score=score.scoring(task, reward_model),
        credit=credit.fitness(candidates),
        learn=learn.Learn(search=learn.evolve(candidates)),
        models=roles(start=START, **score.rm_role(reward_model)),
    )
