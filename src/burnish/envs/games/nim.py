"""`nim`: two players take 1 to 3 from a heap in turn; who takes the last one wins.

The policy has the seat `player`; it begins, or the seat `opponent` does. The environment plays the opponent perfectly,
unless a model does. Every position is one that the policy wins by perfect play. Games of the two splits may begin with
the same heap; the moves of their scripted opponents differ.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from burnish.core.messages import Message
from burnish.core.seeds import rng
from burnish.envs.games.game import Game, GameFamily
from burnish.envs.protocol import Outcome

_HEAP = {1: (2, 11), 2: (6, 23), 3: (12, 47)}  # least and most in the heap
MOST = 3  # that can be taken at once
PLAYER, OPPONENT = "player", "opponent"


@dataclass(frozen=True)
class Heap:
    """How many there are, who begins, and the seed of the scripted opponent's moves where it cannot win."""

    size: int
    begins: str
    script: int = 0


class Taking(Game):
    """An action is a number from 1 to 3, at most what is left; anything else loses. Reward: 1 to the winner, 0 else."""

    seats = (PLAYER, OPPONENT)

    def __init__(self, position: Heap) -> None:
        super().__init__(position)
        self.left, self.turn, self.seated = position.size, position.begins, False
        self.told: set[str] = set()  # seats that know the rules

    def reset(self, seated: bool = False) -> str | tuple[Message, ...]:
        self.seated = seated
        return super().reset()

    def opening(self) -> str:
        self.left, self.turn, self.told = self.position.size, self.position.begins, set()
        if self.turn == OPPONENT and not self.seated:
            return self._moved(self._scripted())
        return self._view(0)

    def seat(self) -> str:
        return self.turn

    def act(self, action: str) -> Outcome:
        numbers = re.findall(r"\d+", action[-20:])
        said = int(numbers[-1]) if numbers else 0
        if not 1 <= said <= min(MOST, self.left):
            return self._won(self._rival(), "not a move")
        if said == self.left:
            self.left = 0
            return self._won(self.turn, "taken the last")
        seen = self._moved(said)
        if self.turn == PLAYER or self.seated:
            return Outcome(seen, 0.0)
        reply = self._scripted()
        if reply == self.left:
            self.left = 0
            return self._won(OPPONENT, "taken the last")
        return Outcome(self._moved(reply), 0.0)

    def expert(self) -> str:
        return str(best(self.left))

    def key(self) -> str:
        return f"{self.left} left, {self.turn}"

    def _scripted(self) -> int:
        """The opponent's move: one that wins, else any."""
        return self.left % (MOST + 1) or rng(self.position.script, self.left).randint(1, MOST)

    def _rival(self) -> str:
        return OPPONENT if self.turn == PLAYER else PLAYER

    def _moved(self, taken: int) -> str:
        """The move is made; what the next player sees."""
        self.left -= taken
        self.turn = self._rival()
        return self._view(taken)

    def _view(self, taken: int) -> str:
        said = f"I take {taken}. {self.left} left." if taken else f"{self.left} left."
        if self.turn in self.told:
            return said
        self.told.add(self.turn)
        return f"Take 1 to {MOST}, the last one wins. {said}"

    def _won(self, winner: str, why: str) -> Outcome:
        loser = PLAYER if winner == OPPONENT else OPPONENT
        return Outcome(why, 0.0, terminated=True, info={"why": why}, rewards={winner: 1.0, loser: 0.0})


def best(left: int) -> int:
    """A move that leaves a multiple of 4 to the other; 1 where there is none."""
    return left % (MOST + 1) or 1


class Nim(GameFamily):
    """Heaps of up to 11, 23 or 47 by level."""

    name = "nim"
    summary = "take 1 to 3 from a heap, the last one wins (several turns, two seats)"
    game = Taking

    def draw(self, dice: random.Random) -> Heap:
        least, most = _HEAP[self.level]
        begins = dice.choice((PLAYER, OPPONENT))
        while True:
            size = dice.randint(least, most)
            if (size % (MOST + 1) != 0) == (begins == PLAYER):
                return Heap(size, begins, dice.randrange(1000))
