"""`textarena:ID`: a game of TextArena. The policy has one seat; the others are played by a random legal opponent.

The opponent draws one of the moves that its observation offers in brackets. The reward of the seat is given at the end
of the game. A game that ended by an invalid move of the policy pays at most 0, whatever TextArena pays for it.
"""

from __future__ import annotations

import importlib
import random
import re
import threading
from types import ModuleType
from typing import Any

from burnish.envs.protocol import Outcome

MOST_PLAYERS = 15
MOST_MOVES = 200  # of opponents between two moves of the policy
_MOVE = re.compile(r"\[[^\[\]\n]{1,40}\]")
_NOT_MOVES = re.compile(r"\[(GAME|Player \d+|ERROR|SYSTEM)\]", re.IGNORECASE)
_LOCK = threading.Lock()  # TextArena draws from the module `random`, which all threads share


def library() -> ModuleType:
    """The package; ValueError where it is not installed."""
    try:
        return importlib.import_module("textarena")
    except ImportError:
        raise ValueError("textarena tasks need textarena; install it with: pip install 'burnish[textarena]'") from None


class TextArenaEnv:
    """One game. players: their number, by default the least that the game takes; seat: the policy's."""

    foreign = True

    def __init__(self, name: str, players: int | None = None, seat: int = 0, **options: Any) -> None:
        self.name, self.players, self.place, self.options = name, players, seat, options
        self.dice, self.noise = random.Random(), random.Random().getstate()
        self.game: Any = None
        self.seen = ""

    def reset(self, seed: int) -> str:
        """What the policy's seat observes at its first move."""
        self.dice, self.noise = random.Random(seed), random.Random(seed).getstate()
        self.game = self._own(lambda: self._made(seed))
        if self._others_move():
            raise ValueError(f"the game {self.name!r} was over before the policy's seat {self.place} moved")
        return self._new()

    def step(self, action: str) -> Outcome:
        """The policy's move, and those of the others up to its next one."""
        done, _ = self._own(lambda: self.game.step(action))
        if not (done or self._others_move()):
            return Outcome(self._new(), 0.0)
        rewards, about = self._own(self.game.close)
        reward = float((rewards or {}).get(self.place, 0.0))
        mine = about.get(self.place, {}) if isinstance(about, dict) else {}
        invalid = bool(mine.get("invalid_move"))
        info = {"why": str(mine.get("reason", "")), "invalid": invalid}
        return Outcome("", min(reward, 0.0) if invalid else reward, terminated=True, info=info)

    def _made(self, seed: int) -> Any:
        """The game, with the least number of players that it takes."""
        arena = library()
        try:
            game = arena.make(self.name, **self.options)
        except LookupError as error:
            raise ValueError(f"{self.name!r} needs data of nltk that is not here: {_first_line(error)}") from error
        except (ValueError, TypeError, ImportError) as error:
            raise ValueError(f"textarena cannot make {self.name!r}: {_first_line(error)}") from error
        for players in [self.players] if self.players else range(1, MOST_PLAYERS + 1):
            try:
                game.reset(num_players=players, seed=seed)
            except AssertionError:
                continue
            if self.place >= players:
                raise ValueError(f"{self.name!r} has the seats 0 to {players - 1}; seat {self.place} is none of them")
            return game
        raise ValueError(f"{self.name!r} does not take {self.players or f'1 to {MOST_PLAYERS}'} players")

    def _others_move(self) -> bool:
        """Let the opponents move until it is the policy's turn. Whether the game is over."""
        for _ in range(MOST_MOVES):
            player, seen = self._own(self.game.get_observation)
            if player == self.place:
                self.now = str(seen)
                return False
            moves = [move for move in _MOVE.findall(str(seen)) if not _NOT_MOVES.fullmatch(move)]
            said = self.dice.choice(moves) if moves else "[pass]"
            if self._own(lambda said=said: self.game.step(said))[0]:
                return True
        raise ValueError(f"{self.name!r}: {MOST_MOVES} moves of opponents without one of the policy")

    def _new(self) -> str:
        """What the observation has beyond the last one: TextArena repeats the whole game."""
        before, self.seen = self.seen, self.now
        return (self.now[len(before) :] if before and self.now.startswith(before) else self.now).strip()

    def _own(self, call: Any) -> Any:
        """Call the game with randomness of its own."""
        with _LOCK:
            shared = random.getstate()
            random.setstate(self.noise)
            try:
                return call()
            finally:
                self.noise = random.getstate()
                random.setstate(shared)


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip(" *")), type(error).__name__)[:200]
