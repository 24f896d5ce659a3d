"""Replies of a population: every candidate of a step answers the same prompts with the same noise."""

from __future__ import annotations

from dataclasses import replace

from burnish.core.parts import Rollout
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.learn.evolution import CANDIDATE, Population
from burnish.rollout.sample import sample


def by_population(population: Population, n: int = 1, *, temperature: float = 1.0) -> Rollout:
    """n replies per task by each candidate, in one group; a trace's note says which candidate wrote it.

    Reply j of every candidate has the same sampling key (common random numbers), so that candidates differ by their
    weights alone. While a candidate writes, the policy's weights are the candidate's; afterwards they are as before.
    """
    plain = sample(n, temperature=temperature, who=population.who)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        groups = [Group(task, []) for task in tasks]
        for i in population.members(step):
            for group, found in zip(groups, plain.call(tasks, step), strict=True):
                group.traces += [
                    replace(trace, index=i * n + trace.index, note={**trace.note, CANDIDATE: i})
                    for trace in found.traces
                ]
        return groups

    return Rollout(
        name=f"by_population({n})",
        call=call,
        reads=plain.reads | {f"model:{population.start}.logp"},
        writes=plain.writes,
        state=(population,),
    )
