"""Ranks that follow rank 0: it creates the folder, writes, shows and decides; the others compute along."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from burnish.config.options import Config
from burnish.evals.best import Score
from burnish.models.build import Models
from burnish.models.ranks import Ranks
from burnish.models.shards import serve
from burnish.run.folder import Folder


def created(config: Config, ranks: Ranks) -> Folder:
    """A new folder, which rank 0 creates and the others read."""
    made = Folder.create(config) if not ranks.rank else None
    path = ranks.from_first(str(made.path) if made else "")
    return made or Folder(Path(path), writes=False)


class Follower:
    """In the place of Control in the ranks that follow rank 0: they stop when it says so, and ignore Ctrl-C."""

    stopped = False

    def __init__(self) -> None:
        self.signals: list[int] = []


def agreed(models: Models, stopped: bool, kept: Score | None) -> tuple[bool, Score | None]:
    """What rank 0 decided after a step: whether to stop, and which step has the best checkpoint."""
    if not models.ranks.connected:
        return stopped, kept
    mine = [stopped, asdict(kept) if kept else None]
    stop, score = serve(models) if models.ranks.rank else models.ranks.from_first(mine)
    return bool(stop), Score(**score) if isinstance(score, dict) else None
