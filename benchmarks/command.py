"""What the commands of all machines share: their flags, and the walk through the chosen parts."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from harness import OURS, RESULTS, SCRATCH, Part, compete, console
from records import Records, show


def flags(doc: str | None, parts: Mapping[str, Callable[..., list[Part]]]) -> argparse.ArgumentParser:
    """The flags of a benchmark command."""
    reader = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    whole = "\n".join(f"  {name:<12} {(make.__doc__ or '').strip().splitlines()[0]}" for name, make in parts.items())
    reader.epilog = f"parts:\n{whole}"
    reader.add_argument("--only", default=",".join(parts), help="parts, with commas between them (default: all)")
    reader.add_argument("--peers", help="the peers beside burnish, by name (default: all; `none`: burnish alone)")
    reader.add_argument("--repeats", type=int, default=5, help="turns that count, for every side (default: 5)")
    reader.add_argument("--warmup", type=int, default=2, help="turns before those (default: 2)")
    reader.add_argument("--limit", type=float, default=600, help="seconds that one turn may take (default: 600)")
    reader.add_argument("--quick", action="store_true", help="small work: shows that it works, measures nothing")
    reader.add_argument("--again", action="store_true", help="measure again what was measured with the same code")
    reader.add_argument("--results", type=Path, help="the JSON file (default: one in benchmarks/results)")
    return reader


def chosen(told: argparse.Namespace, parts: Mapping[str, Callable[..., list[Part]]]) -> list[str]:
    """The names of the parts that were asked for."""
    names = told.only.split(",")
    if unknown := [name for name in names if name not in parts]:
        raise SystemExit(f"there is no part {unknown[0]!r}; the parts are {', '.join(parts)}")
    return names


def run(told: argparse.Namespace, machine: str, parts: list[Part]) -> None:
    """All the parts, then their tables."""
    records = Records(
        told.results or (SCRATCH / f"quick-{machine}.json" if told.quick else RESULTS / f"{machine}.json")
    )
    if told.quick:
        console.print("quick: everything is tiny, whatever the titles say; the numbers mean nothing", style="yellow")
    try:
        _measure(told, records, parts)
    except KeyboardInterrupt:
        console.print("\nstopped; what was measured is kept, and the same command goes on from there")
    for part in parts:
        if records.content["parts"].get(part.name, {}).get("sides"):
            show(part.name, records.content["parts"])
    console.print(f"\nevery run is kept in {records.path.name}")


def _measure(told: argparse.Namespace, records: Records, parts: list[Part]) -> None:
    allowed = {OURS, *told.peers.split(",")} if told.peers else None
    for part in parts:
        sides = [side for side in part.sides if allowed is None or side.name in allowed]
        record = records.part(part, told.again)
        compete(part, sides, record, records.save, repeats=told.repeats, warmup=told.warmup, limit=told.limit)
        records.save()
