"""Bitwise comparison of two runs: metrics, traces, evaluations, checkpoints and the saved model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from burnish.checkpoint.checkpoint import MANIFEST, checkpoints, damage, file_hashes
from burnish.store.reader import open_store
from burnish.store.schema import FILE

LOGS = ("metrics", "traces")  # a rerun repeats these; timings and events differ


def log_rows(folder: Path, log: str) -> Sequence[object]:
    """The rows of one of a run's logs, in order: metrics, timings, traces, or events (without level info)."""
    if not (folder / FILE).is_file():
        return []
    with open_store(folder, brief=True) as store:
        if log == "metrics":
            return store.metrics()
        if log == "timings":
            memory = {row["step"]: row["mb"] for row in store.sql("SELECT step, mb FROM memory")}
            return [{**row, "memory_mb": memory.get(row["step"])} for row in store.timings()]
        if log == "events":
            return [{**event, "said": event["text"]} for event in store.events() if event["level"] != "info"]
        return [store.trace(row["id"]) for row in store.sql("SELECT id FROM traces ORDER BY id")]


def differences(one: Path, other: Path) -> list[str]:
    """Descriptions of the differences between two finished runs; empty if they are the same."""
    descriptions = []
    for log in LOGS:
        for number, (a, b) in enumerate(zip_longest(log_rows(one, log), log_rows(other, log))):
            if json.dumps(a) != json.dumps(b):
                descriptions.append(f"{log}: row {number} differs")
                break
    if _text(one / "evaluation.json") != _text(other / "evaluation.json"):
        descriptions.append("evaluation.json differs")
    return descriptions + _checkpoints(one, other) + _models(one, other)


def _checkpoints(one: Path, other: Path) -> list[str]:
    first, second = ({path.name: path for path in checkpoints(folder)} for folder in (one, other))
    if not first or first.keys() != second.keys():
        return [f"checkpoints: {', '.join(first) or 'none'} here, {', '.join(second) or 'none'} there"]
    descriptions = []
    for name, path in first.items():
        wrong = [f"{path}: {why}" for path in (path, second[name]) if (why := damage(path))]
        if wrong:
            descriptions += wrong
        elif _text(path / MANIFEST) != _text(second[name] / MANIFEST):
            files = [
                json.loads((place / name / MANIFEST).read_text())
                for place in (one / "checkpoints", other / "checkpoints")
            ]
            differ = sorted(
                file for file in files[0].keys() | files[1].keys() if files[0].get(file) != files[1].get(file)
            )
            descriptions.append(f"{name}: {', '.join(differ)} differ")
    return descriptions


def _models(one: Path, other: Path) -> list[str]:
    first, second = (file_hashes(folder / "model") for folder in (one, other))
    return [] if first == second else ["model: its files differ"]


def _text(file: Path) -> str | None:
    return file.read_text() if file.is_file() else None
