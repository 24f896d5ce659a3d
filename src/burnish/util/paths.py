"""The folder of downloads and builds, and paths as people write them."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(name: str | Path) -> Path:
    """A path with ~ for the home directory. Where there is no such home (~nobody), it stays as it is: unlike
    Path.expanduser, this is no error.
    """
    return Path(os.path.expanduser(name))


def home() -> Path:
    """$BURNISH_HOME, or ~/.cache/burnish."""
    return Path(os.environ.get("BURNISH_HOME") or Path.home() / ".cache" / "burnish")
