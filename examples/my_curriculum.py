"""A curriculum of your own: burnish train examples/my_curriculum.py:second_chances --task sort

Tasks that most replies got wrong come back until they are solved. What is still to come back is part of every
checkpoint, so that a run which was killed goes on with the same tasks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from burnish.cast.roles import stage
from burnish.credit.group import group_relative
from burnish.credit.members import member
from burnish.credit.streams import behaviour
from burnish.learn.learn import Learn
from burnish.learn.norms import seq_mean
from burnish.learn.terms import pg_clip
from burnish.method import Method, method
from burnish.nouns import Group, Task
from burnish.parts import Draw, chain, names
from burnish.rollout.sample import sample
from burnish.score.verify import verify
from burnish.step import Step
from burnish.tasks.source import Source


class Unsolved:
    """The places of tasks that must come back, and the place of the next new one."""

    name = "unsolved"

    def __init__(self) -> None:
        self.places: list[int] = []
        self.next = 0

    def state_dict(self) -> dict[str, Any]:
        return {"places": self.places, "next": self.next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.places, self.next = list(state["places"]), int(state["next"])


def come_back(source: Source, share: float) -> Draw:
    """A batch of which at most `share` are tasks that were not solved before; the others are new."""
    unsolved = Unsolved()

    def call(step: Step) -> list[Task]:
        n = step.settings.prompts
        again = unsolved.places[: int(share * n)]
        new = [unsolved.next + i for i in range(n - len(again))]
        unsolved.places, unsolved.next = unsolved.places[len(again) :], unsolved.next + len(new)
        step.notes.add("came_back", len(again), n)
        return [_placed(source, place) for place in again + new]

    def saw(groups: list[Group], step: Step) -> None:
        for group in groups:
            right = sum(trace.scores["correct"] for trace in group.traces)
            if right < len(group.traces) / 2:
                unsolved.places.append(group.task.given["place"])

    writes = frozenset({"task:prompt"}) | names("given", source.gives)
    return Draw(name=f"come_back({share})", call=call, saw=saw, writes=writes, state=(unsolved,))


def _placed(source: Source, place: int) -> Task:
    """The task at a place, which goes with it: with --lag, other batches are drawn before `saw` hears of this one."""
    task = source.task("train", place % (source.size("train") or 2**31))
    return replace(task, given={**task.given, "place": place})


def second_chances(task: Source, *, n: int = 8, share: float = 0.5) -> Method:
    """GRPO without the KL, on tasks that come back until most replies are right.

    A_i = (r_i - mean r) / std r;  L = mean over replies of mean over tokens of -min(rho A, clip(rho) A)

    n: replies sampled for each prompt. share: the largest share of a batch that may be tasks that came back.
    """
    return method(
        draw=come_back(task, share),
        rollout=sample(n),
        score=verify(task),
        credit=chain(group_relative(), behaviour(), member("pg", "policy")),
        learn=Learn(pg_clip(0.2, norm=seq_mean)),
        cast=stage(),
    )
