"""A curriculum of your own: burnish train examples/my_curriculum.py:second_chances --task sort

Tasks that most replies got wrong come back until they are solved. Those still to come back are part of every
checkpoint, so a run that was killed resumes with the same tasks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from burnish import credit, draw, learn, rollout, score
from burnish.method import Draw, Group, Method, Option, Step, Task, chain, method, names, roles
from burnish.methods import opt


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


def come_back(source: draw.Source, share: float) -> Draw:
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


def _placed(source: draw.Source, place: int) -> Task:
    """The task at a place, which goes with it: with --lag, other batches are drawn before `saw` hears of this one."""
    task = source.task("train", place % (source.size("train") or 2**31))
    return replace(task, given={**task.given, "place": place})


def second_chances(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    share: Annotated[float, Option("Largest share of a batch that came back.", at_least=0, at_most=1)] = 0.5,
) -> Method:
    """GRPO without the KL, on tasks that come back until most replies are right.

    A_i = (r_i - mean r) / std r;  L = mean over replies of mean over tokens of -min(rho A, clip(rho) A)
    """
    return method(
        draw=come_back(task, share),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(0.2, norm=learn.seq_mean)),
        models=roles(),
    )
