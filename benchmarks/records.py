"""What was measured, as JSON that is kept; where it was measured; and the table that one reads in a terminal."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import OURS, ROOT, Goal, Part, console, shown, unit
from rich.table import Table

LOWER_IS_BETTER = ("seconds", "peak_bytes")


class Records:
    """The results of one machine: a JSON file of parts, each with its sides, each with every single run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"parts": {}}
        self.content["environment"] = environment()

    def part(self, part: Part, again: bool) -> dict[str, Any]:
        """The entry of a part: the one that is there if it was measured with this code, here, on this work."""
        stamp = {"code": code(), "work": digest(part.work), "machine": digest(self.content["environment"])}
        kept = self.content["parts"].get(part.name)
        if again or kept is None or kept.get("stamp") != stamp:
            kept = {"sides": {}}
        kept |= {
            "title": part.title,
            "rate": part.rate,
            "goals": [vars(goal) for goal in part.goals],
            "floor_seconds": part.floor,
            "facts": dict(part.facts),
            "same": dict(part.same),
            "stamp": stamp,
        }
        self.content["parts"][part.name] = kept
        return kept

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        aside = self.path.with_suffix(".tmp")
        aside.write_text(json.dumps(self.content, indent=1) + "\n")
        aside.replace(self.path)


def digest(what: Any) -> str:
    return hashlib.blake2b(json.dumps(what, sort_keys=True).encode(), digest_size=8).hexdigest()


def code() -> str:
    """A digest of burnish's own source and of the benchmarks: results of other code are not continued."""
    found = hashlib.blake2b(digest_size=8)
    for path in sorted([*(ROOT / "src" / "burnish").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]):
        if path.name not in ("plots.py", "tables.py", "records.py", "svg.py"):
            found.update(path.read_bytes())
    return found.hexdigest()


def environment() -> dict[str, Any]:
    """The machine in the words that matter for speed, and the versions of what runs on it. No names, no paths."""
    import torch
    import transformers

    found: dict[str, Any] = {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        found |= {"gpu": card.name, "gpu_memory_gib": round(card.total_memory / 2**30, 1), "cuda": torch.version.cuda}
    return found


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


# ---------------------------------------------------------------------------------------------------- reading them


def values(record: Mapping[str, Any], side: str, of: str) -> list[float]:
    """One number a run: rate, seconds, peak_bytes, or the share of the floor."""
    runs = record["sides"].get(side, {}).get("runs", [])
    if of == "rate":
        return [run[record["rate"]] / run["seconds"] for run in runs] if record["rate"] else []
    if of == "floor":
        return [record["floor_seconds"] / run["seconds"] for run in runs] if record["floor_seconds"] else []
    return [float(run[of]) for run in runs]


def quartiles(numbers: list[float]) -> tuple[float, float, float]:
    """First quartile, median, third quartile."""
    if len(numbers) < 2:
        return (numbers[0],) * 3
    low, middle, high = statistics.quantiles(numbers, n=4, method="inclusive")
    return low, middle, high


def times_better(record: Mapping[str, Any], ours: str, other: str) -> float | None:
    """By what factor `ours` is faster than another side of a part, by medians."""
    of = "rate" if record["rate"] else "seconds"
    mine, theirs = values(record, ours, of), values(record, other, of)
    if not mine or not theirs:
        return None
    ratio = statistics.median(mine) / statistics.median(theirs)
    return 1 / ratio if of == "seconds" else ratio


def _code_of(record: Mapping[str, Any]) -> str | None:
    """The digest of the code that a part was measured with."""
    return record.get("stamp", {}).get("code")  # type: ignore[no-any-return]


def reached(goal: Goal, name: str, parts: Mapping[str, Any]) -> tuple[float, bool] | None:
    """What was reached of a goal of part `name`, and whether that is enough; None while something is not measured, or
    the two
    sides of a comparison were measured with different code."""
    mine = values(parts[name], goal.ours, goal.of)
    if not mine:
        return None
    got = statistics.median(mine)
    if goal.against is None:
        return got, got <= goal.value if goal.of in LOWER_IS_BETTER else got >= goal.value
    side, _, elsewhere = goal.against.partition("@")
    other = parts.get(elsewhere or name)
    if other is None or _code_of(other) != _code_of(parts[name]):
        return None
    theirs = values(other, side, goal.of)
    if not theirs:
        return None
    factor = got / statistics.median(theirs)
    factor = 1 / factor if goal.of in LOWER_IS_BETTER else factor
    return factor, factor >= goal.value


def show(name: str, parts: Mapping[str, Any]) -> None:
    """The table of one part, and its goals."""
    record = parts[name]
    of = "rate" if record["rate"] else "seconds"
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("", no_wrap=True)
    headings = (unit(record["rate"]), "quartiles", "n", "seconds", "peak GiB", "tokens", "burnish is")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for side, entry in record["sides"].items():
        if not entry["runs"]:
            table.add_row(side, "failed", style="red")
            continue
        low, middle, high = quartiles(values(record, side, of))
        better = times_better(record, OURS, side) if side != OURS else None
        table.add_row(
            side,
            shown(middle),
            f"{shown(low)}..{shown(high)}",
            str(len(entry["runs"])),
            shown(statistics.median(values(record, side, "seconds"))),
            f"{statistics.median(values(record, side, 'peak_bytes')) / 2**30:.2f}",
            _tokens(entry["runs"][-1]),
            f"{better:.2f}x" if better else "",
        )
    console.print(f"\n[bold]{name}[/bold]  {record['title']}")
    console.print(table)
    for given in record["goals"]:
        goal = Goal(**given)
        found = reached(goal, name, parts)
        met = (
            "not measured" if found is None else f"{shown(found[0])}, {'[green]reached' if found[1] else '[red]missed'}"
        )
        console.print(f"  goal {goal.text()}: {met}")


def _tokens(run: Mapping[str, Any]) -> str:
    """The tokens of a turn: sampled / trained on, or those that the training pass read."""
    names = ("processed_tokens",) if "processed_tokens" in run else ("sampled_tokens", "trained_tokens")
    return " / ".join(f"{run[name]:,}" for name in names if name in run)
