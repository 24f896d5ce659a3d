"""Questions that are answered after looking: an action looks something up, or is the line `answer: ...`."""

from __future__ import annotations

import re
from abc import abstractmethod

from burnish.envs.games.game import Game, Position
from burnish.envs.protocol import Outcome
from burnish.verifiers.answer_line import answer_of

_FENCED = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)


def command_of(action: str) -> str:
    """What a reply says to do: its last fenced block, or all of it."""
    fenced = _FENCED.findall(action)
    return str(fenced[-1]).strip() if fenced else action.strip()


class Answered(Game):
    """One question. Reward 1 for the right answer; it ends with any answer, or after twice what the expert needs.

    A subclass says what is asked, what is right, what a look finds, and which looks an expert makes.
    """

    foreign = True  # a look takes a process or a database some time: several episodes look side by side

    def __init__(self, position: Position) -> None:
        super().__init__(position)
        self.seen: tuple[str, ...] = ()
        self.most = 2 * len(self.looks()) + 3

    @abstractmethod
    def question(self) -> str:
        """The prompt."""

    @abstractmethod
    def right(self) -> str:
        """The right answer."""

    @abstractmethod
    def looks(self) -> tuple[str, ...]:
        """The looks of an expert, in order."""

    @abstractmethod
    def look(self, said: str) -> str:
        """What a look finds; whatever is said, it must not raise."""

    def opening(self) -> str:
        self.seen = ()
        return self.question()

    def act(self, action: str) -> Outcome:
        said = command_of(action)
        last = said.rpartition("\n")[2]
        if last.lower().startswith("answer") and (answer := answer_of(last)) is not None:
            right = same(answer, self.right())
            return Outcome("right" if right else "wrong", float(right), terminated=True)
        self.seen = (*self.seen, said)
        return Outcome(self.look(said), 0.0)

    def expert(self) -> str:
        left = [one for one in self.looks() if one not in self.seen]
        return left[0] if left else f"answer: {self.right()}"

    def key(self) -> str:
        return repr((self.position, self.seen))


def same(answer: str, right: str) -> bool:
    """Whether an answer is the right one: the same words, or the same number."""
    if answer.strip().lower() == right.lower():
        return True
    try:
        return abs(float(answer) - float(right)) < 1e-6 * max(1.0, abs(float(right)))
    except (ValueError, OverflowError):
        return False
