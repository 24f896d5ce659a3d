"""The environment of a run, recorded for reproduction: package versions, machine, process."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("burnish", "torch", "transformers", "safetensors", "numpy", "tokenizers", "peft", "ray")


def environment() -> dict[str, object]:
    """Versions of Python and packages, platform, cores, threads, GPU, and the command line."""
    import torch

    facts: dict[str, object] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
    }
    for name in PACKAGES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            continue
    facts["threads"] = torch.get_num_threads()
    facts["gpu"] = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    facts["command"] = [Path(sys.argv[0]).name, *sys.argv[1:]]
    return facts


def process() -> dict[str, Any]:
    """Identity of this process (pid, host, start time), by which `alive` finds out whether it still runs."""
    return {"pid": os.getpid(), "host": platform.node(), "since": time.time(), "started": _started(os.getpid())}


def alive(stored: Mapping[str, Any]) -> bool | None:
    """Whether the process that `process` described still runs; None if it is on another machine."""
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
    """Start time of a process in clock ticks since boot, which tells a reused pid from the original process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return None
