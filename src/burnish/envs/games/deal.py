"""`deal`: a buyer and a seller agree on a price; each knows only what the thing is worth to itself.

The policy is the buyer or the seller, the seat `player`; the seat `opponent` begins. The environment plays it, unless
a model does. The scripted opponent accepts every price that costs it nothing, and else moves its price by 1 towards
that limit.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from burnish.core.messages import Message
from burnish.envs.games.game import Game, GameFamily
from burnish.envs.protocol import Outcome

_MARKUP = {1: 2, 2: 3, 3: 5}  # the most by which the opponent's first price is off its limit; as many rounds
PLAYER, OPPONENT = "player", "opponent"


@dataclass(frozen=True)
class Bargain:
    """buys: whether the policy buys. mine, other: what the thing is worth to each. first: the opponent's price."""

    buys: bool
    mine: int
    other: int
    first: int
    rounds: int

    def share(self, seat: str, price: int) -> float:
        """A seat's share of what there is to gain; at least -1."""
        gain = abs(self.mine - price) if self._gains(price) else -abs(self.mine - price)
        mine = gain / abs(self.mine - self.other)
        return max(-1.0, mine if seat == PLAYER else 1.0 - mine)

    def _gains(self, price: int) -> bool:
        return price <= self.mine if self.buys else price >= self.mine


class Haggling(Game):
    """An action names a price. Naming the other's last price, or a better one for it, is a deal at the other's price.

    Reward: the share of the gain. No deal after the rounds: 0. An action without a number leaves the price as it was.
    """

    seats = (PLAYER, OPPONENT)

    def __init__(self, position: Bargain) -> None:
        super().__init__(position)
        self.prices: dict[str, int | None] = {PLAYER: None, OPPONENT: None}
        self.turn, self.seated = PLAYER, False
        self.rounds = 0  # prices that the player has named
        self.told: set[str] = set()  # seats that know the rules

    def reset(self, seated: bool = False) -> str | tuple[Message, ...]:
        self.seated = seated
        return super().reset()

    def opening(self) -> str:
        self.rounds, self.told = 0, set()
        self.prices = {PLAYER: None, OPPONENT: None if self.seated else self.position.first}
        self.turn = OPPONENT if self.seated else PLAYER
        return self._view()

    def seat(self) -> str:
        return self.turn

    def act(self, action: str) -> Outcome:
        numbers = re.findall(r"\d{1,3}", action)
        me, other = self.turn, self._rival()
        theirs = self.prices[other]
        if numbers:
            said = int(numbers[-1])
            if theirs is not None and self._agrees(said, theirs):
                return self._deal(theirs)
            self.prices[me] = said
        self.rounds += me == PLAYER
        if me == PLAYER and not self.seated:
            return self._scripted(bool(numbers))
        if me == OPPONENT and self.rounds >= self.position.rounds:
            return Outcome("no deal", 0.0, terminated=True)
        self.turn = other
        return Outcome(self._view(), 0.0)

    def expert(self) -> str:
        """One price after another, from the lowest that the opponent may accept: this gets the whole gain."""
        p = self.position
        if self.turn == OPPONENT:
            return str(p.first)
        off = max(p.rounds - self.rounds, 1)
        return str(p.first - off if p.buys else p.first + off)

    def key(self) -> str:
        return f"{self.prices[PLAYER]} {self.prices[OPPONENT]} after {self.rounds}"

    def _rival(self) -> str:
        return OPPONENT if self.turn == PLAYER else PLAYER

    def _buys(self, seat: str) -> bool:
        buys: bool = self.position.buys == (seat == PLAYER)
        return buys

    def _agrees(self, said: int, theirs: int) -> bool:
        """Whether a price is at least as good for the other as the one it named."""
        return said >= theirs if self._buys(self.turn) else said <= theirs

    def _deal(self, price: int) -> Outcome:
        rewards = {seat: self.position.share(seat, price) for seat in (PLAYER, OPPONENT)}
        return Outcome(f"deal at {price}", 0.0, terminated=True, info={"price": price}, rewards=rewards)

    def _scripted(self, named: bool) -> Outcome:
        """The opponent's answer: it accepts what costs it nothing; where a price was named, it moves its own by 1."""
        p, said, price = self.position, self.prices[PLAYER], self.prices[OPPONENT]
        assert price is not None
        if said is not None and (said >= p.other if p.buys else said <= p.other):
            return self._deal(said)
        if self.rounds >= p.rounds:
            return Outcome("no deal", 0.0, terminated=True)
        if named:
            self.prices[OPPONENT] = max(p.other, price - 1) if p.buys else min(p.other, price + 1)
        return Outcome(self._view(), 0.0)

    def _view(self) -> str:
        seat = self.turn
        theirs, verb = self.prices[self._rival()], "offer" if not self._buys(seat) else "ask"
        said = "Name a price." if theirs is None else f"I {verb} {theirs}."
        if seat in self.told:
            return said
        self.told.add(seat)
        worth = self.position.mine if seat == PLAYER else self.position.other
        return (
            f"You {'buy' if self._buys(seat) else 'sell'}, worth {worth} to you, {self.position.rounds} rounds. {said}"
        )


class Deal(GameFamily):
    """2, 3 or 5 rounds by level; the opponent's first price is off its limit by 1 to as many."""

    name = "deal"
    summary = "haggle over a price as buyer or seller (several turns, two seats)"
    game = Haggling

    def draw(self, dice: random.Random) -> Bargain:
        most = _MARKUP[self.level]
        buys, markup, room = dice.random() < 0.5, dice.randint(1, most), dice.randint(0, 1)
        first = dice.randint(most + 2, 60)
        sign = 1 if buys else -1
        return Bargain(buys, first + sign * room, first - sign * markup, first, most)
