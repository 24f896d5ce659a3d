"""Improving Multi-Step Reasoning Abilities of Large Language Models with Direct Advantage Policy Optimization
(arXiv 2412.18279).

Candidates that differ enough to learn from.
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, supplies
from burnish.core.schedules import after, before
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.method import Method, Option, Phase, chain, frozen, roles, trained
from burnish.methods import opt, register
from burnish.papers import Paper

DIRECT_ADVANTAGE_PO = Paper(
    "direct-advantage-po",
    "2412.18279",
    "Improving Multi-Step Reasoning Abilities of Large Language Models with Direct Advantage Policy Optimization",
)


@supplies("tag:apart")
def apart(least: float, *, score: str) -> Part:
    """Of equal replies only the first stays; groups whose best and worst score less than `least` apart are dropped.

    What stays carries the tag "apart".
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            distinct = {tuple(trace.tokens.tolist()): trace for trace in reversed(group.traces)}
            group.traces = [trace for trace in group.traces if distinct[tuple(trace.tokens.tolist())] is trace]
            scores = [trace.scores[score] for trace in group.traces]
            if max(scores) - min(scores) >= least:
                kept.append(group)
            for trace in group.traces:
                trace.tags |= {"apart"}
        step.notes.add("dropped/too_close", len(groups) - len(kept), len(groups))
        return kept

    return Part(
        name=f"apart({least:g})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"tag:apart"}),
        updates=frozenset({"tokens:policy"}),
    )


@register(
    DIRECT_ADVANTAGE_PO,
    family="policy",
    summary="A critic of steps, trained first; then the policy's log-ratios are regressed to its advantages.",
    when="Reasoning falls into steps, and you can afford to price them once, offline, and then train without sampling.",
    trial={"solutions": 2, "completions": 2, "candidates": 4, "critic_steps": 1, "least": 0.0},
)
def direct_advantage_po(
    task: draw.Source,
    *,
    beta: Annotated[float, Option("How far the policy may go.", above=0)] = 0.01,
    solutions: Annotated[int, Option("Replies for each prompt that train the critic.", at_least=1)] = 6,
    completions: Annotated[int, Option("Continuations from each state (the paper: 16).", at_least=1)] = 8,
    candidates: Annotated[int, Option("Next steps sampled at a state.", at_least=2)] = 8,
    least: Annotated[float, Option("The least span of advantages at a state.", at_least=0)] = 0.1,
    critic_steps: Annotated[int, Option("Steps that train the critic.", at_least=1)] = 100,
    critic_lr: opt.CriticLR = 1.0,
) -> Method:
    """Direct advantage policy optimisation: steps of reasoning are lines, the starting policy ref writes them.

    Critic, first: at each step's start s, p(s) = mean score of `completions` continuations by ref
    V(s) = sigmoid(critic) -> p(s) by cross-entropy, and V(finished solution) -> its score
    Actor: `candidates` next steps a_i ~ ref(.|s) at one s of a fresh solution;   A_i = V(s a_i) - mean_j V(s a_j)
    L = mean over candidates of (A_i/beta - log pi(a_i|s)/ref(a_i|s))^2 / 2,   log-probs summed over the step
    Equal candidates count once; states whose advantages span less than `least` are dropped.

    Each step of the run works on fresh solutions. The actor begins in the step that ends the critic's training;
    from then on the critic is frozen. Scores are chances of success and should lie in [0, 1]. Departures: the paper
    keeps 6 of 32 solutions, half of them right, and collects all its data beforehand. beta = 0.01 and 0.02 are the
    paper's.
    """
    critic = Phase(
        name="critic",
        times=before(critic_steps),
        draw=draw.prompts(task),
        rollout=rollout.probed(solutions, completions, rollout.lines, who="ref"),
        score=score.verify(task, author="ref"),
        credit=chain(
            credit.success_rates(),
            credit.shared("reward", "outcome"),
            credit.claim("end", "ref", positions="end", tag="sample"),
            credit.claim("chance", "ref", where=lambda trace: ~trace.streams["rate"].isnan(), needs=("stream:rate",)),
        ),
        learn=learn.Learn(
            learn.chance_fit("rate", on=learn.CLAIMED),
            learn.chance_fit("outcome", output="score", on=learn.CLAIMED, name="end"),
        ),
    )
    actor = Phase(
        name="actor",
        times=after(critic_steps - 1),
        draw=draw.prompts(task),
        rollout=rollout.next_steps(candidates, who="ref"),
        score=score.success_chance("critic", author="ref"),
        select=apart(least, score="chance"),
        credit=chain(credit.step_advantage("chance"), credit.ref(), credit.claim("step", "ref", tag="apart")),
        learn=learn.Learn(learn.regress_advantage(beta, on=learn.CLAIMED)),
    )
    models = roles(ref=frozen("policy"), critic=trained(outputs=1, lr=critic_lr))
    return Method(models=models, phases=(critic, actor))
