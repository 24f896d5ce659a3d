"""The pre-training corpus of the embedded model `tiny`: synthetic conversations on the train split of all built-in
tasks.

Each reply is a correct demonstration with probability q(task, level) and a mistake otherwise, independent of the
prompt. So a model of this corpus is sometimes correct on every task, and post-training can improve it. Harder levels
are rarer and have a lower q. A document depends only on (seed, index).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from typing import TypeVar

from burnish.core.randomness import rng
from burnish.core.types import Message
from burnish.envs.guess import Guess
from burnish.tasks.family import Family
from burnish.tasks.table import BUILTIN

LEVEL_SHARE = {1: 0.25, 2: 0.45, 3: 0.2, 4: 0.1}
LEVEL_SKILL = {1: 0.55, 2: 0.36, 3: 0.22, 4: 0.12}  # q(level), scaled for some tasks below
TASK_SHARE = {"countdown": 1.5, "path": 1.5, "logic": 1.5}  # weight of tasks that are harder to learn; others: 1
TASK_SKILL = {"path": 1.4, "logic": 1.1, "multiply": 0.9, "edit": 0.85}  # factor on q, to even out the learned accuracy
CARE = {1: 0.15, 2: 0.15, 3: 0.15, 4: 0.15}  # probability that a guess in `guess` halves the range
SYSTEM_SHARE, DIALOGUE_SHARE, SECOND_LOOK_SHARE = 0.03, 0.05, 0.03
SYSTEM = ("Be brief.", "Work step by step.", "You are careful.", "Give the answer last.")
SECOND_LOOK = "Check again."
_Choice = TypeVar("_Choice")


def skill(name: str, level: int) -> float:
    """q: the probability that a reply to a task of this family and level is correct."""
    return min(0.9, LEVEL_SKILL[level] * TASK_SKILL.get(name, 1.0))


@cache
def _family(name: str, level: int) -> Family | Guess:
    family: Family | Guess = BUILTIN[name](level=level)
    return family


def _pick(shares: Mapping[_Choice, float], dice: random.Random) -> _Choice:
    return dice.choices(list(shares), weights=list(shares.values()))[0]


def exchange(dice: random.Random) -> list[Message]:
    """One problem with a reply (a whole game for `guess`)."""
    name = _pick({name: TASK_SHARE.get(name, 1.0) for name in BUILTIN}, dice)
    level = _pick(LEVEL_SHARE, dice)
    family = _family(name, level)
    problem = family.problem("train", dice.getrandbits(40))
    if isinstance(family, Guess):
        return family.transcript(problem, dice, CARE[level])

    def attempt() -> Message:
        right = dice.random() < skill(name, level)
        return {
            "role": "assistant",
            "content": family.solve(problem, dice) if right else family.mistake(problem, dice),
        }

    messages = [{"role": "user", "content": family.ask(problem)}, attempt()]
    if dice.random() < SECOND_LOOK_SHARE:
        messages += [{"role": "user", "content": SECOND_LOOK}, attempt()]
    return messages


def document(seed: int, index: int) -> list[Message]:
    """Document `index` of the corpus: one exchange, sometimes several in a row, sometimes under a system message."""
    dice = rng(seed, "corpus", index)
    messages: list[Message] = []
    if dice.random() < SYSTEM_SHARE:
        messages.append({"role": "system", "content": dice.choice(SYSTEM)})
    exchanges = dice.randint(2, 5) if dice.random() < DIALOGUE_SHARE else 1
    for _ in range(exchanges):
        messages += exchange(dice)
    return messages
