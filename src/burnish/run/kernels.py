"""The CPU kernels that computed a run (kernels.json in its folder), and the check when it resumes with others.

The compiled kernels and torch sum in different orders, so their results differ in the last bits. A run records which
kernels computed from which step on; resuming with other kernels gives a warning, or an error if the run uses --exact.
"""

from __future__ import annotations

from typing import Any

import torch

from burnish.forward.accelerate import cpu_library
from burnish.run.folder import Folder, begins

FILE = "kernels.json"
Facts = dict[str, Any]


def present(device: torch.device) -> Facts:
    """The kernels of this process: hash, compiler, flags and CPU features of the library; or `none` with the reason."""
    if device.type != "cpu":
        return {"none": f"the run is on {device.type}"}
    library = cpu_library()
    if isinstance(library, str):
        return {"none": library}
    facts = {"compiler": library.compiler, "version": library.version, "flags": library.flags}
    return {"sha256": library.sha256, **facts, "features": library.features}


def change(folder: Folder, start: int, now: Facts, exact: bool) -> str:
    """A warning if these kernels differ from those that computed the run up to step `start`; otherwise an empty string.

    With --exact a difference raises ValueError.
    """
    earlier = _before(folder, start)
    if not earlier or earlier[-1].get("sha256") == now.get("sha256"):
        return ""
    both = f"before: {_short(earlier[-1])}; now: {_short(now)}"
    if exact:
        raise ValueError(
            f"{folder.path} was made with --exact by other CPU kernels ({both}), so its bits cannot be repeated; "
            "resume it with the same compiler and processor, or start a new run with --out"
        )
    return f"from step {start + 1} on the run uses other CPU kernels ({both}): its results may differ in the last bits"


def record(folder: Folder, start: int, now: Facts) -> None:
    """Record in kernels.json that these kernels compute after `start` steps."""
    earlier = _before(folder, start) if start else []
    same = earlier and earlier[-1].get("sha256") == now.get("sha256")
    folder.save_json(FILE, earlier if same else [*earlier, {"after": start, **now}])


def _before(folder: Folder, start: int) -> list[Facts]:
    """The kernels of the steps before `start`, and of the evaluation before training.

    A damaged file gives one `unknown` entry.
    """
    try:
        stored = folder.read_json(FILE)
        return [entry for entry in stored or [] if begins(entry) < max(start, 1)]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return [{"after": 0, "sha256": "unknown", "version": f"unknown, {FILE} cannot be read"}]


def _short(facts: Facts) -> str:
    if "none" in facts:
        return f"none, {facts['none']}"
    return f"{facts.get('version')}, library {str(facts.get('sha256'))[:12]}"
