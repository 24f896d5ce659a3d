"""The folder of downloads and builds."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """$BURNISH_HOME, or ~/.cache/burnish."""
    return Path(os.environ.get("BURNISH_HOME") or Path.home() / ".cache" / "burnish")
