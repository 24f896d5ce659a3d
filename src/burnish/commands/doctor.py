"""`burnish doctor RUN`: check a run folder for damage, and print what to do next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from burnish.commands.check import Finding, print_finding
from burnish.config.flags import read
from burnish.util.plainfile import read_json
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from burnish.run.folder import Folder


@dataclass(frozen=True)
class DoctorOptions:
    """burnish doctor RUN: check a run folder for damage. It changes nothing.

    burnish doctor RUN --same-as OTHER also checks whether two runs are identical, bit for bit.
    burnish doctor RUN --heal removes duplicate steps that two processes wrote into the run's store."""

    same_as: str | None = None
    """Another run folder, to compare with."""
    heal: bool = False
    """Remove duplicate copies of steps from the run's store. The run must not be running."""


def main(words: list[str]) -> int:
    asked = read(DoctorOptions, "doctor", words, plain=1)
    if asked is None:
        return 0
    if not asked[0]:
        raise ValueError("`burnish doctor` needs a run folder: burnish doctor runs/DIR")
    folder = Path(asked[0][0])
    console, broken = stdout_console(), 0
    if asked[1].heal:
        print_finding(console, _heal(folder))
    for finding in examine(folder):
        broken += finding.state == "broken"
        print_finding(console, finding)
    if asked[1].same_as:
        from burnish.checkpoint.diff import differences

        different = differences(folder, Path(asked[1].same_as))
        broken += len(different)
        for line in different or [f"the same as {asked[1].same_as}, bit for bit"]:
            print_finding(console, Finding("comparison", line, "broken" if different else "fine"))
    advice, usable = _advice(folder)
    console.print(Text(advice, style="green" if usable else "red"), soft_wrap=True)
    return 1 if broken else 0


def examine(folder: Path) -> Iterator[Finding]:
    """Yield one finding for each file and fact of a run folder."""
    from burnish.checkpoint.checkpoint import checkpoints, damage, step_of
    from burnish.run.folder import Folder
    from burnish.run.lock import holder
    from burnish.store.environment import alive
    from burnish.util.files import OLD, PARTIAL, free_bytes

    place, stored = Folder.open(folder)
    yield Finding(
        "run",
        f"{stored.get('method')} on {stored.get('task')}, {stored.get('steps')} steps, model {stored.get('model')}",
    )
    logged, finding = _log(place, stored)
    yield finding
    if stored.get("on") == "ray" and logged:
        from burnish.distributed.ray.audit import audit

        ledger = audit(folder)
        yield Finding("ledger", str(ledger), "broken" if ledger.wrong else "fine")
    saved = checkpoints(folder)
    for path in saved:
        fault = damage(path, place.identity())
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 2**20
        text = f"damaged: {fault}" if fault else f"intact, {step_of(path)} steps done, {size:,.0f} MiB"
        yield Finding(path.name, text, "broken" if fault else "fine")
    if not saved:
        yield Finding("checkpoints", "none yet: the run would start from step 1", "absent")
    for path in sorted([*(folder / "checkpoints").glob(".*"), *folder.glob(".*")]):
        if path.name.endswith((PARTIAL, OLD)):
            yield Finding(path.name, "left by a process that was stopped while writing; it is never read", "absent")
    for path in sorted((folder / "refused").glob("*.json")):
        yield Finding(f"refused/{path.name}", _why(path), "absent")
    model = folder / "model"
    written = (model / "config.json").is_file() or (model / "adapter_config.json").is_file()
    yield Finding(
        "model", str(model) if written else "not yet: it is written at the end", "fine" if written else "absent"
    )
    writer = holder(folder)
    if writer and alive(writer):
        yield Finding("writer", f"process {writer.get('pid')} on {writer.get('host')} is writing into it now", "absent")
    yield Finding("disk", f"{free_bytes(folder) / 2**30:,.1f} GiB free")


def _log(place: Folder, stored: dict[str, Any]) -> tuple[list[dict[str, Any]], Finding]:
    """The metrics of the recorded steps, and a finding about them."""
    from burnish.report.catalogue import readable
    from burnish.store.duplicates import find_duplicates
    from burnish.store.reader import open_store
    from burnish.store.schema import FILE

    if not os.path.lexists(place.path / FILE):
        return [], Finding("log", "no step yet")
    try:
        with readable(place.path), open_store(place.path, brief=True) as store:
            logged, duplicates = store.metrics(), find_duplicates(store)
            faults = str(duplicates)  # inside `readable`, because steps of a damaged store may have any type
    except ValueError as error:
        return [], Finding("log", f"damaged: {error}", "broken")
    if duplicates:
        command = f"burnish doctor {shlex.quote(str(place.path))} --heal"
        fix = f"; {command} keeps each step once" if duplicates.steps else ""
        return logged, Finding("log", f"damaged: {faults}{fix}", "broken")
    return logged, Finding("log", f"{len(logged)} of {stored.get('steps')} steps" if logged else "no step yet")


def _heal(folder: Path) -> Finding:
    """Remove duplicate steps from the store of a run, under the run folder's lock."""
    from burnish.run.folder import Folder
    from burnish.store.duplicates import heal

    place, _ = Folder.open(folder)
    place.lock()
    try:
        duplicates = heal(folder)
    finally:
        place.release()
    return Finding("healed", f"{duplicates}: each is kept once" if duplicates else "there was nothing to heal")


def _why(path: Path) -> str:
    """Reason of a rejected update, from its file in refused/."""
    try:
        return str(read_json(path)["why"])
    except (ValueError, KeyError, TypeError):
        return "cannot be read"


def _advice(folder: Path) -> tuple[str, bool]:
    """What to do next, and whether the run is finished or can be resumed."""
    from burnish.checkpoint.checkpoint import newest, step_of
    from burnish.run.folder import Folder

    place, stored = Folder.open(folder)
    try:
        path, _ = newest(folder, place.identity())
    except ValueError as error:
        return str(error), False
    steps = int(stored.get("steps", 0))
    if path is not None and step_of(path) >= steps and (folder / "model").is_dir():
        if _log(place, stored)[1].state == "broken":
            return "The run is finished, but its log is damaged.", False
        return "The run is finished and intact.", True
    start = f"from {path.name}" if path else "from step 1"
    return f"It can be resumed exactly {start}: burnish train --resume {shlex.quote(str(folder))}", True
