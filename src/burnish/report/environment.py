"""Where and from what a run was made: versions, machine, git state. Facts for a person who wants to repeat it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("burnish", "torch", "transformers", "safetensors", "numpy", "tokenizers", "peft", "ray")
GIT_SECONDS = 5.0


def environment() -> dict[str, Any]:
    """Versions, machine, device."""
    import torch

    found: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
    }
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    found["threads"] = torch.get_num_threads()
    found["gpu"] = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    found["command"] = [Path(sys.argv[0]).name, *sys.argv[1:]]
    return found


def git_state(folder: Path) -> dict[str, Any] | None:
    """The commit that a folder stands on, its branch, and which files differ from it; nothing outside of git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return None
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {
        "commit": commit,
        "branch": _git(folder, "rev-parse", "--abbrev-ref", "HEAD"),
        "changed": changed.splitlines() if changed else [],
    }


def process() -> dict[str, Any]:
    """What tells whether a run is still alive: its process on its machine."""
    return {"pid": os.getpid(), "host": platform.node(), "since": time.time(), "started": _started(os.getpid())}


def alive(stored: dict[str, Any]) -> bool | None:
    """Whether the process that `process` described still runs; None where it was on another machine."""
    if stored.get("host") != platform.node():
        return None
    return _started(int(stored["pid"])) == stored.get("started") and _exists(int(stored["pid"]))


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _started(pid: int) -> str | None:
    """When a process began, in the system's own count: a number that is used again is not taken for the same process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return None


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
