"""Seconds that a training step waits for its data: draw and rollout of given texts.

    python benchmarks/data_path.py --sft gsm8k.jsonl --pairs hh.jsonl.gz --model MODEL_DIR

The loop runs the method's own draw and rollout. The rest of a step is a wait of --learn seconds for every 64 rows,
outside of Python's lock as a wait for a GPU is, so that the numbers are those of a machine whose learning takes that
long. Settings:

    plain   every text is encoded when it is drawn, in the step; with --plain-only nothing else is measured, which also
            runs with earlier versions of burnish
    first   the first epoch: threads draw and encode ahead of the step
    memory  a later epoch of the same run
    disk    another run: the texts come from the cache of the one before

"seconds" are those that a step waits for draw and rollout; "work" those that a thread spends on one step.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness import RESULTS, console
from records import environment

from burnish.core.loop import loop
from burnish.core.method import Method, everything
from burnish.core.parts import Publish
from burnish.core.step import Settings, Step
from burnish.core.types import Clock
from burnish.methods.table import METHODS, load_all
from burnish.models.chat import Chat
from burnish.models.load import load_chat
from burnish.run.lengths import Needs, fit
from burnish.tasks.data import Dataset

CONTEXT = 2048


class Wait:
    """In place of learning."""

    terms: tuple[()] = ()
    reads: frozenset[str] = frozenset()
    trainees: tuple[()] = ()

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def call(self, groups: list[Any], step: Any) -> None:
        time.sleep(self.seconds)


class Models(dict):  # type: ignore[type-arg]
    """A tokenizer in place of the models: draw and rollout of given texts need nothing else."""

    def __init__(self, chat: Chat) -> None:
        super().__init__(policy=SimpleNamespace(chat=chat, context=CONTEXT, version=0))

    def __iter__(self) -> Any:
        return iter(self.values())


def data_only(method: Method, seconds: float) -> Method:
    """The method's draw and rollout, and a wait."""
    phase = method.phases[0]
    nothing = Publish(name="nothing", call=lambda trained, step: None)
    parts = dict.fromkeys(("score", "select", "credit"), everything)
    return replace(method, phases=(replace(phase, learn=Wait(seconds), publish=nothing, **parts),))


def measured(method: Method, models: Models, settings: Settings, steps: range) -> list[dict[str, float]]:
    """Of each step: how long it waited, and how many tokens it had."""
    found = []
    for report in loop(method, models, settings, steps=steps.stop, start=steps.start):  # type: ignore[arg-type]
        tokens = sum(len(trace) for group in report.groups["main"] for trace in group.traces)
        waited = report.seconds.get("draw", 0.0) + report.seconds.get("rollout", 0.0)
        found.append({"seconds": waited, "tokens": tokens})
    return found


def plain(method: Method, models: Models, settings: Settings, steps: range) -> list[dict[str, float]]:
    """Of each step: how long draw and rollout take in the step itself."""
    found, phase = [], method.phases[0]
    for number in steps:
        step = Step(Clock(number, steps.stop), models, settings)  # type: ignore[arg-type]
        start = time.perf_counter()
        groups = phase.rollout.call(phase.draw.call(step), step)
        seconds = time.perf_counter() - start
        found.append({"seconds": seconds, "tokens": sum(len(trace) for group in groups for trace in group.traces)})
    return found


def work(method: Method, models: Models, settings: Settings, steps: range) -> list[float]:
    """Seconds that draw and rollout of a step take, one step after the other."""
    from burnish.core.prefetch import Prefetcher

    one = Prefetcher(method, models, settings, steps.stop, 0)  # type: ignore[arg-type]
    found = []
    for number in steps:
        start = time.perf_counter()
        for phase, clock in one._passes(number):
            one._make(phase, clock)
        found.append(time.perf_counter() - start)
    return found


def side(name: str, data: Path, model: Path, rows: int, told: argparse.Namespace) -> dict[str, Any]:
    """All settings of one method on one dataset."""
    source, chat = Dataset(data), load_chat(model, None)
    models = Models(chat)
    settings = Settings(prompts=rows, max_length=told.max_length, on_long="truncate")
    built = METHODS[name].build(source)
    method = data_only(built, told.learn * rows / 64)
    fit(source, Needs.of(built), models, "policy", settings)  # type: ignore[arg-type]
    steps = range(1, 1 + told.steps)
    found: dict[str, Any] = {}

    def note(setting: str) -> None:
        waits = measured(method, models, settings, steps)
        busy = work(method, models, settings, steps) if setting != "first" else []
        found[setting] = {"steps": waits, "work": busy}
        shown = 1e3 * statistics.median(step["seconds"] for step in waits[1:])
        console.print(f"{name} {rows:>4} rows  {setting:<7} waits {shown:8.2f} ms a step (median)")

    found["plain"] = {"steps": plain(method, models, settings, steps)}
    shown = 1e3 * statistics.median(step["seconds"] for step in found["plain"]["steps"][1:])
    console.print(f"{name} {rows:>4} rows  plain   waits {shown:8.2f} ms a step (median)")
    if told.plain_only:
        return found
    from burnish.run.encoded import remember_texts

    remember_texts(source, chat)
    note("first")
    note("memory")
    assert chat.texts is not None
    chat.texts.save(worth=0.0)
    remember_texts(source, chat)
    note("disk")
    assert chat.texts.encoded == 0, "a text was not in the cache"
    return found


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--sft", type=Path, required=True, help="a file of questions and worked answers")
    reader.add_argument("--pairs", type=Path, required=True, help="a file of preference pairs")
    reader.add_argument("--model", type=Path, required=True, help="a directory with a tokenizer")
    reader.add_argument("--learn", type=float, default=0.035, help="seconds that 64 rows are learned from (0.035)")
    reader.add_argument("--max-length", type=int, default=512, help="tokens of a row; longer ones are cut")
    reader.add_argument("--steps", type=int, default=12, help="steps of each setting (default: 12)")
    reader.add_argument("--plain-only", action="store_true", help="only the first setting")
    reader.add_argument("--results", type=Path, default=RESULTS / "data_path.json")
    told = reader.parse_args()
    load_all()
    found: dict[str, Any] = {"about": __doc__, "environment": environment(), "learn_seconds": told.learn}
    found["max_length"], found["parts"] = told.max_length, {}
    with tempfile.TemporaryDirectory(prefix="burnish-") as folder:
        os.environ["BURNISH_HOME"] = folder  # a cache of its own
        for name, data, rows in (("sft", told.sft, 64), ("sft", told.sft, 512), ("dpo", told.pairs, 64)):
            found["parts"][f"{name}-{rows}"] = side(name, data, told.model, rows, told)
    told.results.write_text(json.dumps(found, indent=1) + "\n")
    console.print(f"every step is in {told.results.name}")


if __name__ == "__main__":
    main()
