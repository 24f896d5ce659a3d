"""A method of your own in one file: burnish train examples/my_method.py:thrifty_reinforce --task add

REINFORCE with the length of a reply held against it: burnish's parts in six rooms, and one part written here.
"""

from __future__ import annotations

from burnish.cast.roles import stage
from burnish.credit.group import group_relative
from burnish.credit.members import member
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.norms import token_mean
from burnish.learn.terms import pg_reinforce
from burnish.method import Method, method
from burnish.nouns import Group
from burnish.parts import Part, chain
from burnish.rollout.sample import sample
from burnish.score.verify import verify
from burnish.step import Step
from burnish.tasks.source import Source


def shorter_is_better(cost: float) -> Part:
    """reward <- reward - cost x tokens of the reply."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for trace in group.traces:
                trace.scores["reward"] -= cost * len(trace.turns[-1])
        return groups

    name = frozenset({"score:reward"})
    return Part(name=f"shorter_is_better({cost})", call=call, reads=name, updates=name)


def thrifty_reinforce(task: Source, *, n: int = 8, cost: float = 0.002) -> Method:
    """REINFORCE with a group baseline and a price on length.

    A_i = r_i - cost |y_i| - mean over the group;  L = mean over tokens of -A log pi

    n: replies sampled for each prompt. cost: price of a token.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n),
        score=chain(verify(task), shorter_is_better(cost)),
        credit=chain(group_relative(std=False), member("pg", "policy")),
        learn=Learn(pg_reinforce(norm=token_mean)),
        cast=stage(),
    )
