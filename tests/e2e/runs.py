"""Small whole runs, and what is left of them on disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import recorded
from safetensors.torch import load_file

import burnish
from burnish.run.train import Result

COIN = """
import hashlib

def coin(completions):
    return [float(hashlib.md5(text.encode()).digest()[0] % 2) for text in completions]
"""


def go(method: Any, model: Path | str, out: Path, **more: Any) -> Result:
    """A run of two short steps, a checkpoint after each."""
    options: dict[str, Any] = {"task": "sort", "steps": 2, "prompts": 2, "max_new_tokens": 6, "lr": 1e-3}
    options |= {"eval_tasks": 0, "save_every": 1, "keep": 9, "device": "cpu"}
    if method == "grpo":
        options["n"] = 2
    return burnish.train(method, model=str(model), out=str(out), **{**options, **more})


def rows(path: Path, *items: Mapping[str, Any]) -> str:
    """A dataset file with these rows."""
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return str(path)


def function(path: Path, code: str, name: str) -> str:
    """A reward function of the user's own, as an option."""
    path.write_text(code)
    return f"{path}:{name}"


def tensors(folder: Path) -> dict[str, bytes]:
    """Every tensor below a folder, as bytes."""
    return {
        f"{file.relative_to(folder)}/{name}": tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        for file in sorted(folder.rglob("*.safetensors"))
        for name, tensor in load_file(file).items()
    }


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, but for SQLite's working files: whoever reads a store has them made."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and not file.name.endswith(("-shm", "-wal"))]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def saved(folder: Path) -> list[str]:
    """The names in checkpoints/, partial ones included."""
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def same_run(one: Path, other: Path) -> None:
    """Two runs are the same: every step's numbers and traces, the last checkpoint and the final model, bit for bit."""
    for table, rows in recorded(one).items():
        assert rows == recorded(other)[table], table
    assert saved(one)[-1] == saved(other)[-1]
    for part in (f"checkpoints/{saved(one)[-1]}", "model"):
        assert tensors(one / part) and tensors(one / part) == tensors(other / part), part


@contextmanager
def refused(match: str, out: Path, error: type[Exception] = ValueError, leaves: bool = False) -> Iterator[None]:
    """What is inside fails with one sentence. leaves: whether it leaves the folder of a run, which had begun."""
    with pytest.raises(error, match=match) as caught:
        yield
    assert "\n" not in str(caught.value)
    assert out.exists() == leaves


def halted_after(step: int, straight: Path, out: Path) -> Path:
    """A copy of a finished run as if it had been killed right after the checkpoint of `step`."""
    shutil.copytree(straight, out)
    for path in (out / "checkpoints").iterdir():
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path)
    shutil.rmtree(out / "model", ignore_errors=True)
    return out
