"""Who plays the other seats of an environment: the policy itself, its start, a snapshot of it, or another model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from burnish.core.method import Method, Role, frozen, snapshot

EVERY = 10  # steps between two snapshots, by default
_SNAPSHOT = re.compile(r"snapshot(?:\(\s*(\d+)\s*\))?")


@dataclass(frozen=True)
class Opponent:
    """The models of the other seats, by name: in training and in held-out evaluation; and the roles they need."""

    train: str
    heldout: str
    roles: Mapping[str, Role]


def read_opponent(text: str) -> Opponent:
    """What --opponent says.

    self           the policy has all seats and is trained in each
    start          the policy as it was at the start
    snapshot(K)    the policy as it was at most K steps ago
    anything else  a model by its name or directory

    An opponent that moves with the policy says nothing about progress: evaluation then plays against the start.
    """
    start = {"start": frozen("policy")}
    if text == "self":
        return Opponent("policy", "start", start)
    if text == "start":
        return Opponent("start", "start", start)
    if named := _SNAPSHOT.fullmatch(text):
        every = int(named[1] or EVERY)
        if every < 1:
            raise ValueError(f"--opponent {text}: a snapshot is renewed every 1 or more steps, not {every}")
        return Opponent("opponent", "start", {"opponent": snapshot("policy", every), **start})
    if "(" in text:
        raise ValueError(f"--opponent is {text!r}; it is self, start, snapshot(10), or a model's name or directory")
    return Opponent("opponent", "opponent", {"opponent": frozen(text)})


def seated(method: Method, opponent: Opponent) -> Method:
    """The method with the opponent's models; its episodes read the one that plays in training."""
    clash = sorted(set(method.models) & set(opponent.roles))
    if clash:
        raise ValueError(f"{method.name} has a model {clash[0]!r} of its own; it cannot be used with --opponent")
    if not any("given:env" in phase.rollout.reads for phase in method.phases):
        raise ValueError(f"{method.name} plays no episodes, so --opponent has no seat; use grpo, gigpo or ppo")
    phases = [
        replace(phase, rollout=replace(phase.rollout, reads=phase.rollout.reads | {f"model:{opponent.train}.generate"}))
        if "given:env" in phase.rollout.reads
        else phase
        for phase in method.phases
    ]
    return replace(method, models={**method.models, **opponent.roles}, phases=tuple(phases))
