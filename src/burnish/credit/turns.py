"""Credit to the turns of an episode: each token of the policy gets the advantage of its turn."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace


def returns_of(rewards: Sequence[float], gamma: float) -> list[float]:
    """G_k = r_k + gamma G_{k+1}, from the rewards of the policy's turns."""
    returns: list[float] = []
    ahead = 0.0
    for reward in reversed(rewards):
        ahead = reward + gamma * ahead
        returns.append(ahead)
    return returns[::-1]


def bucket_advantages(keys: Sequence[str], returns: Sequence[float], std: bool, eps: float = 1e-6) -> list[float]:
    """G - mean G over the turns with the same key, divided by their sample deviation + eps with `std`.

    A turn whose key no other turn has gets 0.
    """
    buckets: dict[str, list[float]] = {}
    for key, value in zip(keys, returns, strict=True):
        buckets.setdefault(key, []).append(value)
    advantages = []
    for key, value in zip(keys, returns, strict=True):
        peers = buckets[key]
        if len(peers) < 2:
            advantages.append(0.0)
            continue
        spread = statistics.stdev(peers) + eps if std else 1.0
        advantages.append((value - statistics.fmean(peers)) / spread)
    return advantages


@supplies("stream:adv")
def state_groups(omega: float, gamma: float, *, std: bool = False, eps: float = 1e-6, author: str = "policy") -> Part:
    """A = A_E + omega A_S on the tokens of each turn (GiGPO, arXiv 2505.10978).

    A_E = (R - mean R) / F over the episodes of a group;  A_S the same of the turns' discounted returns, over all turns
    of the group that began in one state, whenever they did (note "keys" of the traces);  F = deviation + eps with
    `std`, else 1. A state that was met once has A_S = 0. Episodes without keys have omega = 0.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        met = shared = 0
        for group in groups:
            totals = [trace.scores["reward"] for trace in group.traces]
            spread = statistics.stdev(totals) + eps if std and len(totals) > 1 else 1.0
            mean = statistics.fmean(totals)
            turns = [(trace, *turn) for trace in group.traces for turn in turn_returns(trace, gamma, author)]
            local = bucket_advantages([key for *_, key, _ in turns], [value for *_, value in turns], std, eps)
            for trace in group.traces:
                trace.streams["adv"] = torch.zeros(len(trace))
            for (trace, start, end, _, _), own in zip(turns, local, strict=True):
                trace.streams["adv"][start:end] = (trace.scores["reward"] - mean) / spread + omega * own
                met, shared = met + 1, shared + (own != 0)
        step.notes.add("shared_states", shared, max(1, met))
        return groups

    return Part(
        name=f"state_groups({omega:g}, {gamma:g})",
        call=call,
        reads=frozenset({"score:reward", "turn_score:reward", f"tokens:{author}"}),
        writes=frozenset({"stream:adv"}),
    )


@supplies("stream:reward")
def turn_rewards(*, author: str = "policy") -> Part:
    """r_t = the reward of a turn at its last token, 0 at its other tokens, as stream "reward" on the author's turns."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        reward = torch.full((len(trace),), float("nan"))
        for (turn, start, end), own in zip(trace.spans(), trace.turn_scores["reward"], strict=True):
            if turn.author == author and end > start:
                reward[start:end] = 0.0
                reward[end - 1] = own
        trace.streams["reward"] = reward

    return per_trace(
        write,
        name="turn_rewards",
        reads=frozenset({"turn_score:reward", f"tokens:{author}"}),
        writes=frozenset({"stream:reward"}),
    )


def turn_returns(trace: Trace, gamma: float, author: str) -> list[tuple[int, int, str, float]]:
    """Of each turn by the author: its range of tokens, the key of the state before it, its discounted return."""
    spans = [(i, start, end) for i, (turn, start, end) in enumerate(trace.spans()) if turn.author == author]
    rewards = trace.turn_scores["reward"]
    values = returns_of([rewards[i] for i, _, _ in spans], gamma)
    keys = trace.note.get("keys") or []
    return [
        (start, end, str(keys[k]) if k < len(keys) and keys[k] is not None else f"alone {id(trace)} {k}", value)
        for k, ((_, start, end), value) in enumerate(zip(spans, values, strict=True))
    ]
