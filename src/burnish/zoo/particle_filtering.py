"""A Probabilistic Inference Approach to Inference-Time Scaling of LLMs using Particle-Based Monte Carlo Methods
(arXiv 2502.01618).
"""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score, select
from burnish.method import Method, Option, Sampling, chain, frozen, method, roles
from burnish.methods import register
from burnish.papers import Paper

PARTICLE_FILTERING = Paper(
    "particle-based-inference-scaling",
    "2502.01618",
    "A Probabilistic Inference Approach to Inference-Time Scaling of LLMs using Particle-Based Monte Carlo Methods",
)


@register(
    PARTICLE_FILTERING,
    family="decoding",
    summary="Grow n replies step by step; a process reward model decides which are copied and which are dropped.",
    when="You have a process reward model, and best-of-n spends most of its replies on beginnings that went wrong.",
    trial={"prm": "tiny", "n": 2},
)
def particle_filter(
    task: draw.Source,
    *,
    prm: Annotated[str, Option("A process reward model (burnish train process_reward_model).")],
    n: Annotated[int, Option("Particles: replies that grow together.", at_least=1)] = 8,
    step_by: Annotated[
        str, Option("What a step is, as the model was trained: lines, paragraphs, after:TEXT.")
    ] = "lines",
    spread: Annotated[float, Option("Divides the scores before the softmax: larger copies less.", above=0)] = 1.0,
    most_steps: Annotated[int, Option("Steps of a reply, at most; the last goes to its end.", at_least=1)] = 40,
) -> Method:
    """Particle filtering with a process reward model.

    s_i = sigmoid(h_i), the chance that particle i's last step is right
    w_i = softmax_i( logit(s_i) / spread ) = softmax_i( h_i / spread );  n are drawn anew by w, with replacement

    Each particle is extended by one step, all are weighed, drawn anew, and so on; finished ones stay in the pool and
    take part. The answer is the particle with the highest last score. At spread 1 the weight is s / (1 - s); spread ->
    infinity draws uniformly; n = 1 is plain sampling. Weights come from the present score alone, as in the authors'
    code. Departures: particle Gibbs, tempering and a threshold of the effective sample size are left out; lines are
    steps by default, where the authors' are paragraphs; the temperature is that of all steps.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.particles(n, steps=step_by, spread=spread, most=most_steps),
        score=score.scoring(task, None),
        select=chain(select.keep_best(1, "prm"), select.keep_best(1)),  # the answer; its own score is noted
        learn=learn.Learn(),
        models=roles(prm=frozen(prm, outputs=1)),
        sampling=Sampling(0.8),
    )
