"""AgentRefine: Enhancing Agent Generalization through Refinement Tuning (arXiv 2501.01702).

Which demonstrations of agents are kept: those that succeed, and hold mistakes that were mended.
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.method import Method, Option, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.tasks.refined import FAULTS, Refined, refinements

AGENTREFINE = Paper(
    "agentrefine", "2501.01702", "AgentRefine: Enhancing Agent Generalization through Refinement Tuning"
)

METRICS = (
    (
        "faulty_replies",
        "What was kept",
        "share of the demonstrated replies that are no valid action, which are not trained on",
    ),
)


@supplies("tag:refined")
def refined(least: int = 1) -> Part:
    """Only conversations that end in success with at least so many refinements; their traces get the tag "refined".

    A refinement is a faulty reply followed by one without a fault (given "faults"). A conversation succeeds if its
    column `success` does not say otherwise and its last reply has no fault.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            faults = group.task.given[FAULTS]
            succeeded = group.task.given.get("success", True) and not (faults and faults[-1])
            step.notes.add("faulty_replies", sum(bool(fault) for fault in faults), max(1, len(faults)))
            if group.traces and succeeded and refinements(faults) >= least:
                kept.append(group)
                for trace in group.traces:
                    trace.tags = trace.tags | {"refined"}
        step.notes.add("dropped/not_refined", len(groups) - len(kept), max(1, len(groups)))
        return kept

    return Part(
        name=f"refined({least})",
        call=call,
        reads=frozenset({f"given:{FAULTS}"}),
        writes=frozenset({"tag:refined"}),
        updates=frozenset({"tokens:demo"}),
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
        select=refined(refinements),
        credit=credit.claim("sft", "demo", tag="refined"),
        learn=learn.Learn(learn.imitate(on=learn.CLAIMED), updates=updates),
        models=roles(),
    )
