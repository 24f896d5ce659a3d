"""`form`: a page with fields and buttons, to be filled in and sent."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from burnish.envs.games.game import Game, GameFamily
from burnish.envs.protocol import Outcome

_FIELDS = ("age", "day", "city", "code", "name", "size", "row")
_COUNT = {1: 2, 2: 3, 3: 5}
_FILLED = {1: 0, 2: 1, 3: 2}  # fields that hold something else at the start
_SET = re.compile(r"(\w+)\s*=\s*(\w*)")


@dataclass(frozen=True)
class Page:
    """The fields of a page, what each is to hold, and what each holds at the start."""

    fields: tuple[str, ...]
    wanted: tuple[str, ...]
    held: tuple[str, ...]
    confirm: bool


class Filling(Game):
    """Actions: FIELD=VALUE, clear, send; with a page that asks back, also yes and no. Reward 1 for the right values.

    Sending the page with a wrong or empty field ends the episode without reward.
    """

    def __init__(self, position: Page) -> None:
        super().__init__(position)
        self.most = 2 * len(position.fields) + 4
        self.held = dict(zip(position.fields, position.held, strict=True))
        self.asks = False  # whether the page asks back

    def opening(self) -> str:
        self.held, self.asks = dict(zip(self.position.fields, self.position.held, strict=True)), False
        wanted = ", ".join(f"{f} {v}" for f, v in zip(self.position.fields, self.position.wanted, strict=True))
        return f"Fill in {wanted}. {self._view()}"

    def act(self, action: str) -> Outcome:
        said = action.strip().lower()
        if self.asks:
            self.asks = False
            return self._sent() if said == "yes" else Outcome(self._view(), 0.0)
        if said == "send":
            if not self.position.confirm:
                return self._sent()
            self.asks = True
            return Outcome("Send it? yes no", 0.0)
        if said == "clear":
            self.held = dict.fromkeys(self.held, "")
            return Outcome(self._view(), 0.0)
        found = _SET.fullmatch(said)
        if found is None or found[1] not in self.held:
            return Outcome(f"say FIELD=VALUE, clear or send. {self._view()}", 0.0)
        self.held[found[1]] = found[2]
        return Outcome(self._view(), 0.0)

    def expert(self) -> str:
        if self.asks:
            return "yes" if self._right() else "no"
        for name, wanted in zip(self.position.fields, self.position.wanted, strict=True):
            if self.held[name] != wanted:
                return f"{name}={wanted}"
        return "send"

    def key(self) -> str:
        return self._view() + (" asks" if self.asks else "")

    def _right(self) -> bool:
        right: bool = tuple(self.held.values()) == self.position.wanted
        return right

    def _sent(self) -> Outcome:
        return Outcome("sent" if self._right() else "sent with mistakes", float(self._right()), terminated=True)

    def _view(self) -> str:
        return " ".join(f"{name}[{value}]" for name, value in self.held.items())


class Form(GameFamily):
    """2, 3 or 5 fields by level; from level 2 on some hold other values at first, at level 3 the page asks back."""

    name = "form"
    summary = "a page with fields and buttons: fill it in and send it (several turns)"
    game = Filling

    def draw(self, dice: random.Random) -> Page:
        many = _COUNT[self.level]
        fields = tuple(dice.sample(_FIELDS, many))
        wanted = tuple("".join(dice.choices("abcdefgh0123456789", k=2)) for _ in fields)
        filled = set(dice.sample(fields, _FILLED[self.level]))
        held = tuple("".join(dice.choices("klmnop", k=2)) if name in filled else "" for name in fields)
        return Page(fields, wanted, held, self.level > 2)
