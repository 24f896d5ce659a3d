"""Kill and stop processes of a real run on Ray, and measure what it costs.

    python scripts/inject_faults.py                    80 steps, a fault at 10% of them; results in
    benchmarks/results/faults.json python scripts/inject_faults.py --steps 10 --rate 0.3 --out /tmp/faults.json

Two runs of the same configuration on a local Ray with two samplers, two graders and a trainer: one that nobody
disturbs, and one in which SIGKILL or SIGSTOP hits a sampler, a grader, the trainer, or the process that judges replies,
somewhere inside a step. Measured: how long until a loss is noticed, how long until somebody else has the place, how
much longer the run takes.
Checked: the ledger of all samples, and that both runs are the same, bit for bit. An undisturbed run that is there
already (--work) is not run again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import signal
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ROLES = ("sampler", "grader", "trainer", "judge")
KINDS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}
REWARD = """
import time

def right(completions, answer):
    time.sleep(0.02)
    return [float(str(a).strip() in text.split("\\n")[-1].split()) for text, a in zip(completions, answer)]
"""
SETTINGS: dict[str, Any] = {
    "task": "add",
    "on": "ray",
    "samplers": 2,
    "graders": 2,
    "spares": 1,
    "unit": 12,
    "lag": 1,
    "prompts": 48,
    "n": 8,
    "max_new_tokens": 48,
    "eval_tasks": 0,
    "save_every": 2,
    "record": 32,
    "lr": 3e-5,
    "reward_timeout": 2.0,
    "replacements": 1000,
}


# -------------------------------------------------------------------------------------------------------------
# processes


def placed(folder: Path) -> dict[str, int]:
    """The processes of the run by name, without those that were lost."""
    from burnish.store.reader import open_store

    with open_store(folder) as store:
        events = store.events()
    gone = {event["text"].split()[0] for event in events if event["kind"] == "lost"}
    found = (re.match(r"(\S+) is process (\d+)", event["text"]) for event in events if event["kind"] == "placed")
    return {one[1]: int(one[2]) for one in found if one and one[1] not in gone}


def judge_of(pid: int) -> int | None:
    """The process that judges replies for a grader: the worker below the guard that the grader started."""
    guard = _judging_child(pid)
    return None if guard is None else _judging_child(guard)


def _judging_child(pid: int) -> int | None:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
            if parent == pid and b"burnish.reward_functions.grader_process" in (stat.parent / "cmdline").read_bytes():
                return int(stat.parent.name)
        except (OSError, IndexError):
            continue
    return None


def gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


# ----------------------------------------------------------------------------------------------------------------
# faults


class Injector:
    """Draws the faults of a run, and makes them happen from a thread. `made` holds when, what and whom."""

    def __init__(self, folder: Path, faults: dict[int, tuple[str, str, float]]) -> None:
        self.folder, self.faults = folder, dict(faults)
        self.made: list[dict[str, Any]] = []
        self.threads: list[threading.Thread] = []

    def step_began(self, step: int, seconds: float) -> None:
        if step in self.faults:
            role, kind, share = self.faults.pop(step)
            thread = threading.Thread(target=self._strike, args=(step, role, kind, share * seconds), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _strike(self, step: int, role: str, kind: str, delay: float) -> None:
        time.sleep(delay)
        wanted = "grader" if role == "judge" else role
        for _ in range(600):  # somebody of that role is there: a moment ago one may have been lost
            names = {
                name: pid for name, pid in placed(self.folder).items() if name.startswith(wanted) and not gone(pid)
            }
            if names:
                break
            time.sleep(0.1)
        name, pid = min(names.items(), key=lambda one: int(one[0].rsplit("-", 1)[1]))  # those who work came first
        fault: dict[str, Any] = {"step": step + 1, "role": role, "how": kind, "name": name}
        target = judge_of(pid) if role == "judge" else pid
        if target is None:
            return
        fault["time"] = time.time()
        self.made.append(fault)
        os.kill(target, KINDS[kind])
        if role == "judge":
            self._watch_judge(fault, pid, target)

    def _watch_judge(self, fault: dict[str, Any], grader: int, judge: int) -> None:
        """A judge is its grader's own business: noticed when the process is ended, recovered when another is there."""
        began = fault["time"]
        while time.time() - began < 60:
            if "noticed_s" not in fault and gone(judge):
                fault["noticed_s"] = round(time.time() - began, 3)
            after = judge_of(grader)
            if "noticed_s" in fault and after is not None and after != judge:
                fault["recovered_s"] = round(time.time() - began, 3)
                return
            time.sleep(0.02)


def drawn_faults(steps: int, rate: float, seed: int) -> dict[int, tuple[str, str, float]]:
    """step -> (role, how, share of the step that passes first). Roles and ways take turns, steps and
    moments are drawn.
    """
    from burnish.core import randomness

    rng = randomness.rng(seed, "faults", steps, rate)
    some = sorted(rng.sample(range(2, steps - 1), max(1, round(rate * steps))))
    turns = [(role, kind) for kind in KINDS for role in ROLES]
    rng.shuffle(turns)
    return {step: (*turns[i % len(turns)], rng.random()) for i, step in enumerate(some)}


# ------------------------------------------------------------------------------------------------------------------
# runs


class Clocked:
    """A run with the wall-clock time at which each step was done, as this process saw it: the first two
    are warming up.
    """

    def __init__(self) -> None:
        self.times: list[float] = []

    def run(
        self, folder: Path, steps: int, reward: Path, faults: dict[int, tuple[str, str, float]], say: str
    ) -> Injector:
        injector = Injector(folder, faults)
        import burnish
        from burnish.core.loop import Report
        from burnish.run.train import Observer

        clock = self

        class Following(Observer):
            last = 6.0

            def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
                self.last = seconds if report.clock.step > 1 else self.last
                if report.clock.step >= 2:
                    clock.times.append(time.time())
                print(f"{say}: step {report.clock.step + 1} of {steps}, {seconds:.1f} s", flush=True)
                injector.step_began(report.clock.step + 1, self.last)

            def warned(self, said: str) -> None:
                print(f"{say}: {said}", flush=True)

        burnish.train("grpo", observer=Following(), out=str(folder), steps=steps, reward=f"{reward}:right", **SETTINGS)
        for thread in injector.threads:
            thread.join(70)
        return injector


def own_pace(times: list[float]) -> float:
    """The share of a run's time that its steps would have taken at the pace of its median step. Unlike the comparison
    of two runs,
    it does not change with what else the machine did during each of them."""
    gaps = [after - before for before, after in itertools.pairwise(times)]
    return statistics.median(gaps) * len(gaps) / sum(gaps)


def median_step(folder: Path) -> float:
    """Seconds of a step, as the trainer saw them."""
    from burnish.store.reader import open_store

    with open_store(folder) as store:
        return statistics.median(row["total"] for row in store.timings()[2:])


def outcomes(folder: Path, injector: Injector) -> list[dict[str, Any]]:
    """Each fault with its times, from the events of the run store."""
    from burnish.store.reader import open_store

    with open_store(folder) as store:
        events = store.events()
    found = []
    for fault in injector.made:
        if fault["role"] != "judge":
            mine = [e for e in events if e["kind"] == "lost" and e["text"].startswith(f"{fault['name']} ")]
            later = [
                e
                for e in events
                if e["kind"] == "replaced"
                and mine
                and e["time"] >= mine[0]["time"] - 0.01
                and fault["role"] in e["text"]
            ]
            if mine:
                fault["noticed_s"] = round(mine[0]["time"] - fault["time"], 3)
                fault["words"] = mine[0]["text"]
            if later:
                fault["recovered_s"] = round(later[0]["time"] - fault["time"], 3)
        found.append({key: value for key, value in fault.items() if key != "time"})
    return found


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--steps", type=int, default=80)
    words.add_argument("--rate", type=float, default=0.1, help="share of the steps that a fault hits")
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--work", type=Path, default=Path("runs/faults"), help="where the runs are")
    words.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "faults.json")
    asked = words.parse_args()

    from burnish.checkpoint.diff import differences
    from burnish.distributed.ray.audit import audit
    from burnish.distributed.ray.cluster import cluster
    from burnish.util.files import write_text

    asked.work.mkdir(parents=True, exist_ok=True)
    reward = (asked.work / "reward.py").resolve()
    reward.write_text(REWARD)
    straight, faulted = asked.work / f"straight-{asked.steps}", asked.work / f"faulted-{asked.steps}"
    faults = drawn_faults(asked.steps, asked.rate, asked.seed)
    loads = [os.getloadavg()[0]]
    with cluster(None, 32):
        clocks = {}
        if not straight.exists():
            begun = Clocked()
            begun.run(straight, asked.steps, reward, {}, "undisturbed")
            (asked.work / "straight.json").write_text(json.dumps(begun.times))
        clocks["straight"] = json.loads((asked.work / "straight.json").read_text())
        loads.append(os.getloadavg()[0])
        begun = Clocked()
        injector = begun.run(faulted, asked.steps, reward, faults, "disturbed")
        clocks["faulted"] = begun.times
        loads.append(os.getloadavg()[0])
    found = outcomes(faulted, injector)
    noticed = [one["noticed_s"] for one in found if "noticed_s" in one]
    recovered = [one["recovered_s"] for one in found if "recovered_s" in one]
    differ, ledger = differences(straight, faulted), audit(faulted)
    times = {name: round(values[-1] - values[0], 1) for name, values in clocks.items()}
    result = {
        "steps": asked.steps,
        "faults": len(found),
        "seed": asked.seed,
        "cores": os.cpu_count(),
        "settings": SETTINGS,
        "load_average": [round(x, 1) for x in loads],
        "undisturbed_s": times["straight"],
        "disturbed_s": times["faulted"],
        "useful": round(times["straight"] / times["faulted"], 3),
        "useful_by_its_own_pace": {name: round(own_pace(values), 3) for name, values in clocks.items()},
        "median_step_s": round(median_step(straight), 2),
        "noticed_s": {"median": statistics.median(noticed), "most": max(noticed)},
        "recovered_s": {"median": statistics.median(recovered), "most": max(recovered)},
        "all_noticed": len(noticed) == len(found),
        "all_recovered": len(recovered) == len(found),
        "identical": not differ,
        "differences": differ,
        "audit": str(ledger),
        "audit_wrong": list(ledger.wrong),
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    rows = ",\n".join(json.dumps(one) for one in found)
    write_text(asked.out, json.dumps(result, indent=1)[:-2] + f',\n "each": [\n{rows}\n ]\n}}\n')
    print(json.dumps(result, indent=1))
    return 0 if result["identical"] and not ledger.wrong and result["all_noticed"] else 1


if __name__ == "__main__":
    sys.exit(main())
