"""The folder of downloads and builds, and paths as people write them."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(name: str | Path) -> Path:
    """A path with ~ for the home directory. ~NAME stays as it is where no user has that name: Path.expanduser raises
    an error there.
    """
    return Path(os.path.expanduser(name))


def home() -> Path:
    """$BURNISH_HOME, or ~/.cache/burnish."""
    return Path(os.environ.get("BURNISH_HOME") or Path.home() / ".cache" / "burnish")
