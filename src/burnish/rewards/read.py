"""The scorers that the options --reward and --shape name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from burnish.core.call_syntax import read_call, split_outside
from burnish.core.scorer import Named
from burnish.reward_functions.resolve import RewardSpec
from burnish.rewards.table import build_scorer, load_scorers
from burnish.tasks.source import Source


def split_rewards(parts: Sequence[RewardSpec]) -> tuple[list[RewardSpec], list[RewardSpec]]:
    """The rewards that score texts (functions and verifiers), and those that are scorers."""
    known = load_scorers()
    scorers = [part for part in parts if part.call is not None and part.call.name in known]
    return [part for part in parts if part not in scorers], scorers


def named_rewards(parts: Sequence[RewardSpec], task: Source) -> list[Named]:
    """The scorers of --reward, with their weights."""
    found = []
    for part in parts:
        assert part.call is not None
        if part.name != part.call.name:
            raise ValueError(
                f"the reward {part.call.name!r} is there twice, or under another name; a run has it once, under its "
                "own name: leave one out, or use a reward that takes several models (weighted, ensemble)"
            )
        found.append(Named(part.name, build_scorer(part.call, task, "reward"), part.weight))
    return found


def named_shapes(text: str | None, task: Source) -> list[Named]:
    """The scorers of --shape, in order."""
    found = []
    known = [name for name, entry in load_scorers().items() if entry.kind == "shape"]
    for piece in split_outside(text or ""):
        call = read_call(piece)
        if call is None or call.name not in load_scorers():
            near = difflib.get_close_matches(call.name if call else piece, known, 3, 0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "burnish rewards lists them"
            raise ValueError(f"there is no reward shape {piece!r}; {hint}")
        found.append(Named(call.name, build_scorer(call, task, "shape")))
    return found
