"""Bad inputs for `fuzz_inputs.py`, of every kind that people, files, programs and clients give; all from a seed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from bad_kinds import code, folders, options, rows, services
from bad_kinds.case import SMALL, Case, Wrong

__all__ = ["KINDS", "MAKERS", "SMALL", "Case", "Wrong", "cases"]
MAKERS: dict[str, Callable[[random.Random, Path], Case]] = {
    "words": options.words,
    "yaml": options.yaml_file,
    "recipes": options.recipe,
    "imports": options.imported,
    "data": rows.data_file,
    "tables": rows.table,
    "chats": rows.chat,
    "models": folders.model_folder,
    "checkpoints": folders.checkpoint,
    "swarm": folders.swarm,
    "rewards": code.reward,
    "environments": code.environment,
    "tools": code.tool,
    "judges": services.judge,
    "serve": services.serve,
    "dashboard": services.dashboard,
}
KINDS = tuple(MAKERS)


def cases(n: int, seed: int, folder: Path, kinds: tuple[str, ...] = KINDS) -> Iterator[Case]:
    """So many bad inputs, the kinds in turn; files that they need are written below `folder`."""
    for i in range(n):
        kind = kinds[i % len(kinds)]
        # by kind and its number, so that leaving kinds out changes no other input
        rng = random.Random(f"{seed}/{kind}/{i // len(kinds)}")
        place = folder / f"{i}"
        place.mkdir()
        yield MAKERS[kind](rng, place)
        shutil.rmtree(place, ignore_errors=True)
