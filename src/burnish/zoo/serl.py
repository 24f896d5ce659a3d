"""SeRL: Self-Play Reinforcement Learning for Large Language Models with Limited Data (arXiv 2505.20347)."""

from __future__ import annotations

import statistics
from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.judges.rewrites import Words
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import curricula, opt, papers, register


@supplies("tag:between")
def between(low: float, high: float, score: str = "reward") -> Part:
    """Only groups whose mean score is in [low, high], neither too hard nor too easy; their traces get the tag "between"
    (SeRL, arXiv 2505.20347).
    """
    if not low <= high:
        raise ValueError(f"no mean score is between {low:g} and {high:g}; the first must not be the larger one")

    def call(groups: list[Group], step: Step) -> list[Group]:
        means = [statistics.fmean(trace.scores[score] for trace in group.traces) for group in groups]
        kept = [group for group, mean in zip(groups, means, strict=True) if low <= mean <= high]
        for trace in (trace for group in kept for trace in group.traces):
            trace.tags = trace.tags | {"between"}
        step.notes.add("dropped/difficulty", len(groups) - len(kept), max(1, len(groups)))
        return kept

    return Part(
        name=f"between({low:g}, {high:g})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"tag:between"}),
        updates=frozenset({"tokens:policy"}),
    )


@register(
    papers.SERL,
    family="policy",
    summary="REINFORCE++ on prompts that the policy writes, rewarded by agreement with the majority of its answers.",
    when="A few prompts without answers, and a policy that is often right.",
    example="burnish train serl --words brief --least-words 1 --low 0",
    trial={
        "n": 4,
        "low": 0.0,
        "high": 1.0,
        "similar": 1.0,
        "least_words": 1,
        "words": "brief",
        "writer": "policy(temperature=1, max_tokens=8)",
    },
)
def serl(
    task: draw.Source,
    *,
    n: opt.GroupSize = 16,
    low: Annotated[float, Option("Least share of replies in the majority.", at_least=0, at_most=1)] = 0.2,
    high: Annotated[float, Option("Largest share of replies in the majority.", at_least=0, at_most=1)] = 0.8,
    writer: curricula.Writer = "policy(temperature=0.8, top_p=0.95)",
    generated: curricula.Generated = 1.0,
    examples: curricula.Examples = 8,
    tries: curricula.Tries = 2,
    similar: curricula.Similar = 0.7,
    least_words: curricula.LeastWords = 3,
    most_words: curricula.MostWords = 150,
    words: Words = "full",
    eps: opt.ClipRange = 0.2,
    beta: opt.KLPenalty = 1e-4,
) -> Method:
    """Self-play reinforcement learning with limited data.

    r_i = 1 if answer i agrees with the largest class of the n answers, else 0: the row of the equality matrix with
    most hits;  prompts with a mean reward outside [low, high] are dropped;  then REINFORCE++:
    A_t = r - beta sum_{i >= t} log(pi_old / ref)(y_i), whitened over the batch;  L = the clipped surrogate, token mean

    After each step the policy writes new prompts like those of the data; ROUGE-L and rules filter them (`--draw serl`).
    Labels are never read. Departures: rounds are steps; a kept group is learned from in its own step, where the
    released code lets it wait for one; no presence penalty. The learning rate is 0.3 of the default: what the filter
    leaves is few prompts, and the majority of their answers is sometimes wrong. Watch majority_share: if it nears 1
    while held-out accuracy falls, the policy agrees with itself on wrong answers.
    """
    solver = method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.majority(),
        select=between(low, high),
        credit=chain(
            credit.behaviour(),
            credit.ref(),
            credit.token_rewards(kl=beta),
            credit.rewards_to_go(),
            credit.whiten(),
            credit.claim("pg", "policy", tag="between"),
        ),
        learn=learn.Learn(learn.pg_clip(eps, on=learn.CLAIMED)),
        models=roles(ref=frozen("policy")),
        lr_share=0.3,
    )
    write = curricula.serl(
        writer=writer,
        generated=generated,
        examples=examples,
        tries=tries,
        similar=similar,
        least_words=least_words,
        most_words=most_words,
        words=words,
    )
    return write(solver, task)
