"""Updates rejected because of NaN or Inf: keep their batches in refused/, and apply the --on-nan policy."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch

from burnish.core.loop import Report
from burnish.core.rejected import RejectedUpdate
from burnish.core.types_json import group_to_record
from burnish.models.build import Models
from burnish.models.chat import Chat
from burnish.models.chat_pictures import spelled_out
from burnish.models.layer_shards import held
from burnish.util.files import write_text

POLICIES = ("skip", "stop")
IN_A_ROW = 3  # consecutive steps with a rejected update after which "skip" stops, too
MAX_FILES = 20  # in refused/


def keep_batches(folder: Path, report: Report, chat: Chat) -> list[Path]:
    """Write refused/step-N-K.json for every rejected update of step N: the reason and the groups, with their texts."""
    files = []
    for number, refusal in enumerate(report.refusals):
        file = folder / "refused" / f"step-{report.clock.step + 1:06d}-{number}.json"
        if len(list(file.parent.glob("*.json"))) >= MAX_FILES and not file.exists():
            break
        file.parent.mkdir(exist_ok=True)
        write_text(file, json.dumps(_record(report.clock.step + 1, refusal, chat), indent=1) + "\n")
        files.append(file)
    return files


def sentence(report: Report, kept: list[Path]) -> str:
    """The warning about the rejected updates of a step."""
    whys = list(dict.fromkeys(refusal.why for refusal in report.refusals))
    where = f" Look at {kept[0]}." if kept else ""
    updates = "an update was" if len(report.refusals) == 1 else f"{len(report.refusals)} updates were"
    return f"step {report.clock.step + 1}: {updates} refused, weights unchanged: {whys[0]}.{where}"


def stop_if_hopeless(
    report: Report, policy: str, history: list[dict[str, object]], models: Models, message: str
) -> None:
    """Raise FloatingPointError if the policy is "stop", after IN_A_ROW rejected steps, or if a weight is not finite."""
    for model in models.trained():
        for name, p in model.module.named_parameters():
            if not bool(torch.isfinite(held(p)).all()):
                raise FloatingPointError(
                    f"{message} The weight {name} of {model.name!r} itself is not finite, so training cannot continue; "
                    "start from another model, or again with a lower --lr"
                )
    if policy == "stop":
        raise FloatingPointError(f"{message} To skip such batches: --resume with --on-nan skip")
    if len(history) >= IN_A_ROW and all(metrics.get("refused") for metrics in history[-IN_A_ROW:]):
        raise FloatingPointError(
            f"{message} This happened {IN_A_ROW} steps in a row: look for rewards that are too large, or start again "
            "with a lower --lr"
        )


def _record(step: int, refusal: RejectedUpdate, chat: Chat) -> dict[str, Any]:
    groups = []
    for group in refusal.groups:
        record = group_to_record(group)
        for trace in record["traces"]:
            for turn in trace["turns"]:
                turn["text"] = spelled_out(chat.tokenizer, torch.tensor(turn["tokens"], dtype=torch.long))
        groups.append(record)
    record_of: dict[str, Any] = _finite({"step": step, "phase": refusal.phase, "why": refusal.why, "groups": groups})
    return record_of


def _finite(value: Any) -> Any:
    """The same with "nan" and "inf" as strings: JSON has no such numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
