"""Updates that were refused because a number was none: their batches are kept to look at, and a policy says what next."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch

from burnish.cast.chat import Chat
from burnish.cast.stage import Cast
from burnish.loop import Report
from burnish.refusal import Refusal
from burnish.run.disk import write_text
from burnish.run.records import group_to_record

POLICIES = ("skip", "stop")
IN_A_ROW = 3  # steps with a refusal, one after the other, after which "skip" stops too
KEPT = 20  # files in refused/, at most


def keep_batches(folder: Path, report: Report, chat: Chat) -> list[Path]:
    """Write refused/step-N-K.json for every refusal of the N-th step: why, and the groups, with their texts."""
    found = []
    for number, refusal in enumerate(report.refusals):
        file = folder / "refused" / f"step-{report.clock.step + 1:06d}-{number}.json"
        if len(list(file.parent.glob("*.json"))) >= KEPT and not file.exists():
            break
        file.parent.mkdir(exist_ok=True)
        write_text(file, json.dumps(_record(report.clock.step, refusal, chat), indent=1) + "\n")
        found.append(file)
    return found


def sentence(report: Report, kept: list[Path]) -> str:
    """What happened in a step, for people."""
    whys = list(dict.fromkeys(refusal.why for refusal in report.refusals))
    where = f" Look at {kept[0]}." if kept else ""
    updates = "an update was" if len(report.refusals) == 1 else f"{len(report.refusals)} updates were"
    return f"step {report.clock.step + 1}: {updates} refused and moved no weight: {whys[0]}.{where}"


def stop_if_hopeless(report: Report, policy: str, history: list[dict[str, Any]], cast: Cast, said: str) -> None:
    """Raise FloatingPointError where the policy, IN_A_ROW refused steps, or broken weights say that this is the end."""
    for member in cast.trained():
        for name, p in member.model.named_parameters():
            if not bool(torch.isfinite(p).all()):
                raise FloatingPointError(
                    f"{said} The weight {name} of {member.name!r} itself is not finite, so that nothing can be learned any "
                    "more; start from another model, or again with a lower --lr"
                )
    if policy == "stop":
        raise FloatingPointError(f"{said} To pass over such batches: --resume with --on-nan skip")
    if len(history) >= IN_A_ROW and all(metrics.get("refused") for metrics in history[-IN_A_ROW:]):
        raise FloatingPointError(
            f"{said} So it was {IN_A_ROW} steps in a row: look for rewards that are too large, or start again with a lower --lr"
        )


def _record(step: int, refusal: Refusal, chat: Chat) -> dict[str, Any]:
    groups = []
    for group in refusal.groups:
        record = group_to_record(group)
        for trace in record["traces"]:
            for turn in trace["turns"]:
                turn["text"] = chat.tokenizer.decode(turn["tokens"])
        groups.append(record)
    return _finite({"step": step, "phase": refusal.phase, "why": refusal.why, "groups": groups})


def _finite(value: Any) -> Any:
    """The same with "nan" and "inf" as words: JSON has no such numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
