"""`gymnasium:ID`: an environment of Gymnasium's registry, with observations and actions as text.

Actions: Discrete (a number, or a name where the names are known), MultiDiscrete (numbers), Text. Observations: what the
environment renders as text where it does, else the numbers or text of its observation space. A reply without a legal
action changes nothing: it is answered by the list of actions, and costs a turn.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from burnish.envs.protocol import Outcome

MOST_NUMBERS = 64  # of an observation that is written as numbers
_NUMBER = re.compile(r"(?<![\w.-])\d{1,6}(?!\w)")
_MARKED = re.compile(r"\x1b\[[\d;]*m(.*?)\x1b\[0m", re.DOTALL)  # how text renderings mark the agent
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_NAMES = {  # of the actions of Gymnasium's own text environments
    "FrozenLake": ("left", "down", "right", "up"),
    "FrozenLake8x8": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "CliffWalkingSlippery": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
    "Blackjack": ("stick", "hit"),
}


def library() -> ModuleType:
    """The package; ValueError where it is not installed."""
    try:
        return importlib.import_module("gymnasium")
    except ImportError:
        raise ValueError("gymnasium tasks need gymnasium; install it with: pip install 'burnish[gymnasium]'") from None


class GymnasiumEnv:
    """One episode of the environment `name`; options go to gymnasium.make."""

    foreign = True

    def __init__(self, name: str, **options: Any) -> None:
        gym = library()
        try:
            modes = gym.spec(name).entry_point and gym.make(name, **options).metadata.get("render_modes", ())
            self.env = gym.make(name, **({"render_mode": "ansi"} if "ansi" in modes else {}), **options)
        except (gym.error.Error, TypeError, ModuleNotFoundError) as error:
            raise ValueError(f"gymnasium cannot make {name!r}: {str(error).splitlines()[0][:200]}") from error
        self.name, self.drawn = name, "ansi" in modes
        self.actions = _Actions(name, self.env.action_space)
        self.seen: Any = None
        self.info: Mapping[str, Any] = {}

    def reset(self, seed: int) -> str:
        """The state at the beginning, and the actions."""
        self.seen, self.info = self.env.reset(seed=seed)
        about = self.name.partition("-v")[0]
        return f"{about}. {self.actions.asked(self.info)}\n\n{self._shown()}"

    def step(self, action: str) -> Outcome:
        """The state after an action."""
        chosen = self.actions.read(action)
        if chosen is None:
            return Outcome(f"No action. {self.actions.asked(self.info)}", 0.0)
        self.seen, reward, terminated, truncated, self.info = self.env.step(chosen)
        return Outcome(self._shown(), float(reward), bool(terminated), bool(truncated))

    def key(self) -> str:
        """The state as it is shown."""
        return self._shown()

    def close(self) -> None:
        self.env.close()

    def _shown(self) -> str:
        if self.drawn:
            return str(_COLOUR.sub("", _MARKED.sub(r"[\1]", str(self.env.render())))).strip("\n")
        return _as_text(self.seen, self.name)


class _Actions:
    """What an action space asks for, and the action in a reply: the last that it names."""

    def __init__(self, name: str, space: Any) -> None:
        self.space, self.kind = space, type(space).__name__
        if self.kind not in ("Discrete", "MultiDiscrete", "Text"):
            raise ValueError(
                f"the actions of {name!r} are {str(space)[:60]}; only Discrete, MultiDiscrete and Text can be written"
            )
        found = _NAMES.get(name.rpartition("/")[2].partition("-v")[0], ())
        self.names = found if self.kind == "Discrete" and len(found) == int(space.n) else ()

    def asked(self, info: Mapping[str, Any]) -> str:
        """The sentence that says what may be replied."""
        if self.kind == "Text":
            return f"Reply with at most {self.space.max_length} characters."
        if self.kind == "MultiDiscrete":
            return f"Reply with {len(self.space.nvec)} numbers, below {' '.join(map(str, self.space.nvec))}."
        if not self.names:
            return f"Reply with a number from {self.space.start} to {self.space.start + self.space.n - 1}."
        mask = info.get("action_mask")
        legal = [name for i, name in enumerate(self.names) if mask is None or mask[i]]
        return f"Reply with one of: {', '.join(legal)}."

    def read(self, reply: str) -> Any:
        """The action; None where the reply has none."""
        reply = reply[-4000:]
        if self.kind == "Text":
            return reply if self.space.contains(reply) else None
        numbers = [int(number) for number in _NUMBER.findall(reply)]
        if self.kind == "MultiDiscrete":
            import numpy as np

            chosen = np.array(numbers[-len(self.space.nvec) :], dtype=self.space.dtype)
            return chosen if self.space.contains(chosen) else None
        words = [
            (i, self.names.index(w)) for i, w in enumerate(re.findall(r"[a-z]+", reply.lower())) if w in self.names
        ]
        if words:
            return words[-1][1]
        return numbers[-1] if numbers and self.space.contains(numbers[-1]) else None


def _as_text(seen: Any, name: str) -> str:
    """An observation as text: a text, numbers, or a mapping or tuple of them."""
    if isinstance(seen, str):
        return seen
    if isinstance(seen, Mapping):
        return "\n".join(f"{key}: {_as_text(value, name)}" for key, value in seen.items())
    if isinstance(seen, tuple):
        return ", ".join(_as_text(value, name) for value in seen)
    if getattr(seen, "size", 1) > MOST_NUMBERS:
        raise ValueError(f"an observation of {name!r} has {seen.size} numbers; at most {MOST_NUMBERS} are written")
    listed = seen.tolist() if hasattr(seen, "tolist") else seen
    return str(listed)
