"""Tasks of other libraries, by prefix. Each adapter imports its library when it is used."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from burnish.envs.of_gymnasium import GymnasiumEnv
from burnish.envs.of_openenv import OpenEnvClient
from burnish.envs.of_textarena import TextArenaEnv
from burnish.envs.work.lookup import FolderLookup
from burnish.tasks.environment import EnvSource
from burnish.tasks.gym import ReasoningGym
from burnish.tasks.of_verifiers import verifiers_source
from burnish.tasks.source import Source


def _played(prefix: str, kind: Callable[..., object]) -> Callable[..., Source]:
    def made(name: str, **options: object) -> Source:
        source = EnvSource(partial(kind, name, **options), name)
        source.summary = f"{name}, {prefix}"
        return source

    return made


ADAPTERS: dict[str, Callable[..., Source]] = {
    "gym": ReasoningGym,
    "gymnasium": _played("gymnasium", GymnasiumEnv),
    "textarena": _played("textarena", TextArenaEnv),
    "openenv": _played("openenv", OpenEnvClient),
    "verifiers": verifiers_source,
    "folder": FolderLookup,
}


def adapted(name: str) -> tuple[Callable[..., Source], str] | None:
    """The adapter of a name such as gymnasium:FrozenLake-v1, and the name within it; None where it has no prefix."""
    prefix, colon, rest = name.partition(":")
    if not colon or prefix not in ADAPTERS:
        return None
    if not rest:
        raise ValueError(f"{name} names no environment; write for instance gymnasium:FrozenLake-v1")
    return ADAPTERS[prefix], rest
