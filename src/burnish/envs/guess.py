"""`guess`: find a hidden number from the replies "higher" and "lower". A game of several turns."""

from __future__ import annotations

import random
import re
from dataclasses import astuple, dataclass
from functools import partial
from typing import ClassVar

from burnish.core.seeds import rng
from burnish.core.splits import ByLevel
from burnish.core.state import State
from burnish.core.task import Message, Task, Verdict
from burnish.verifiers.answer_line import LONGEST_REPLY

_SHAPE = {1: (6, 7, 3), 2: (12, 15, 4), 3: (24, 31, 5), 4: (48, 63, 6)}  # least and most numbers, guesses
_FIRST = 60  # the largest number a range may start at
_NUMBER = re.compile(r"(?<![\d.-])\d{1,4}(?![\d.]*\d)")


@dataclass(frozen=True)
class Hidden:
    """One game: a number hidden in low..high, to be found in `guesses` guesses. Binary search always finds it."""

    low: int
    high: int
    number: int
    guesses: int

    @property
    def opening(self) -> str:
        return f"Guess my number, {self.low} to {self.high}. {self.guesses} guesses."


class Game:
    """The environment of one `Hidden` game: each step is one guess; reward 1 at the winning guess, 0 before."""

    def __init__(self, hidden: Hidden) -> None:
        self.hidden, self.made, self.over = hidden, 0, False
        self.low, self.high = hidden.low, hidden.high  # what the answers leave

    def reset(self) -> str:
        self.made, self.over = 0, False
        self.low, self.high = self.hidden.low, self.hidden.high
        return self.hidden.opening

    def step(self, action: str) -> tuple[str, float, bool]:
        """One guess: the last whole number in the action. Text without a number also costs a guess."""
        if self.over:
            raise ValueError("the game is over; call reset() to play it again")
        self.made += 1
        numbers = _NUMBER.findall(action[-LONGEST_REPLY:])
        said = int(numbers[-1]) if numbers else None
        self.over = said == self.hidden.number or self.made >= self.hidden.guesses
        if said == self.hidden.number:
            return "correct", 1.0, True
        if said is None:
            return "say a number", 0.0, self.over
        if said < self.hidden.number:
            self.low = max(self.low, said + 1)
            return "higher", 0.0, self.over
        self.high = min(self.high, said - 1)
        return "lower", 0.0, self.over

    def key(self) -> str:
        """The state: the numbers that are left, and the guesses made."""
        return f"{self.low}-{self.high} after {self.made}"

    def fork(self) -> Game:
        """A copy of the game as it stands."""
        found = Game(self.hidden)
        found.load_state_dict(self.state_dict())
        return found

    def state_dict(self) -> State:
        return {"made": self.made, "over": self.over, "low": self.low, "high": self.high}

    def load_state_dict(self, state: State) -> None:
        self.made, self.over = int(str(state["made"])), bool(state["over"])
        self.low, self.high = int(str(state["low"])), int(str(state["high"]))


class Guess(ByLevel):
    """6-7, 12-15, 24-31 or 48-63 numbers by level, with just enough guesses for binary search."""

    name: ClassVar[str] = "guess"
    summary: ClassVar[str] = "find a hidden number from 'higher' and 'lower' (several turns)"
    gives: ClassVar[frozenset[str]] = frozenset({"env", "answer", "episode", "oracle"})
    levels: ClassVar[tuple[int, ...]] = (1, 2, 3, 4)

    def __init__(self, level: int = 2, seed: int = 0) -> None:
        super().__init__(level, seed)

    def problem(self, split: str, index: int) -> Hidden:
        """The game at an index: drawn until one belongs to the split."""
        return self.drawn(split, index, self._draw, self.key)

    def _draw(self, dice: random.Random) -> Hidden:
        least, most, guesses = _SHAPE[self.level]
        low, many = dice.randint(1, _FIRST), dice.randint(least, most)
        return Hidden(low, low + many - 1, low + dice.randrange(many), guesses)

    def key(self, hidden: Hidden) -> str:
        return f"{self.name} {hidden.number} in {hidden.low}-{hidden.high} by {hidden.guesses}"

    def task(self, split: str, index: int) -> Task:
        hidden = self.problem(split, index)
        key = self.key(hidden)
        dice = rng(key, "episode")
        given = {
            "env": partial(Game, hidden),
            "answer": str(hidden.number),
            "episode": self.episode(hidden, dice, dice.random()),
            "oracle": self.episode(hidden, rng(key, "oracle"), 1.0),
        }
        return Task("game", ({"role": "user", "content": hidden.opening},), given, key)

    def facts(self, task: Task) -> tuple[int, ...]:
        """The game as plain numbers."""
        return astuple(task.given["env"]().hidden)

    def verify(self, task: Task, reply: str) -> Verdict:
        """Replay a transcript: each line of the reply is one guess. To let a model play, step given["env"]()."""
        return self.verdict(self.facts(task), reply)

    def verdict(self, facts: tuple[int, ...], reply: str) -> Verdict:
        """Whether the lines of a reply find the hidden number."""
        game = Game(Hidden(*facts))
        game.reset()
        for line in reply[-LONGEST_REPLY:].splitlines():
            _, reward, over = game.step(line)
            if reward:
                return Verdict(1.0, True)
            if over:
                return Verdict(0.0, False, f"not found in {game.made} guesses")
        return Verdict(0.0, False, f"not found: {game.made} guesses made (one a line)")

    def episode(self, hidden: Hidden, dice: random.Random, care: float) -> list[Message]:
        """A transcript with the reward of each guess; care 1 is binary search."""
        game = Game(hidden)
        messages = self.transcript(hidden, dice, care)
        return [{**m, "reward": game.step(str(m["content"]))[1]} if m["role"] == "assistant" else m for m in messages]

    def transcript(self, hidden: Hidden, dice: random.Random, care: float) -> list[Message]:
        """A whole game in which each guess halves the range with probability `care`.

        Any other guess is uniform over the whole range, or, with probability 1/4, over the remaining range.
        """
        game, low, high = Game(hidden), hidden.low, hidden.high
        messages: list[Message] = [{"role": "user", "content": game.reset()}]
        while True:
            if dice.random() < care:
                said = (low + high + dice.randrange(2)) // 2
            elif dice.random() < 0.25:
                said = dice.randint(low, high)
            else:
                said = dice.randint(hidden.low, hidden.high)
            text, _, over = game.step(str(said))
            messages += [{"role": "assistant", "content": str(said)}, {"role": "user", "content": text}]
            if over:
                return messages[:-1]
            low, high = (max(low, said + 1), high) if text == "higher" else (low, min(high, said - 1))
