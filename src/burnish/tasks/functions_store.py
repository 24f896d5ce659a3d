"""The functions of the task `calls`: their JSON schemas, requests in words, and values of their arguments."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_CITIES = ("Oslo", "Lima", "Cairo", "Kyoto", "Quito", "Riga")
_DAYS = ("Monday", "Tuesday", "Friday", "Sunday")
_NAMES = ("Ada", "Ben", "Eva", "Raj", "Zoe", "Tim")
_ROOMS = ("kitchen", "hall", "cellar", "attic")
_COINS = ("EUR", "USD", "JPY", "CHF")
_SWITCH = {True: "on", False: "off"}
_SONGS = ("Blue Road", "Night Rain", "Old Harbour")

Value = Callable[[random.Random], Any]


def _number(low: int, high: int) -> Value:
    return lambda dice: dice.randint(low, high)


def _one_of(*values: object) -> Value:
    return lambda dice: dice.choice(values)


@dataclass(frozen=True)
class Function:
    """A function of the store. asks: a request in words, with the arguments in braces."""

    name: str
    asks: str
    values: Mapping[str, Value]
    types: Mapping[str, str]

    def arguments(self, dice: random.Random) -> dict[str, Any]:
        """Values for all arguments."""
        return {key: draw(dice) for key, draw in self.values.items()}

    def request(self, arguments: Mapping[str, Any]) -> str:
        """The request in words."""
        words = {key: _SWITCH[value] if isinstance(value, bool) else value for key, value in arguments.items()}
        return self.asks.format(**words)

    @property
    def signature(self) -> str:
        """The function in one line: name(argument: type, ...)."""
        return f"{self.name}({', '.join(f'{key}: {kind}' for key, kind in self.types.items())})"

    @property
    def schema(self) -> dict[str, Any]:
        """Its JSON schema, as chat templates and APIs take it."""
        properties = {key: {"type": kind} for key, kind in self.types.items()}
        parameters = {"type": "object", "properties": properties, "required": list(self.types)}
        return {"name": self.name, "description": self.asks.replace("{", "").replace("}", ""), "parameters": parameters}


def _function(name: str, asks: str, **arguments: tuple[str, Value]) -> Function:
    values = {key: value for key, (_, value) in arguments.items()}
    return Function(name, asks, values, {key: kind for key, (kind, _) in arguments.items()})


EASY = tuple(
    _function(name, f"{name} {{x}}", x=("integer", _number(0, 99))) for name in ("double", "turn", "drop", "step", "up")
)  # one argument, and words that the tokenizer of `tiny` has
STORE = (
    _function("add", "add {a} and {b}", a=("integer", _number(1, 99)), b=("integer", _number(1, 99))),
    _function("set_timer", "set a timer for {minutes} minutes", minutes=("integer", _number(1, 60))),
    _function("weather", "tell me the weather in {city} on {day}",
              city=("string", _one_of(*_CITIES)), day=("string", _one_of(*_DAYS))),
    _function("forecast", "give the forecast for {city} for the next {days} days",
              city=("string", _one_of(*_CITIES)), days=("integer", _number(2, 9))),
    _function("send", "send a message to {to} about {subject}",
              to=("string", _one_of(*_NAMES)), subject=("string", _one_of("lunch", "rent", "the trip", "the report"))),
    _function("call_person", "call {who} at {hour} o'clock",
              who=("string", _one_of(*_NAMES)), hour=("integer", _number(7, 22))),
    _function("book_hotel", "book a hotel in {city} for {nights} nights",
              city=("string", _one_of(*_CITIES)), nights=("integer", _number(1, 9))),
    _function("convert", "convert {amount} {source} to {target}", amount=("integer", _number(5, 500)),
              source=("string", _one_of(*_COINS[:2])), target=("string", _one_of(*_COINS[2:]))),
    _function("switch_light", "switch the light in the {room} {on}",
              room=("string", _one_of(*_ROOMS)), on=("boolean", _one_of(True, False))),
    _function("play_song", "play the song {title}", title=("string", _one_of(*_SONGS))),
)  # fmt: skip
