"""Episodes as plain values, for checkpoints, and played up to the same place again.

What an environment holds cannot be stored. An episode is stored as what was said in it: a fresh environment is reset
and gets the same actions, and must answer as it did before. One that does not has failed, with that reason.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

from burnish.core.types import Group, Trace
from burnish.core.types_json import group_from_record, group_to_record
from burnish.envs.guarded import Failure
from burnish.envs.protocol import Observed, Outcome
from burnish.rollout.episode import Episode, Player

_OF_PLAYER = ("keys", "valid", "cut", "replies", "before")
_OF_EPISODE = ("begun", "heard", "over", "why", "failure", "outcome", "answered", "metrics")


def record_of(episode: Episode) -> dict[str, Any]:
    """Plain values: what each player saw, said and earned, and which actions the environment got."""
    seats = {seat: player for seat, player in episode.players.items() if player.turns}
    traces = [Trace(tuple(player.turns), i) for i, player in enumerate(seats.values())]
    return {
        "turns": group_to_record(Group(episode.task, traces)),
        "players": {
            seat: {
                "who": player.who,
                "rewards": [None if math.isnan(one) else one for one in player.rewards],
                "asked": list(player.asked),
                **{name: getattr(player, name) for name in _OF_PLAYER},
            }
            for seat, player in seats.items()
        },
        "at": next((seat for seat, player in seats.items() if player is episode.player), None),
        "said": list(episode.env.said),
        "seen": [_print(one) for one in episode.env.seen],
        **{name: getattr(episode, name) for name in _OF_EPISODE},
    }


def bring_to(episode: Episode, record: dict[str, Any]) -> None:
    """Bring an episode that has just been started to where another one was stored."""
    traces = group_from_record(record["turns"]).traces
    for trace, (seat, kept) in zip(traces, record["players"].items(), strict=True):
        rewards = [math.nan if one is None else one for one in kept["rewards"]]
        own = {name: kept[name] for name in _OF_PLAYER}
        player = Player(kept["who"], list(trace.turns), rewards, asked=tuple(kept["asked"]), **own)
        episode.players[seat] = player
        if seat == record["at"]:
            episode.player = player
    for name in _OF_EPISODE:
        setattr(episode, name, record[name])
    if record["failure"]:
        episode.env.close()
        return
    try:
        _play_again(episode, record["said"], record["seen"])
    except (Failure, ValueError) as failure:
        episode.fail(f"the episode could not be played up to where the run was stopped: {failure}")
        return
    if episode.over:
        episode.env.close()


def _play_again(episode: Episode, said: Sequence[str], seen: Sequence[str]) -> None:
    """The same reset and actions, of which the last one may not have been answered."""
    env = episode.env
    if seen:
        _check(env.observed(episode.call), seen[0], 0)
    for number, action in enumerate(said, 1):
        episode.call = env.begin_step(action)
        if number < len(seen):
            _check(env.outcome(episode.call), seen[number], number)


def _check(now: Observed | Outcome, before: str, number: int) -> None:
    if _print(now) != before:
        what = f"step {number}" if number else "reset"
        raise Failure(f"the environment answers {what} in another way; make reset(task, seed) repeat itself")


def _print(seen: Observed | Outcome) -> str:
    parts: object = seen
    if isinstance(seen, Outcome):
        parts = (seen.observation, seen.reward, seen.terminated, seen.truncated)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
