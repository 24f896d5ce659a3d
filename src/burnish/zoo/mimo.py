"""MiMo: Unlocking the Reasoning Potential of Language Model -- From Pretraining to Posttraining (arXiv
2505.07608).

Solved problems apart from the others, and drawn seldom (MiMo, arXiv 2505.07608, section 3.3.2).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core import randomness
from burnish.core.parts import Draw, Part, names, supplies
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.draw.failed import PLACE
from burnish.draw.rated import placed
from burnish.draw.tasks import prompts, tasks_of
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, papers, register
from burnish.tasks.source import Source

METRICS = (("easy_pool", "What was kept", "problems whose replies were all right when they were last drawn"),)

NAME = "easy_pool"


class EasyPool:
    """The indices of the problems whose replies were all right, and the place up to which the source was drawn."""

    name = NAME

    def __init__(self) -> None:
        self.easy: list[int] = []
        self.place = 0

    def saw(self, index: int, solved: bool) -> None:
        """All replies to a problem were right, or not; one that is no longer solved leaves the pool."""
        self.easy = [one for one in self.easy if one != index] + ([index] if solved else [])

    def state_dict(self) -> State:
        return {"easy": self.easy, "place": self.place}

    def load_state_dict(self, state: State) -> None:
        self.easy, self.place = [int(index) for index in state["easy"]], int(state["place"])


def apart_from_easy(source: Source, pool: EasyPool, alpha: float) -> Draw:
    """Each slot is, with chance alpha, a problem of the pool, where it has any; else the next one that is not in it.

    The others come in the shuffled order of the source. Where all problems are in the pool, they are drawn as without
    it. alpha = 0 never draws a solved problem again.
    """
    plain = prompts(source)

    def call(step: Step) -> list[Task]:
        clock = step.clock
        dice = randomness.rng(clock.seed, NAME, clock.step, clock.tick)
        easy = list(pool.easy)
        chosen = []
        for _ in range(step.settings.prompts):
            again = bool(easy) and dice.random() < alpha
            chosen.append(dice.choice(easy) if again else _next(step, set(easy)))
        step.notes.add("draw/easy", sum(index in easy for index in chosen), len(chosen))
        step.notes.add("easy_pool", len(pool.easy))
        return [placed(task, i) for task, i in zip(tasks_of(source, "train", chosen, step), chosen, strict=True)]

    def _next(step: Step, easy: set[int]) -> int:
        size, seed = source.size("train"), step.clock.seed
        for _ in range(size or 1):
            place = pool.place
            pool.place += 1
            if size is None:
                return place + (seed << 32)
            index = randomness.placed(place % size, size, seed, NAME, place // size)
            if index not in easy:
                break
        return index

    return Draw(
        name="apart_from_easy",
        call=call,
        heldout=plain.heldout,
        reads=frozenset({f"store:{NAME}"}),
        writes=plain.writes | names("given", [PLACE]),
        state=(pool,),
    )


@supplies(f"store:{NAME}")
def note_solved(pool: EasyPool, *, score: str = "reward", above: float = 0.5) -> Part:
    """Tells the pool which problems had right replies alone; it stands in score, before any group is dropped."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            if group.traces:
                solved = all(trace.scores[score] > above for trace in group.traces)
                pool.saw(int(group.task.given[PLACE]), solved)
        return groups

    return Part(
        name="note_solved",
        call=call,
        reads=frozenset({f"score:{score}", f"given:{PLACE}"}),
        writes=frozenset({f"store:{NAME}"}),
        state=(pool,),
    )


Refills = Annotated[int, Option("How often a step fills up its batch after the filter.", at_least=0)]


@register(
    papers.MIMO,
    family="policy",
    summary="DAPO without a length punishment, whose solved problems rest in a pool and come back seldom.",
    when="Many problems are solved by now, and sampling them again is wasted; forgetting them is not wanted either.",
)
def mimo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.28,
    alpha: Annotated[float, Option("Chance of a slot to come from the pool.", at_least=0, at_most=1)] = 0.1,
    refills: Refills = 3,
    minibatches: opt.Minibatches = 4,
) -> Method:
    """The RL of MiMo-7B (section 3.3): GRPO without KL, dynamic sampling, a higher upper clip, and an easy data pool.

    A_i = (r_i - mean r) / std r in groups with 0 < right < n;   L = mean over tokens of -min(rho A, clip(rho) A)
    a problem whose replies are all right goes into the pool; a slot is drawn from the pool with chance alpha, else from
    the other problems

    alpha = 0.1 is the paper's, which prints neither n nor the clip, and makes 16 updates of a batch. A problem that is
    drawn from the pool and no longer solved leaves it: the natural reading.
    """
    pool = EasyPool()
    drawn, sampled = apart_from_easy(task, pool, alpha), rollout.sample(n)
    scored = chain(score.verify(task), note_solved(pool))
    return method(
        draw=drawn,
        rollout=sampled,
        score=scored,
        select=select.refilled(select.mixed(), drawn, sampled, scored, refills),
        credit=chain(credit.group_relative(), credit.behaviour(), credit.claim("pg", "policy", tag="mixed")),
        learn=learn.Learn(
            learn.pg_clip(eps_low, eps_high, norm=learn.token_mean, on=learn.CLAIMED), minibatches=minibatches
        ),
        models=roles(),
    )
