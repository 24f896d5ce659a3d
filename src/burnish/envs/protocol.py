"""What an environment is: reset, step, and what it may have besides; and the conventions in which a step may answer.

One instance is one episode. `reset` and `step` may be async.

    reset(task, seed) -> observation            task: the row of the data; it takes those of the two that it names
                                                (and `seated`, see below, and `reader`: of the tool calls that the
                                                policy writes, tool_calls/table.py)
    step(action) -> Outcome                     or (observation, reward, done), (observation, reward, done, info), or
                                                Gymnasium's (observation, reward, terminated, truncated, info)
    key() -> str                                optional: names the state; equal states have equal keys
    fork() -> Environment                       optional: a copy that goes its own way; without it, methods that
                                                return to a state reset a fresh instance and repeat the actions
    expert() -> str                             optional: a good action in this state, for demonstrations
    tools() -> list of JSON schemas             optional: for the chat template
    close()                                     optional: called once, at the end of the episode

An observation is text, a message, or a list of messages (role user or tool). A reward may be None: nothing is paid yet.
terminated: the episode is over; truncated: it was cut off (a limit of turns), which is not its end.

Several players. An environment with `seat() -> str` names the player whose turn it is; `seats` has all names, that of
the policy first. The observation that was returned last is what this player sees: its prompt the first time (a system
message, the rules), later what happened since its last reply. So each player has a view of its own. `Outcome.reward`
is for the player who acted; `Outcome.rewards` adds rewards by seat. With `seated`, reset says whether models play the
other seats; where they do not, an environment may play them itself and name the policy's seat alone.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from burnish.core.messages import Message, check_message, well_formed
from burnish.tool_calls import Reader
from burnish.util.untrusted import check_depth

Observed = str | tuple[Message, ...]


@runtime_checkable
class Environment(Protocol):
    """The two methods that every environment has."""

    @property
    def reset(self) -> Callable[..., Any]: ...

    @property
    def step(self) -> Callable[..., Any]: ...


@dataclass(frozen=True)
class Outcome:
    """What a step gives."""

    observation: Observed = ""
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    rewards: Mapping[str, float] = field(default_factory=dict)  # by seat, where several play

    @property
    def over(self) -> bool:
        return self.terminated or self.truncated

    def metrics(self) -> dict[str, float]:
        """The finite numbers in info["metrics"]: what the environment reports besides rewards. The last of an episode
        count.
        """
        given = self.info.get("metrics")
        found = given.items() if isinstance(given, Mapping) else ()
        return {str(k): float(v) for k, v in found if isinstance(v, int | float) and abs(v) <= sys.float_info.max}

    @property
    def valid(self) -> bool | None:
        """Whether the action was executed, where info says so ("valid")."""
        given = self.info.get("valid")
        return None if given is None else bool(given)


def read_outcome(given: Any) -> Outcome:
    """The outcome that a step returned, in any of the conventions; raises ValueError for anything else."""
    if isinstance(given, Outcome):
        rewards = {seat: _reward(value) or 0.0 for seat, value in given.rewards.items()}
        found = replace(
            given,
            observation=read_observation(given.observation),
            reward=_reward(given.reward),
            rewards=rewards,
            info=given.info if isinstance(given.info, Mapping) else {},
        )
        _ = found.valid  # an array of several has no truth
        return found
    if not isinstance(given, tuple) or not 3 <= len(given) <= 5:
        raise ValueError(
            f"step returned {str(given)[:80]!r}; it must return (observation, reward, done), Gymnasium's five, or an "
            "Outcome"
        )
    observation, reward, terminated, *rest = given
    truncated = bool(rest[0]) if len(given) == 5 else False
    info = rest[-1] if rest and isinstance(rest[-1], Mapping) else {}
    found = Outcome(read_observation(observation), _reward(reward), bool(terminated), truncated, info)
    _ = found.valid
    return found


def read_observation(given: Any) -> Observed:
    """Text, or messages; what `reset` returned may be Gymnasium's pair (observation, info)."""
    if isinstance(given, str):
        return str(well_formed(given))
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], Mapping) and "role" not in given[1]:
        return read_observation(given[0])
    if isinstance(given, Mapping):
        given = [given]
    if isinstance(given, Sequence) and given:
        for message in given:
            check_message(message)
            check_depth(message)
        return tuple(map(well_formed, given))
    raise ValueError(f"an observation is {str(given)[:80]!r}; it must be text or chat messages")


def shortened(seen: Observed, most: int) -> tuple[Observed, int]:
    """The first `most` characters of an observation, over all its messages and parts, and how many were cut off.

    Where it is cut, a line says how much is missing; messages and parts after it are left out.
    """
    if isinstance(seen, str):
        return _cut_text(seen, most)
    found: list[Message] = []
    left, cut = most, 0
    for message in seen:
        content = message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
        kept: list[dict[str, object]] = []
        for part in parts:
            said = part.get("text", "")  # a picture counts as one character, and is there or not
            text, more = _cut_text(said, left)
            if left:
                kept.append({**part, "text": text} if part["type"] == "text" else dict(part))
            left, cut = max(0, left - max(1, len(said))), cut + more
        if kept:
            message = {**message, "content": kept[0]["text"] if isinstance(content, str) else kept}
        if kept or not parts:
            found.append(message)
    return tuple(found), cut


def _cut_text(text: str, most: int) -> tuple[str, int]:
    cut = max(0, len(text) - most)
    return (f"{text[:most]}\n[{cut} more characters]", cut) if cut else (text, 0)


def offers(env: Any, what: str) -> bool:
    """Whether an environment has this method; an attribute of the same name that cannot be called is its own affair."""
    return callable(getattr(env, what, None))


def reset_arguments(
    reset: Callable[..., Any], task: Any, seed: int, seated: bool = False, reader: Reader | None = None
) -> dict[str, Any]:
    """Those of task, seed, seated and reader that `reset` takes; the last two only where they are there, and named."""
    try:
        parameters = inspect.signature(reset).parameters
    except (TypeError, ValueError):
        return {}
    everything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    found = {name: value for name, value in (("task", task), ("seed", seed)) if everything or name in parameters}
    if reader is not None and "reader" in parameters:
        found["reader"] = reader
    return {**found, "seated": True} if seated and "seated" in parameters else found


def _reward(given: object) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool | int | float) or hasattr(given, "__float__"):
        reward = float(given)
        if math.isfinite(reward):
            return reward
    raise ValueError(f"a step's reward is {str(given)[:40]!r}; it must be a finite number or None")
