"""What a user gives as reward, in text or as Python objects, and the Reward that it stands for.

"a.py:f"    "a.py:f,b.py:g*0.5"    ["a.py:f", "b.py:g*0.5"]          on the command line, in YAML, in Python
"f1"    "math,f1(minimum=0.5)*0.2"                                   verifiers and scorers by name
f    [f, g]    [f, (g, 0.5)]    {"format": f, "correct": (g, 2)}     functions, in Python
"""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from burnish.core.call_syntax import Call, read_call, split_outside
from burnish.reward_functions.by_row import RewardByRow
from burnish.reward_functions.coded import CodeReward
from burnish.reward_functions.proved import LeanReward
from burnish.reward_functions.reward import LocalReward, OneReward, Reward, SeveralRewards
from burnish.reward_functions.sandboxed import SandboxedReward
from burnish.reward_functions.timed import SECONDS, TimedReward
from burnish.verifiers.table import load_verifiers

IN_PYTHON = "python:"  # prefix in config.yaml of what was passed as an object
_WEIGHTED = re.compile(r"(.+)\*\s*([^*()]+)", re.DOTALL)


@dataclass(frozen=True)
class RewardSpec:
    """One of the rewards of a run: a function, where it is, or a call by name; its weight; its name in the metrics."""

    what: str | Callable[..., object]
    weight: float
    name: str

    @property
    def call(self) -> Call | None:
        """The call, where it is a reward by name."""
        return read_call(self.what) if isinstance(self.what, str) and not self.what.startswith(IN_PYTHON) else None

    def text(self) -> str:
        """As in config.yaml."""
        where = self.what if isinstance(self.what, str) else f"{IN_PYTHON}{self.name}"
        return where if self.weight == 1.0 else f"{where}*{self.weight!r}"


def read_rewards(given: object) -> list[RewardSpec]:
    """The rewards that a value of `reward` names; raise ValueError for what is none."""
    parts = list(_parts(given))
    if not parts:
        raise ValueError("reward is empty; pass a function, path/to/file.py:function, or several of them")
    names = Counter(part.name for part in parts)
    seen: Counter[str] = Counter()
    for i, part in enumerate(parts):
        if names[part.name] > 1 and isinstance(part.what, str) and part.call is None:
            part = replace(part, name=f"{Path(part.what.rpartition(':')[0]).stem}.{part.name}")
        seen[part.name] += 1
        parts[i] = part if seen[part.name] == 1 else replace(part, name=f"{part.name}_{seen[part.name]}")
    return parts


def reward_text(parts: Sequence[RewardSpec]) -> str:
    """The rewards as one text, for config.yaml."""
    return ",".join(part.text() for part in parts)


def make_reward(parts: Sequence[RewardSpec], seconds: float | None = None) -> Reward:
    """The reward of these parts. seconds: the time limit of one call of each function that is not an object."""
    for part in parts:
        if isinstance(part.what, str) and part.what.startswith(IN_PYTHON):
            raise ValueError(
                f"the reward {part.name!r} was passed as a Python object, which no file can hold; pass it again: "
                "burnish.resume(folder, reward=...)"
            )
        if seconds is not None and not isinstance(part.what, str):
            raise ValueError(
                f"the reward {part.name!r} is a Python object in this process, which cannot be stopped; leave out "
                "reward_timeout, or pass it as path/to/file.py:function"
            )
    rewards = [_one_reward(part, seconds) for part in parts]
    if len(rewards) == 1 and parts[0].weight == 1.0:
        return rewards[0]
    return SeveralRewards(rewards, [part.weight for part in parts])


def _one_reward(part: RewardSpec, seconds: float | None) -> OneReward:
    if not isinstance(part.what, str):
        return LocalReward(part.what, part.name)
    call = part.call
    if call is None:
        return TimedReward(part.what, SECONDS if seconds is None else seconds, part.name)
    verifiers = load_verifiers()
    if call.name not in verifiers:
        near = difflib.get_close_matches(call.name, verifiers, 3, 0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "burnish rewards lists them"
        raise ValueError(
            f"there is no verifier {call.name!r} to score the text of a reply; {hint} (a function of your own is "
            "path/to/file.py:function)"
        )
    if verifiers[call.name].runs == "programs":
        return CodeReward(call, seconds, part.name)
    if verifiers[call.name].runs == "rows":
        return RewardByRow(call, part.name, lambda text: _one_reward(_read(text, None), seconds))
    if verifiers[call.name].runs == "lean":
        return LeanReward(call, seconds, part.name)
    return SandboxedReward(call, seconds, part.name)


def _parts(given: object, name: str | None = None) -> Iterator[RewardSpec]:
    if isinstance(given, RewardSpec):
        yield given
    elif isinstance(given, str):
        for text in split_outside(given):
            yield _read(text, name)
    elif isinstance(given, Mapping):
        for key, one in given.items():
            yield from _parts(one, str(key))
    elif callable(given):
        own_name = str(getattr(given, "__name__", type(given).__name__))
        yield RewardSpec(given, 1.0, name or ("reward" if own_name == "<lambda>" else own_name))
    elif isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], int | float):
        for part in _parts(given[0], name):
            yield replace(part, weight=part.weight * _weight(given[1], part.name))
    elif isinstance(given, Sequence):
        for one in given:
            yield from _parts(one)
    else:
        raise ValueError(
            f"a reward is a function, path/to/file.py:function, or a pair of one and its weight, not {given!r:.80}"
        )


def _read(text: str, name: str | None) -> RewardSpec:
    match = _WEIGHTED.fullmatch(text)
    where, weight = (match[1].strip(), match[2].strip()) if match else (text, "1")
    call = read_call(where)
    return RewardSpec(where, _weight(weight, text), name or (call.name if call else where.rpartition(":")[2]))


def _weight(given: Any, where: str) -> float:
    try:
        weight = float(given)
    except ValueError:
        weight = math.nan
    if not math.isfinite(weight):
        raise ValueError(f"reward {where!r}: the weight {given!r} is not a finite number; for example: file.py:f*0.5")
    return weight
