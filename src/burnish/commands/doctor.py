"""`burnish doctor RUN`: what of a run folder is whole, what is not, and what to do next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from burnish.commands.check import Finding, print_finding
from burnish.commands.flags import read


@dataclass(frozen=True)
class DoctorOptions:
    """burnish doctor RUN: reads a run folder and says in plain words what is whole. It changes nothing.

    burnish doctor RUN --same-as OTHER also says whether two runs are the same, bit for bit."""

    same_as: str | None = None
    """Another run folder, to compare with."""


def main(words: list[str]) -> int:
    asked = read(DoctorOptions, "doctor", words, plain=1)
    if asked is None:
        return 0
    if not asked[0]:
        raise ValueError("`burnish doctor` needs a run folder: burnish doctor runs/DIR")
    folder = Path(asked[0][0])
    console, broken = Console(highlight=False), 0
    for finding in examine(folder):
        broken += finding.state == "broken"
        print_finding(console, finding)
    if asked[1].same_as:
        from burnish.run.sameness import differences

        found = differences(folder, Path(asked[1].same_as))
        broken += len(found)
        for line in found or [f"the same as {asked[1].same_as}, bit for bit"]:
            print_finding(console, Finding("sameness", line, "broken" if found else "fine"))
    next_step, whole = _advice(folder)
    console.print(Text(next_step, style="green" if whole else "red"), soft_wrap=True)
    return 1 if broken else 0


def examine(folder: Path) -> Iterator[Finding]:
    """What there is to say of a run folder, one thing at a time."""
    from burnish.run.checkpoint import checkpoints, damage, step_of
    from burnish.run.disk import OLD, PARTIAL, free_bytes
    from burnish.run.folder import Folder

    place, stored = Folder.open(folder)
    yield Finding(
        "run",
        f"{stored.get('method')} on {stored.get('task')}, {stored.get('steps')} steps, model {stored.get('model')}",
    )
    logged = place.metrics()
    yield Finding("log", f"{len(logged)} of {stored.get('steps')} steps" if logged else "no step yet")
    if stored.get("on") == "ray" and logged:
        from burnish.placed.audit import audit

        ledger = audit(folder)
        yield Finding("ledger", str(ledger), "broken" if ledger.wrong else "fine")
    found = checkpoints(folder)
    for path in found:
        wrong = damage(path, place.identity())
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 2**20
        said = f"damaged: {wrong}" if wrong else f"whole, {step_of(path)} steps done, {size:,.0f} MiB"
        yield Finding(path.name, said, "broken" if wrong else "fine")
    if not found:
        yield Finding("checkpoints", "none yet: the run would begin at its beginning", "absent")
    for path in sorted([*(folder / "checkpoints").glob(".*"), *folder.glob(".*")]):
        if path.name.endswith((PARTIAL, OLD)):
            yield Finding(path.name, "left by a process that was stopped while writing; it is never read", "absent")
    for path in sorted((folder / "refused").glob("*.json")):
        yield Finding(f"refused/{path.name}", json.loads(path.read_text())["why"], "absent")
    whole = (folder / "model" / "config.json").is_file() or (folder / "model" / "adapter_config.json").is_file()
    yield Finding(
        "model", str(folder / "model") if whole else "not yet: it is written at the end", "fine" if whole else "absent"
    )
    yield Finding("disk", f"{free_bytes(folder) / 2**30:,.1f} GiB free")


def _advice(folder: Path) -> tuple[str, bool]:
    """What to do next, and whether anything can be gone on with."""
    from burnish.run.checkpoint import newest, step_of
    from burnish.run.folder import Folder

    place, stored = Folder.open(folder)
    try:
        path, _ = newest(folder, place.identity())
    except ValueError as error:
        return str(error), False
    steps = int(stored.get("steps", 0))
    if path is not None and step_of(path) >= steps and (folder / "model").is_dir():
        return "The run is finished and whole.", True
    where = f"from {path.name}" if path else "from its beginning"
    return f"It goes on {where}, exactly: burnish train --resume {shlex.quote(str(folder))}", True
