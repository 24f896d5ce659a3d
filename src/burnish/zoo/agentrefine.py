"""AgentRefine: Enhancing Agent Generalization through Refinement Tuning (arXiv 2501.01702)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.method import Method, Option, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.tasks.refined import Refined

AGENTREFINE = Paper(
    "agentrefine", "2501.01702", "AgentRefine: Enhancing Agent Generalization through Refinement Tuning"
)


@register(
    AGENTREFINE,
    family="agents",
    summary="SFT on an agent's conversations in which mistakes are read but not trained on, and their mending is.",
    when="Trajectories contain invalid actions and the environment's complaints, and the model should learn to mend.",
    example="burnish train agentrefine --task my_trajectories.jsonl",
    trial={"refinements": 0, "updates": 1},
)
def agentrefine(
    task: draw.Source,
    *,
    refinements: Annotated[int, Option("Mended mistakes that a conversation must hold.", at_least=0)] = 1,
    updates: opt.Updates = 1,
) -> Method:
    """Refinement tuning.

    L = -(1 / N) sum over turns k of m_k log pi(thought_k, action_k | history), N the tokens with m_k = 1
    m_k = 0 where the reply is no valid action: no "Thought: ... Action: ...", an unknown action, wrong arguments

    Faulty replies and the feedback on them stay in the context. Kept are conversations that end in success and hold at
    least so many refinements, a fault followed by a valid reply; 1 is ours. The columns `actions` and `slots` (or
    `tools`) of a row say what is valid, `success` how it ended. Conversations without faults and refinements = 0 are
    SFT. Left out: the writing of scripts and trajectories by a model that plays game master and player; the data is
    given.
    """
    source = Refined(task)
    return method(
        draw=draw.demos(source),
        rollout=rollout.demonstrated(),
        select=select.refined(refinements),
        credit=credit.claim("sft", "demo", tag="refined"),
        learn=learn.Learn(learn.imitate(on=learn.CLAIMED), updates=updates),
        models=roles(),
    )
