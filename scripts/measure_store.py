"""What the run store costs, and how fast it answers: writes benchmarks/store.json.

    python scripts/measure_store.py                    a million traces, and the cost of recording a step of GRPO on
    tiny
    python scripts/measure_store.py --traces 20000     fewer

Cost: CPU time of the writer thread and of handing a step over, against the CPU time of the step: what other programs do
meanwhile does not matter. That is an upper bound of the slow-down, reached where no core is free for the writer.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import torch

from burnish.config.options import configure
from burnish.core import randomness
from burnish.core.loop import Report, loop
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.methods.table import find
from burnish.report.api import Api
from burnish.run.train import prepare
from burnish.store.recorder import RunRecorder
from burnish.store.schema import connect

OUT = Path(__file__).parent.parent / "benchmarks" / "store.json"
GROUP, GROUPS, REPEATS = 8, 64, 5
RECORDED = 40  # steps that are recorded one by one; the rest are copies of their rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=1_000_000, help="0 leaves that part as it was measured before")
    parser.add_argument("--steps", type=int, default=8, help="of the run that is recorded")
    asked = parser.parse_args()
    found: dict[str, Any] = json.loads(OUT.read_text()) if OUT.is_file() else {}
    found |= {"machine": platform.machine(), "threads": torch.get_num_threads()}
    with tempfile.TemporaryDirectory(prefix="burnish-store-") as place:
        found["recording"] = recording(Path(place), asked.steps)
        if asked.traces:
            found["browsing"] = browsing(Path(place), asked.traces)
    print(json.dumps(found, indent=1))
    OUT.write_text(json.dumps(found, indent=1) + "\n")


def recording(place: Path, steps: int) -> dict[str, Any]:
    """The median step of GRPO on tiny (16 prompts x 8 samples, all recorded), and what its recording takes, in CPU
    seconds.
    """
    entry = find("grpo")
    run = prepare(entry, configure(entry, "grpo", {"steps": steps, "eval_tasks": 0, "out": str(place / "cost")}))
    recorder = RunRecorder(run.folder.path, run.models["policy"].chat.tokenizer, traces=256)
    walking, handing, writing = [], [], []
    begin = time.process_time()
    for report in loop(run.method, run.models, run.settings, steps=steps):
        walking.append(time.process_time() - begin)
        report.seconds["step"] = walking[-1]
        before, begin = _cpu_of(recorder), time.thread_time()
        recorder.step(report, {})
        handing.append(time.thread_time() - begin)
        recorder.flush()
        writing.append(_cpu_of(recorder) - before)
        begin = time.process_time()
    recorder.close()
    step, hand, write = (
        statistics.median(times[1:]) for times in (walking, handing, writing)
    )  # the first step warms up
    return {"step_cpu_s": step, "handing_over_cpu_s": hand, "writing_cpu_s": write, "share": (hand + write) / step}


def _cpu_of(recorder: RunRecorder) -> float:
    """CPU seconds of the writer's thread so far."""
    return time.clock_gettime(time.pthread_getcpuclockid(_thread_of(recorder).ident))  # type: ignore[arg-type]


def _thread_of(recorder: RunRecorder) -> threading.Thread:
    return next(thread for thread in threading.enumerate() if thread.name == "burnish-recorder")


def browsing(place: Path, traces: int) -> dict[str, Any]:
    """CPU seconds that the dashboard's questions take on a store of so many traces, the median of a few."""
    folder = place / "runs" / "many"
    folder.mkdir(parents=True)
    begin = time.perf_counter()
    steps = traces // (GROUP * GROUPS)
    fill(folder, min(steps, RECORDED))
    multiply(folder, min(steps, RECORDED), steps)
    found: dict[str, Any] = {"traces": steps * GROUP * GROUPS, "fill_s": round(time.perf_counter() - begin, 1)}
    found["bytes_a_trace"] = (folder / "store.sqlite").stat().st_size // found["traces"]
    api, run = Api(folder.parent), {"run": "many"}
    questions: dict[str, tuple[str, dict[str, str]]] = {
        "newest page": ("traces", {}),
        "best page": ("traces", {"order": "best"}),
        "one step": ("traces", {"step": str(steps // 2)}),
        "reward 0.9 to 1, page 20": ("traces", {"least": "0.9", "most": "1", "offset": "1000"}),
        "any reward, worst first": ("traces", {"least": "0", "order": "worst"}),
        "wrong": ("traces", {"correct": "0"}),
        "dropped": ("traces", {"dropped": "1"}),
        "a rare word": ("traces", {"search": "rare7"}),
        "a common word": ("traces", {"search": "answer"}),
        "groups": ("groups", {}),
        "one trace": ("trace", {"id": str(found["traces"] // 2)}),
        "a prompt everywhere": ("prompt", {"task": "add 17"}),
        "steps": ("steps", {}),
        "curves": ("metrics", {}),
        "list of runs": ("runs", {}),
    }
    for name, (what, query) in questions.items():
        times = []
        for _ in range(REPEATS):
            begin = time.process_time()
            answer = api.answers[what]({**run, **query})
            times.append(time.process_time() - begin)
        assert answer, name
        found[name] = round(statistics.median(times), 4)
    return found


def fill(folder: Path, steps: int) -> None:
    """A made-up run with real rows: prompts, replies of forty tokens, log-probs, advantages, some dropped."""
    from transformers import AutoTokenizer

    from burnish.core.step import Dropped
    from burnish.models.known_models import resolve

    tokenizer = AutoTokenizer.from_pretrained(str(resolve("tiny")))
    recorder = RunRecorder(folder, tokenizer, traces=GROUP * GROUPS)
    recorder.info(
        config={"method": "made-up", "task": "add", "model": "tiny", "steps": steps, "seed": 0},
        created=time.time(),
        state="finished",
    )
    for step in range(steps):
        rng = randomness.rng("fill", step)
        groups, dropped = [], []
        for number in range(GROUPS):
            task = Task("question", f"{number}+{step % 97}=?", {"answer": str(number)}, f"add {number}")
            group = Group(task, [_trace(tokenizer, rng, step, i) for i in range(GROUP)])
            if number % 16 == 0:
                dropped += [Dropped(task, trace, "mixed") for trace in group.traces]
            else:
                groups.append(group)
        metrics = {"step": step, "reward": rng.random(), "pg/entropy": rng.random(), "length": 40.0}
        report = Report(
            Clock(step, steps),
            metrics,
            {"rollout": 0.5, "learn": 0.4, "step": 1.0},
            {"main": groups},
            {"main": dropped},
        )
        recorder.step(report, {})
    recorder.close()


def multiply(folder: Path, have: int, steps: int) -> None:
    """The recorded steps again and again under later numbers, until there are enough; recording a million takes half an
    hour.
    """
    db = connect(folder / "store.sqlite")
    per_step = GROUP * GROUPS
    db.execute("BEGIN")
    for copy in range(1, -(-steps // have)):
        more = min(have, steps - copy * have)
        by, groups, traces = copy * have, copy * have * GROUPS, copy * have * per_step
        db.execute(f"INSERT INTO metrics SELECT step + {by}, name, value FROM metrics WHERE step < {more}")
        db.execute(f"INSERT INTO timings SELECT step + {by}, room, seconds FROM timings WHERE step < {more}")
        rest = "phase, task, kind, prompt, given, pairs, lists"
        db.execute(f"INSERT INTO groups SELECT id + {groups}, step + {by}, {rest} FROM groups WHERE step < {more}")
        rest = "place, reward, correct, length, advantage, dropped, text, turns, scores, turn_scores, tags, note"
        moved = f"id + {traces}, group_id + {groups}, step + {by}"
        db.execute(f"INSERT INTO traces SELECT {moved}, {rest} FROM traces WHERE step < {more}")
        rest = "ids, logp, names, streams"
        db.execute(f"INSERT INTO tokens SELECT trace + {traces}, {rest} FROM tokens WHERE trace <= {more * per_step}")
    db.execute("INSERT INTO search (search) VALUES ('rebuild')")
    db.execute("COMMIT")
    db.close()


def _trace(tokenizer: Any, rng: Any, step: int, index: int) -> Trace:
    words = f"{rng.randrange(100)}+{rng.randrange(100)}={rng.randrange(200)}\nanswer: {rng.randrange(200)}" + (
        " rare7" if rng.random() < 1e-4 else ""
    )
    said = torch.tensor(tokenizer.encode(words, add_special_tokens=False))
    asked = Turn(torch.tensor([3, 27, 20, 1, 4]), "task")
    reply = Turn(said, "policy", torch.tensor([-rng.random() for _ in said]), torch.full((len(said),), step), asked)
    right = float(rng.random() < 0.5)
    length = len(said) + 5
    streams = {"adv": torch.full((length,), right - 0.5), "old": torch.zeros(length), "claim:pg": torch.ones(length)}
    streams["entropy"] = torch.full((length,), rng.random())
    return Trace(
        (asked, reply),
        index,
        {"reward": right * rng.random(), "correct": right},
        {},
        streams,
        frozenset({"sample"}),
        {"stopped": "stop"},
    )


if __name__ == "__main__":
    main()
