"""What makes two configurations the same run: options that may change when it is resumed, and the rest."""

from __future__ import annotations

import hashlib
import json
from typing import Any

# Options that may change when a run is resumed: they do not change what it learns, or only from that step on.
RESUMABLE = (
    "steps",
    "epochs",
    "device",
    "dtype",
    "token_budget",
    "packed",
    "checkpoint_activations",
    "save_every",
    "keep",
    "keep_every",
    "keep_best",
    "patience",
    "stop_at",
    "product",
    "run_name",
    "tag",
    "eval_every",
    "on_nan",
    "env_timeout",
    "env_process",
    "reward_timeout",
    "reward_workers",
    "on_reward_failure",
    "max_reward_failures",
    "record",
    "diagnose_every",
    "log",
    "vllm_python",
    "on_mismatch",
    "ranks",
    "shard_optimiser",
    "samplers",
    "graders",
    "spares",
    "ray_address",
    "replacements",
    "recover_within",
    "call_timeout",
)

ENDS = ("steps", "epochs", "patience", "stop_at", "product")  # those of them that say when a run ends, and with what


def identity(stored: dict[str, Any]) -> str:
    """Hash of the fields of config.yaml that affect results: without the run folder and the options in RESUMABLE."""
    fields = {key: value for key, value in stored.items() if key not in RESUMABLE and key != "out"}
    return hashlib.sha256(json.dumps(fields, sort_keys=True, default=str).encode()).hexdigest()
