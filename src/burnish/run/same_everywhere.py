"""What has to be the same on all ranks of a run, which may be on machines of their own: compared before it starts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch

from burnish import __version__
from burnish.models.known_models import adapted_model
from burnish.models.ranks import Ranks

FIXES = {
    "version": "install one version of burnish and torch everywhere",
    "kernel": "use one compiler and one kind of processor, or copy ~/.cache/burnish of rank 0's machine",
    "model": "copy the model's directory from rank 0's machine",
    "data": "copy the file from rank 0's machine",
    "reward": "copy the reward's file from rank 0's machine",
    "config": "start all ranks with the same file and flags",
}
CHOSEN_HERE = {"out", "token_budget", "threads"}  # each rank may have its own: they depend on the machine
Facts = dict[str, str]


def facts(
    base: Path,
    config: Mapping[str, object],
    rows: Mapping[str, object],
    rewards: Mapping[str, object],
    computing: Mapping[str, object],
) -> Facts:
    """What this rank has, by name: short texts that are compared."""
    own = {"version": f"burnish {__version__}, torch {torch.__version__}"}
    own["config"] = _hash({key: value for key, value in config.items() if key not in CHOSEN_HERE})
    own |= {f"data {name}": str(version) for name, version in rows.items()}
    own |= {f"reward {name}": str(version) for name, version in rewards.items()}
    own[f"model {base.name}"] = _hash(
        {file.name: file.stat().st_size for file in sorted(adapted_model(base).glob("*.safetensors"))}
    )
    own["kernel library"] = str(computing.get("sha256") or computing.get("none"))
    return own


def require_same_everywhere(ranks: Ranks, own: Facts) -> None:
    """Raise ValueError, on all ranks, for the first rank that has something else than rank 0."""
    if not ranks.connected:
        return
    first, *others = [head for head, _ in ranks.gather_values(own)]
    for rank, facts_of_rank in enumerate(others, 1):
        for what in {**first, **facts_of_rank}:
            one, two = first.get(what), facts_of_rank.get(what)
            if one != two:
                raise ValueError(
                    f"rank {rank} has another {what} than rank 0 ({_short(two)}, not {_short(one)}), so they would not "
                    f"compute one run; {FIXES[what.split()[0]]}"
                )


def _short(text: str | None) -> str:
    return "none" if text is None else text[:60]


def _hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]
