"""Who plays the other seats of an environment: the policy itself, its start, a snapshot of it, or another model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from burnish.core.method import Method, Role, frozen, snapshot, trained
from burnish.tasks.task_set import Playing

EVERY = 10  # steps between two snapshots, by default
SIZE = 4  # members of a league, by default
_SNAPSHOT = re.compile(r"snapshot(?:\(\s*(\d+)\s*\))?")
_LEAGUE = re.compile(r"league(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_OWN = re.compile(r"own(?:\(\s*(.+?)\s*\))?")
_SEAT = re.compile(r"(\w+)\s*=\s*(.+)")


@dataclass(frozen=True)
class Opponent:
    """The models of the other seats, by name: in training and in held-out evaluation; and the roles they need.

    train is a league: each task is played against one of them. By seat where seats have models of their own.
    learners: those of the models that are trained, each from what it says in its seats.
    """

    train: tuple[Playing, ...]
    heldout: Playing
    roles: Mapping[str, Role]
    learners: tuple[str, ...] = ()

    def models(self) -> list[str]:
        """The names of the models that play in training."""
        named = (one.values() if isinstance(one, Mapping) else (one,) for one in self.train)
        return list(dict.fromkeys(name for names in named for name in names))


def read_opponent(text: str) -> Opponent:
    """What --opponent says.

    self            the policy has all seats and is trained in each
    start           the policy as it was at the start
    snapshot(K)     the policy as it was at most K steps ago
    league(N, K)    one of the policy's last N snapshots, one of which is renewed every K steps; each task has its own
    own             a model of their own that is trained, too, from the policy's start; own(MODEL) from another
    SEAT=WHAT,...   by seat: user=runs/user/model,judge=start; seats that are not named are the policy's
    anything else   a model by its name or directory

    An opponent that moves with the policy says nothing about progress: evaluation then plays against the start.
    """
    pieces = [piece.strip() for piece in re.split(r",(?=\s*\w+\s*=)", text)]
    named = [_SEAT.fullmatch(piece) for piece in pieces]
    if not named[0]:
        return _everywhere(text, "opponent")
    train: dict[str, str] = {}
    heldout: dict[str, str] = {}
    roles: dict[str, Role] = {}
    learners: list[str] = []
    for piece, match in zip(pieces, named, strict=True):
        if match is None or match[1] in train:
            raise ValueError(f"--opponent {text}: {piece!r} is no SEAT=MODEL, or names a seat again; write user=start")
        one = _everywhere(match[2].strip(), f"opponent_{match[1]}")
        if len(one.train) > 1:
            raise ValueError(f"--opponent {text}: a league has all seats besides the policy's; name another for a seat")
        assert isinstance(one.train[0], str) and isinstance(one.heldout, str)
        train[match[1]], heldout[match[1]] = one.train[0], one.heldout
        roles |= one.roles
        learners += one.learners
    return Opponent((train,), heldout, roles, tuple(learners))


def _everywhere(text: str, name: str) -> Opponent:
    """One of the kinds above. name: of its model, where it has one of its own."""
    start = {"start": frozen("policy")}
    if text == "self":
        return Opponent(("policy",), "start", start)
    if text == "start":
        return Opponent(("start",), "start", start)
    if renewed := _SNAPSHOT.fullmatch(text):
        every = int(renewed[1] or EVERY)
        if every < 1:
            raise ValueError(f"--opponent {text}: a snapshot is renewed every 1 or more steps, not {every}")
        return Opponent((name,), "start", {name: snapshot("policy", every), **start})
    if asked := _LEAGUE.fullmatch(text):
        size, every = int(asked[1] or SIZE), int(asked[2] or EVERY)
        if size < 1 or every < 1:
            raise ValueError(f"--opponent {text}: a league has 1 or more members, one renewed every 1 or more steps")
        members = {f"league{i}": snapshot("policy", size * every, offset=(i + 1) * every) for i in range(size)}
        return Opponent(tuple(members), "start", {**members, **start})
    if owned := _OWN.fullmatch(text):
        if owned[1] is None:
            return Opponent((name,), "start", {name: trained(), **start}, (name,))
        first = f"{name}_start"
        return Opponent((name,), first, {name: trained(owned[1]), first: frozen(owned[1])}, (name,))
    if "(" in text:
        raise ValueError(
            f"--opponent is {text!r}; it is self, start, snapshot(10), league(4, 10), own, or a model's name or "
            "directory"
        )
    return Opponent((name,), name, {name: frozen(text)})


def seated(method: Method, opponent: Opponent) -> Method:
    """The method with the opponent's models; its episodes read the one that plays in training."""
    clash = sorted(set(method.models) & set(opponent.roles))
    if clash:
        raise ValueError(f"{method.name} has a model {clash[0]!r} of its own; it cannot be used with --opponent")
    if not any("given:env" in phase.rollout.reads for phase in method.phases):
        raise ValueError(f"{method.name} plays no episodes, so --opponent has no seat; use grpo, gigpo or ppo")
    heard = {f"model:{name}.generate" for name in opponent.models()}
    phases = [
        replace(phase, rollout=replace(phase.rollout, reads=phase.rollout.reads | heard))
        if "given:env" in phase.rollout.reads
        else phase
        for phase in method.phases
    ]
    return replace(method, models={**method.models, **opponent.roles}, phases=tuple(phases))
