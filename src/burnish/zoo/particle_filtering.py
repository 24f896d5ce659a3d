"""A Probabilistic Inference Approach to Inference-Time Scaling of LLMs using Particle-Based Monte Carlo Methods
(arXiv 2502.01618).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

from burnish import draw, learn, score, select
from burnish.core import randomness
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Turn
from burnish.method import Method, Option, Sampling, chain, frozen, method, roles
from burnish.methods import register
from burnish.papers import Paper
from burnish.rollout.particles import delimiter
from burnish.rollout.starts import Open, Reply, Start, sample_key, write_on
from burnish.score.process import number, step_scores
from burnish.score.segments import segmentation

PARTICLE_FILTERING = Paper(
    "particle-based-inference-scaling",
    "2502.01618",
    "A Probabilistic Inference Approach to Inference-Time Scaling of LLMs using Particle-Based Monte Carlo Methods",
)


TAG = "particle"


def odds(heads: list[float], spread: float) -> list[float]:
    """Weights that add up to 1: softmax(head / spread), where sigmoid(head) is the chance of a step to be right.

    At spread 1 they are proportional to s / (1 - s). A head that is no number counts as the lowest.
    """
    known = [head for head in heads if math.isfinite(head)]
    if not known:
        return [1 / len(heads)] * len(heads)
    low, high = min(known), max(known)
    raised = [math.exp(((head if math.isfinite(head) else low) - high) / spread) for head in heads]
    return [one / sum(raised) for one in raised]


@supplies("tokens:*", "mu:*", "tag:particle", "score:prm")
def particles(
    n: int,
    *,
    steps: str = "lines",
    spread: float = 1.0,
    most: int = 40,
    temperature: float | None = None,
    who: str = "policy",
    prm: str = "prm",
) -> Rollout:
    """n replies per task by particle filtering (arXiv 2502.01618), the model `prm` their judge.

    Each particle is extended by one step; the weight of each is softmax(head / spread) of the judge's score of its last
    step; n are drawn anew with replacement, finished ones among them; until all are finished, or `most` times. Weights
    come from the present score alone, not from a product of past ones. scores["prm"] is the last head of each.
    """
    end, cut = delimiter(steps), segmentation(steps)

    def judge(groups: list[Open], step: Step) -> list[list[float]]:
        traces = [reply.trace() for group in groups for reply in group.replies]
        heads = iter([found[-1] for _, found in step_scores(traces, prm, cut, number, step, who)])
        return [[next(heads) for _ in group.replies] for group in groups]

    def call(tasks: list[Task], step: Step) -> list[Group]:
        how = (who, who, TAG, step.sampling(temperature))
        groups = []
        for task in tasks:
            prompt = (Turn(step.models[who].chat.prompt(task), "task"),)
            starts = [Start(task, prompt, i, sample_key(step.clock, task, i, TAG), *how) for i in range(n)]
            groups.append(Open(task, [Reply(start, until=(end,)) for start in starts]))
        heads: list[list[float]] = []
        for time in range(most):
            last = time == most - 1
            running = [reply for group in groups for reply in group.replies if not reply.stopped]
            if last:
                for reply in running:
                    reply.until = ()
            write_on(running, step)
            heads = judge(groups, step)
            if last or all(group.finished() for group in groups):
                break
            for k, group in enumerate(groups):
                if not group.finished():
                    heads[k] = _resample(group, heads[k], spread, time, step)
        made = [group.group() for group in groups]
        for written, its in zip(made, heads, strict=True):
            for trace, head in zip(written.traces, its, strict=True):
                trace.scores["prm"] = head
        return made

    return Rollout(
        name=f"particles({n})",
        call=call,
        reads=frozenset({"task:prompt", f"model:{who}.generate", f"model:{prm}.score"}),
        writes=names("tokens", ("task", who)) | names("mu", who) | names("tag", TAG) | {"score:prm"},
    )


def _resample(group: Open, heads: list[float], spread: float, time: int, step: Step) -> list[float]:
    """Draw as many particles as there are, by their weights; their heads.

    The first copy of a particle goes on as it would have without the others; further ones have noise of their own.
    """
    clock, size = step.clock, len(heads)
    dice = randomness.rng(clock.seed, TAG, clock.step, clock.tick, group.task.key, time)
    drawn = dice.choices(range(size), odds(heads, spread), k=size)
    old = group.replies
    group.replies = []
    for i, chosen in enumerate(drawn):
        key = sample_key(clock, group.task, i, f"{TAG} {time}") if chosen in drawn[:i] else old[chosen].start.key
        start = replace(old[chosen].start, index=i, key=key)
        group.replies.append(Reply(start, old[chosen].said, old[chosen].stopped, until=old[chosen].until))
    return [heads[chosen] for chosen in drawn]


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
        rollout=particles(n, steps=step_by, spread=spread, most=most_steps),
        score=score.scoring(task, None),
        select=chain(select.keep_best(1, "prm"), select.keep_best(1)),  # the answer; its own score is noted
        learn=learn.Learn(),
        models=roles(prm=frozen(prm, outputs=1)),
        sampling=Sampling(0.8),
    )
