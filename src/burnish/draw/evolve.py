"""eva: prompts that tell replies apart are rewritten, and the rewritten ones are trained on (arXiv 2411.00062)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from burnish.core import randomness
from burnish.core.parts import Draw, Part, supplies
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.core.types_json import task_from_record, task_to_record
from burnish.draw.made import made_task, mixed_in, request_of
from burnish.judges.question import Template
from burnish.judges.rewrites import IN_BREADTH, IN_DEPTH, new_prompt, rewrite_question
from burnish.score.judges.judge import Judge

OPERATIONS = (*IN_DEPTH, *IN_BREADTH)


@dataclass(frozen=True)
class Evolution:
    """How prompts evolve.

    every     steps of a round, after which prompts evolve
    subset    share of the prompts of a round that are evolved
    variants  new prompts from each of them, each by another operation
    share     share of the evolved prompts in the following batches
    """

    every: int
    subset: float
    variants: int
    share: float
    template: Template


class Pool:
    """The prompts of the present round with their informativeness, and the evolved ones of the last."""

    name = "eva"

    def __init__(self) -> None:
        self.seen: dict[str, tuple[Task, float]] = {}
        self.evolved: list[Task] = []
        self.steps = self.drawn = 0

    def take(self) -> Task | None:
        """The next evolved prompt; they come round again in the same order."""
        if not self.evolved:
            return None
        self.drawn += 1
        return self.evolved[(self.drawn - 1) % len(self.evolved)]

    def state_dict(self) -> State:
        seen = [{"task": task_to_record(task), "info": info} for task, info in self.seen.values()]
        evolved = [task_to_record(task) for task in self.evolved]
        return {"seen": seen, "evolved": evolved, "steps": self.steps, "drawn": self.drawn}

    def load_state_dict(self, state: State) -> None:
        tasks = [(task_from_record(row["task"]), float(row["info"])) for row in state["seen"]]
        self.seen = {task.key: (task, info) for task, info in tasks}
        self.evolved = [task_from_record(row) for row in state["evolved"]]
        self.steps, self.drawn = int(state["steps"]), int(state["drawn"])


@supplies("store:eva")
def informativeness(pool: Pool, score: str = "reward") -> Part:
    """Records max r - min r of each group for its prompt, before any reply is dropped."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            if group.traces:
                scores = [trace.scores[score] for trace in group.traces]
                info = max(scores) - min(scores)
                pool.seen[group.task.key] = group.task, info
                step.notes.add("informativeness", info)
        return groups

    reads = frozenset({f"score:{score}"})
    return Part(name="informativeness", call=call, reads=reads, writes=frozenset({"store:eva"}), state=(pool,))


def evolving(old: Draw, pool: Pool, rule: Evolution, creator: Judge) -> Draw:
    """What `old` draws, mixed with prompts that evolved from those of the last round.

    After every `every` steps: of the prompts of the round, `subset` are drawn without replacement in proportion to
    their informativeness, and `creator` rewrites each of them by `variants` operations, drawn anew. They replace the
    evolved prompts of the round before. With share 0, and until the first round ends, tasks are those of `old`.
    """

    def saw(groups: list[Group], step: Step) -> None:
        pool.steps += 1
        if pool.steps % rule.every == 0 and rule.share > 0:
            pool.evolved, pool.drawn = _evolved(pool, rule, creator, step), 0
            pool.seen = {}

    return mixed_in(
        old,
        pool.take,
        rule.share,
        name="evolving",
        kinds=("evolved", "original"),
        reads=creator.reads | {"store:eva"},
        saw=saw,
        state=(pool,),
    )


def _evolved(pool: Pool, rule: Evolution, creator: Judge, step: Step) -> list[Task]:
    clock = step.clock
    dice = randomness.rng(clock.seed, "eva evolve", clock.step, clock.tick)
    weights = {key: info for key, (_, info) in pool.seen.items()}
    chosen = [pool.seen[key][0] for key in in_proportion(weights, math.ceil(rule.subset * len(weights)), dice.random)]
    asked = [(task, one) for task in chosen for one in dice.sample(OPERATIONS, rule.variants)]
    answers = creator.ask([rewrite_question(rule.template, request_of(task), one) for task, one in asked], step)
    known = set(pool.seen)
    usable: list[Task] = []
    for (task, _), (answer,) in zip(asked, answers, strict=True):
        text = None if answer.failed else new_prompt(answer.text, request_of(task))
        made = None if text is None else made_task(task, text)
        if made is not None and made.key not in known:
            known.add(made.key)
            usable.append(made)
    step.notes.count("draw_made", len(usable))
    if asked:
        step.notes.add("draw_refused", len(asked) - len(usable), len(asked))
    return [usable[i] for i in randomness.shuffled(len(usable), clock.seed, "eva order", clock.step, clock.tick)]


def in_proportion(weights: dict[str, float], k: int, chance: Any) -> list[str]:
    """At most k keys without replacement, each next one in proportion to its weight; a key of weight 0 never.

    Efraimidis and Spirakis: the keys with the largest log(u) / w, u uniform in (0, 1).
    """
    drawn = {key: math.log(max(1e-300, chance())) / w for key, w in weights.items() if w > 0}
    return sorted(drawn, key=lambda key: -drawn[key])[:k]
