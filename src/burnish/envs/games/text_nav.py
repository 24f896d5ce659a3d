"""`text_nav`: a text adventure: walk through rooms, take a thing, bring it somewhere."""

from __future__ import annotations

import random
import re
from collections import deque
from dataclasses import dataclass

from burnish.envs.games.game import Game, GameFamily
from burnish.envs.protocol import Outcome

_ROOMS = {1: 4, 2: 6, 3: 9}
_EXTRA = {1: 1, 2: 2, 3: 2}  # doors beside those of a spanning tree


@dataclass(frozen=True)
class House:
    """Doors between rooms (letters), where one starts, where the box is, and where it belongs ("" : nowhere)."""

    doors: tuple[tuple[str, str], ...]
    start: str
    box: str
    place: str

    def near(self, room: str) -> list[str]:
        return sorted({b if a == room else a for a, b in self.doors if room in (a, b)})

    def way(self, start: str, goal: str) -> list[str]:
        """A shortest way, start and goal included."""
        found, queue = {start: [start]}, deque([start])
        while queue:
            room = queue.popleft()
            for near in self.near(room):
                if near not in found:
                    found[near] = [*found[room], near]
                    queue.append(near)
        return found[goal]


class Adventure(Game):
    """Actions: go ROOM, take, drop. Reward 1 when the box is taken, or lies where it belongs."""

    def __init__(self, position: House) -> None:
        super().__init__(position)
        back = position.way(position.box, position.place) if position.place else []
        self.most = 2 * (len(position.way(position.start, position.box)) + len(back)) + 2
        self.room, self.box = position.start, position.box  # box "": it is carried

    def opening(self) -> str:
        self.room, self.box = self.position.start, self.position.box
        goal = f"Bring the box from {self.box} to {self.position.place}." if self.position.place else ""
        return f"{goal or f'Take the box in {self.box}.'} {self._view()}"

    def act(self, action: str) -> Outcome:
        words = action.lower().split()
        if words[:1] == ["go"] and len(words) == 2:
            if words[1] not in self.position.near(self.room):
                return Outcome(f"no door. {self._view()}", 0.0)
            self.room = words[1]
            return Outcome(self._view(), 0.0)
        if words == ["take"] and self.box == self.room:
            self.box = ""
            return Outcome(f"taken. {self._view()}", float(not self.position.place), terminated=not self.position.place)
        if words == ["drop"] and not self.box:
            self.box = self.room
            there = self.room == self.position.place
            return Outcome(f"dropped. {self._view()}", float(there), terminated=there)
        known = bool(re.fullmatch(r"take|drop", " ".join(words)))
        return Outcome(f"{'nothing here' if known else 'say go ROOM, take or drop'}. {self._view()}", 0.0)

    def expert(self) -> str:
        goal = self.box or self.position.place
        if self.room == goal:
            return "take" if self.box else "drop"
        return f"go {self.position.way(self.room, goal)[1]}"

    def key(self) -> str:
        return f"{self.room} box {self.box or 'carried'}"

    def _view(self) -> str:
        return f"In {self.room}: {' '.join(self.position.near(self.room))}"


class TextNav(GameFamily):
    """4, 6 or 9 rooms by level; from level 2 on the box is to be brought to another room."""

    name = "text_nav"
    summary = "a text adventure: walk, take, bring (several turns)"
    game = Adventure

    def draw(self, dice: random.Random) -> House:
        rooms = dice.sample("abcdefghijklm", _ROOMS[self.level])
        doors = {tuple(sorted((rooms[dice.randrange(max(0, i - 3), i)], rooms[i]))) for i in range(1, len(rooms))}
        while len(doors) < len(rooms) - 1 + _EXTRA[self.level]:
            doors.add(tuple(sorted(dice.sample(rooms, 2))))
        start, box, place = dice.sample(rooms, 3)
        return House(tuple(sorted((a, b) for a, b in doors)), start, box, place if self.level > 1 else "")
