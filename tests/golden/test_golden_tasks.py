"""The built-in tasks are always the same ones: prompts, answers, demonstrations and mistakes of both splits, by a hash.

A change here makes every earlier result another task's. Where it is meant, take the hash that the failure shows, and
say so in the changelog.
"""

from __future__ import annotations

import hashlib
import json

import pytest

from burnish.tasks.table import BUILTIN, source

GOLDEN = {
    "add": "ee15f74633aa8b55",
    "add:2": "ee15f74633aa8b55",
    "add:3": "e4c9b7aa1d37d729",
    "countdown": "7d2d3985af1eff63",
    "countdown:2": "7d2d3985af1eff63",
    "countdown:3": "d285e1b1dc794c6f",
    "edit": "271572805f32f8a7",
    "edit:2": "271572805f32f8a7",
    "edit:3": "11feda7ea52f1dc6",
    "guess": "5431c8a55cb28f7f",
    "guess:2": "5431c8a55cb28f7f",
    "guess:3": "0f0802fb9b3893c5",
    "logic": "f427546848b92dcd",
    "logic:2": "f427546848b92dcd",
    "logic:3": "8432af81a3036e4e",
    "multiply": "76b79e7c3d9807ff",
    "multiply:2": "76b79e7c3d9807ff",
    "multiply:3": "db6ecd0a04a0a594",
    "path": "6c27261b6aa26153",
    "path:2": "6c27261b6aa26153",
    "path:3": "d395ecf455f58d3b",
    "reverse": "4d4353473ededde2",
    "reverse:2": "4d4353473ededde2",
    "reverse:3": "9078b19f51c09952",
    "sort": "fd13b9897dfc14fd",
    "sort:2": "fd13b9897dfc14fd",
    "sort:3": "75b07d6d228e723f",
}


def fingerprint(name: str) -> str:
    task = source(name)
    told = []
    for split in ("train", "heldout"):
        for index in range(60):
            found = task.task(split, index)
            given = {key: value for key, value in found.given.items() if isinstance(value, (str, int, float))}
            told.append([found.kind, str(found.prompt), sorted(given.items()), found.key])
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_task_is_what_it_was(name: str) -> None:
    assert fingerprint(name) == GOLDEN[name]


def test_every_built_in_task_is_here() -> None:
    assert {name.partition(":")[0] for name in GOLDEN} == set(BUILTIN)
