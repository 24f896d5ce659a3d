"""The rewards of a run with the versions of their code (scorers.json in its folder).

A version is ten hexadecimal digits of a hash of the source file and the options. A run records which versions scored
from which step on; resuming with others gives a warning, because its rewards may mean something else now.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from burnish.core.call_syntax import read_call, split_outside
from burnish.reward_functions.resolve import RewardSpec
from burnish.rewards.table import load_scorers, version_of
from burnish.run.folder import Folder, begins
from burnish.verifiers.table import load_verifiers

FILE = "scorers.json"
Versions = dict[str, str]  # by name; empty where there is no file (a function that was passed as an object)


def present(rewards: Sequence[RewardSpec], shape: str | None, preference: str | None = None) -> Versions:
    """The version of every reward and shape of a run, and of its preference."""
    versions = {part.name: _version(str(part.what)) if isinstance(part.what, str) else "" for part in rewards}
    for piece in split_outside(shape or ""):
        name = piece.partition("(")[0].strip()
        versions[name if name not in versions else f"{name} (shape)"] = _version(piece)
    if preference:
        versions[f"{preference.partition('(')[0].rpartition(':')[2]} (preference)"] = _version(preference)
    return versions


def _version(text: str) -> str:
    call = read_call(text)
    if call is not None and call.name in load_scorers():
        return version_of(load_scorers()[call.name], call)
    if call is not None and call.name in load_verifiers():
        file = inspect.getsourcefile(inspect.unwrap(load_verifiers()[call.name].build))
    else:
        file = text.rpartition(":")[0]
    try:
        source = Path(file or "").read_bytes()
    except OSError:
        return ""
    return hashlib.sha256(source + text.encode()).hexdigest()[:10]


def change(folder: Folder, start: int, now: Versions) -> str:
    """A warning if other versions scored the run up to step `start`; otherwise an empty string."""
    earlier = entries(folder, start, FILE)
    if not earlier or earlier[-1] == now:
        return ""
    names = [name for name in {**earlier[-1], **now} if earlier[-1].get(name) != now.get(name)]
    both = ", ".join(f"{name} {earlier[-1].get(name) or 'none'} -> {now.get(name) or 'none'}" for name in names)
    return f"from step {start + 1} on other versions of the rewards score ({both}): they may mean something else now"


def record(folder: Folder, start: int, now: Versions) -> None:
    """Record in scorers.json that these versions score after `start` steps."""
    record_in(folder, start, now, FILE)


def record_in(folder: Folder, start: int, now: Versions, file: str) -> None:
    """Record in a file of the folder that these versions are in use after `start` steps."""
    stored = _stored(folder, start, file) if start else []
    if now and (not stored or stored[-1]["versions"] != now):
        folder.save_json(file, [*stored, {"after": start, "versions": now}])


def written(now: Versions) -> str:
    """For the header: "math@0a1b2c3d4e, overlong@..."."""
    return ", ".join(f"{name}@{version}" if version else name for name, version in now.items())


def entries(folder: Folder, start: int, file: str) -> list[Versions]:
    """What was in use before step `start`, in order; nothing where the file is missing or damaged."""
    return [entry["versions"] for entry in _stored(folder, start, file)]


def _stored(folder: Folder, start: int, file: str) -> list[dict[str, Any]]:
    try:
        stored = folder.read_json(file) or []
        return [entry for entry in stored if begins(entry) < max(start, 1) and isinstance(entry["versions"], dict)]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return []
