"""What makes two configurations the same run: options that may change when it is resumed, and the rest."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from burnish.config.options import Options

# Options that may change when a run is resumed: they do not change what it learns, or only from that step on.
RESUMABLE = tuple(one.name for one in dataclasses.fields(Options) if one.metadata.get("resumable"))

ENDS = ("steps", "epochs", "patience", "stop_at", "product")  # those of them that say when a run ends, and with what


def identity(stored: dict[str, object]) -> str:
    """Hash of the fields of config.yaml that affect results: without the run folder and the options in RESUMABLE."""
    fields = {key: value for key, value in stored.items() if key not in RESUMABLE and key != "out"}
    return hashlib.sha256(json.dumps(fields, sort_keys=True, default=str).encode()).hexdigest()
