"""The tasks with real tools, by name."""

from __future__ import annotations

from burnish.envs.games.game import GameFamily
from burnish.envs.work.browser import Browser
from burnish.envs.work.interpreter import Computation
from burnish.envs.work.lookup import Lookup
from burnish.envs.work.repo import Repo
from burnish.envs.work.shell import ShellWork
from burnish.envs.work.sql import Sql

WORK: dict[str, type[GameFamily]] = {
    family.name: family for family in (ShellWork, Repo, Sql, Computation, Lookup, Browser)
}
