"""The pre-training corpus of `tiny-omni`: conversations about pictures, about codes, and about text.

As in the corpus of `tiny` (tasks/corpus.py) writers err: a reply is right with a probability that depends on the level
alone. A share of the documents, those of careful writers, has no errors: from them the model learns to see. A document
depends only on (seed, index, care).
"""

from __future__ import annotations

import random
from functools import cache

from burnish.core.messages import Message, as_messages
from burnish.core.randomness import rng
from burnish.envs.games.game import GameFamily
from burnish.envs.games.table import GAMES
from burnish.tasks import corpus
from burnish.tasks.family import Family
from burnish.tasks.table import CODED, SEEN

WALKS = {name: GAMES[name] for name in ("reach", "zoom")}
SHARE = {"text": 3.0, **dict.fromkeys(SEEN, 1.0), **dict.fromkeys(CODED, 0.5), "reach": 1.0, "zoom": 0.7}
SHARE |= {"glyphs": 2.2, "boxes": 1.4, "detect": 1.4, "page": 1.4}
LEVEL_SHARE = {1: 0.3, 2: 0.4, 3: 0.2, 4: 0.1}
SKILL = {1: 0.6, 2: 0.42, 3: 0.3, 4: 0.2}
CARE_IN_GAMES = {1: 0.75, 2: 0.65, 3: 0.6}  # probability that an action of an episode is the expert's
_MOVES = {"reach": ("left", "right", "up", "down")}


@cache
def _family(name: str, level: int) -> Family | GameFamily:
    kinds: dict[str, type] = {**SEEN, **CODED, **WALKS}
    family: Family | GameFamily = kinds[name](level=level)
    return family


def _slip(name: str, dice: random.Random) -> str:
    """A careless action of a game."""
    if name in _MOVES:
        return dice.choice(_MOVES[name])
    if dice.random() < 0.5:
        return f"answer: {dice.choice('0123456789ACEFHKLPTUX')}"
    return f"crop {dice.randint(0, 16)} {dice.randint(0, 16)}"


def episode(name: str, family: GameFamily, dice: random.Random, care: float) -> list[Message]:
    """A game of which each action is the expert's with probability `care`."""
    game = family.game(family.position("train", dice.getrandbits(40)))
    messages = [*as_messages(game.reset())]
    while True:
        said = game.expert() if dice.random() < care else _slip(name, dice)
        messages.append({"role": "assistant", "content": said})
        outcome = game.step(said)
        if outcome.over:
            return messages
        messages += as_messages(outcome.observation)


def document(seed: int, index: int, careful: bool = False) -> list[Message]:
    """Document `index` of the corpus."""
    dice = rng(seed, "seen corpus", index, careful)
    name = dice.choices([*SHARE], weights=[*SHARE.values()])[0]
    if name == "text":
        return corpus.document(seed, index)
    level = dice.choices([*LEVEL_SHARE], weights=[*LEVEL_SHARE.values()])[0]
    if name in WALKS:
        level = min(level, 3)
        walk = _family(name, level)
        assert isinstance(walk, GameFamily)
        return episode(name, walk, dice, 1.0 if careful else CARE_IN_GAMES[level])
    family = _family(name, level)
    assert isinstance(family, Family)
    problem = family.problem("train", dice.getrandbits(40))
    right = careful or dice.random() < SKILL[level]
    said = family.solve(problem, dice) if right else family.mistake(problem, dice)
    return [{"role": "user", "content": family.ask(problem)}, {"role": "assistant", "content": said}]
