"""A method of your own in one file: burnish train examples/my_method.py:thrifty_reinforce --task add

REINFORCE with a price on the length of a reply: parts of burnish in six stages, and one part written here.
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Group, Method, Option, Part, Step, Trace, chain, method, per_trace, roles
from burnish.methods import opt


def shorter_is_better(cost: float) -> Part:
    """reward <- reward - cost x tokens of the reply."""

    def charge(trace: Trace, group: Group, step: Step) -> None:
        trace.scores["reward"] -= cost * len(trace.turns[-1])

    reward = frozenset({"score:reward"})
    return per_trace(charge, name=f"shorter_is_better({cost})", reads=reward, updates=reward)


def thrifty_reinforce(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    cost: Annotated[float, Option("Price of a token.", at_least=0)] = 0.002,
) -> Method:
    """REINFORCE with a group baseline and a price on length.

    A_i = r_i - cost |y_i| - mean over the group;  L = mean over tokens of -A log pi
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(score.verify(task), shorter_is_better(cost)),
        credit=credit.group_relative(std=False),
        learn=learn.Learn(learn.pg_reinforce(norm=learn.token_mean)),
        models=roles(),
    )
