"""`sql`: questions to a small database, which queries answer."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import dataclass

from burnish.envs.sql_tools import answered
from burnish.envs.work.answered import Answered
from burnish.envs.work.family import WorkFamily

_KINDS = ("pen", "ink", "cup", "bag", "map", "key")
_TOWNS = ("rome", "oslo", "bern", "cork", "lima")
_ROWS = {1: 12, 2: 24, 3: 30}


@dataclass(frozen=True)
class Base:
    """Rows of items (id, kind, price, shop) and of shops (id, town), and what is asked: (what, kind, town)."""

    items: tuple[tuple[int, str, int, int], ...]
    shops: tuple[tuple[int, str], ...]
    asked: tuple[str, str, str]


_ASKS = {
    "count": ("How many {kind} are there{there}?", "count(*)"),
    "sum": ("What do all {kind} cost together{there}?", "sum(price)"),
    "max": ("What does the dearest {kind} cost{there}?", "max(price)"),
    "min": ("What does the cheapest {kind} cost{there}?", "min(price)"),
}


class Asking(Answered):
    """An action is a query in SQLite's SQL, or the line `answer: ...`."""

    position: Base

    def question(self) -> str:
        what, kind, town = self.position.asked
        shops = ", shops(id, town)" if town else ""
        there = f" in {town}" if town else ""
        return f"Tables items(id, kind, price, shop){shops}. {_ASKS[what][0].format(kind=kind, there=there)}"

    def looks(self) -> tuple[str, ...]:
        what, kind, town = self.position.asked
        joined = " join shops on shop = shops.id" if town else ""
        where = f" and town = '{town}'" if town else ""
        return (f"select {_ASKS[what][1]} from items{joined} where kind = '{kind}'{where}",)

    def right(self) -> str:
        what, kind, town = self.position.asked
        there = {number for number, name in self.position.shops if name == town or not town}
        prices = [price for _, of, price, shop in self.position.items if of == kind and shop in there]
        found = {"count": len(prices), "sum": sum(prices), "max": max(prices), "min": min(prices)}
        return str(found[what])

    def look(self, said: str) -> str:
        with closing(sqlite3.connect(":memory:")) as base:
            base.execute("create table items (id integer, kind text, price integer, shop integer)")
            base.execute("create table shops (id integer, town text)")
            base.executemany("insert into items values (?, ?, ?, ?)", self.position.items)
            base.executemany("insert into shops values (?, ?)", self.position.shops)
            base.commit()
            try:
                return answered(base, said)
            except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
                return f"error: {str(error)[:200]}"


class Sql(WorkFamily):
    """12, 24 or 30 items. Level 1 adds prices or seeks the largest, level 2 also counts, level 3 joins two tables."""

    name = "sql"
    summary = "questions to a SQLite database: write queries, then answer (several turns)"
    game = Asking

    def draw(self, dice: random.Random) -> Base:
        towns = dice.sample(_TOWNS, 3)
        items = tuple(
            (i, dice.choice(_KINDS), dice.randrange(1, 60), dice.randrange(1, len(towns) + 1))
            for i in range(1, _ROWS[self.level] + 1)
        )
        _, kind, _, shop = dice.choice(items)
        what = dice.choice(("sum", "max") if self.level == 1 else tuple(_ASKS))  # a count can be guessed
        return Base(items, tuple(enumerate(towns, 1)), (what, kind, towns[shop - 1] if self.level == 3 else ""))
