"""Sharing is Caring: Efficient LM Post-Training with Collective RL Experience Sharing (arXiv 2509.08721)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

SAPO_SWARM = Paper(
    "swarm-sapo", "2509.08721", "Sharing is Caring: Efficient LM Post-Training with Collective RL Experience Sharing"
)


@register(
    SAPO_SWARM,
    family="policy",
    summary="GRPO on a run's own groups and on groups that other runs have shared as text, of any model.",
    when="Several runs on different machines, or of different models, work on the same kind of task.",
    example="burnish train sapo_swarm --swarm swarm --external 8",
)
def sapo_swarm(
    task: draw.Source,
    *,
    swarm: Annotated[
        str | None, Option("The folder that all nodes write to and read from; none: nothing is shared.")
    ] = None,
    external: Annotated[int, Option("Groups of other nodes in a step, J of the paper.", at_least=0)] = 16,
    node: Annotated[str | None, Option("The name of this node; by default the host's, and a random number.")] = None,
    recent: Annotated[int, Option("Newest files (steps) of each other node that are drawn from.", at_least=1)] = 4,
    n: opt.GroupSize = 8,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.28,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Swarm sampling policy optimisation (SAPO of Gensyn; `sapo` is another paper's).

    own: the step's prompts, n replies each, published as text with what came with the question
    external: J groups of other nodes, uniform among those whose rewards, by this node's verifier, are not all equal
    A_i = (r_i - mean r) / (std r + 1e-6) in each group, own or external;  no KL
    L = mean over replies of the mean over tokens of -min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A)

    rho = pi / pi_old, pi_old this node's policy before the update, also for external replies, as if it had written
    them. external = 0, or no swarm, is GRPO on the node's own groups. The paper's best mixture is half and half: 16
    external groups go with the default of 16 prompts. Departures: all own groups are trained on, where the paper may
    draw some; nodes share a folder and not a network. What is drawn depends on what others have written by then, so a
    run in a swarm is not repeatable bit for bit; a resumed run is the same node and replaces the files of steps that
    it repeats.
    """
    verify = score.verify(task)
    folder = select.SwarmFolder(swarm, node, recent) if swarm is not None else None
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=verify,
        select=select.with_swarm(folder, external, verify),
        credit=chain(credit.group_relative(), credit.old()),
        learn=learn.Learn(learn.pg_clip(eps_low, eps_high, norm=learn.seq_mean, on=("policy", "swarm"))),
        models=roles(),
    )
