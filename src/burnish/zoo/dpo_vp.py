"""Enhancing LLM Reasoning with Iterative DPO: A Comprehensive Empirical Investigation (arXiv 2503.12854).

Rollouts that change in the course of a run.
"""

from __future__ import annotations

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import Rollout, chain
from burnish.core.roles import snapshot
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.method import Method, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

DPO_VP = Paper(
    "dpo-vp", "2503.12854", "Enhancing LLM Reasoning with Iterative DPO: A Comprehensive Empirical Investigation"
)


def staged(*stages: tuple[float, Rollout]) -> Rollout:
    """One rollout after the other: each is used up to the given share of the run, the last one to the end.

    staged((0.5, sample(8, temperature=0.7)), (1.0, sample(8, temperature=1.0))) samples hotter in the second half.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        done = step.clock.step / max(1, step.clock.of)
        now = next((rollout for until, rollout in stages if done < until), stages[-1][1])
        return now.call(tasks, step)

    rollouts = [rollout for _, rollout in stages]
    return Rollout(
        name=", then ".join(f"{rollout.name} up to {until:.0%}" for until, rollout in stages),
        call=call,
        reads=frozenset().union(*(rollout.reads for rollout in rollouts)),
        writes=frozenset.intersection(*(rollout.writes for rollout in rollouts)),
        state=tuple(item for rollout in rollouts for item in rollout.state),
    )


ROUND = {"n": 4, "sync": 1}


@register(
    DPO_VP,
    family="preference",
    summary="Rounds of DPO on verified pairs of the policy's own replies, hotter from round to round.",
    when="Verifiable tasks and little compute: DPO in place of RL.",
    trial=ROUND,
)
def dpo_vp(task: draw.Source, *, n: opt.GroupSize = 8, beta: opt.Beta = 0.1, sync: opt.Sync = 1 / 6) -> Method:
    """DPO-VP: iterative DPO on verifiable pairs.

    y_1..y_n ~ pi_t, at temperature 0.7 in the first half of the run, then 1.0, in the last sixth 1.2
    score 1 right, 0.1 a wrong answer, 0 none;  w = the longest of the best, l = a random one of the worst
    L = -log s( beta [lr_w - lr_l] ),  lr = log pi(y|x) - log pi_t(y|x),  mean over pairs

    pi_t is the policy at the start of the round: sampler and reference. The paper has six rounds of an epoch, and
    scores 1, 0, -1 in place of 1, 0.1, 0. beta is the usual one. Here the verifier alone scores; the
    paper's second part, rounds in which a process reward model is trained with the policy, is `burnish recipe dpo-vp`.
    """
    hotter = [
        (until, rollout.sample(n, who="past", temperature=heat))
        for until, heat in ((0.5, 0.7), (5 / 6, 1.0), (1.0, 1.2))
    ]
    return method(
        draw=draw.prompts(task),
        rollout=staged(*hotter),
        score=chain(score.verify(task, author="past"), score.partial_for_answering(0.1)),
        select=select.longest_vs_any("shaped"),
        credit=credit.ref("past", logp_temperature=1.0),
        learn=learn.Learn(learn.dpo(beta, on="past"), logp_temperature=1.0),
        models=roles(past=snapshot("policy", sync)),
        lr_share=0.1,
        sampling=None,
    )
