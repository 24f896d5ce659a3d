"""Kill runs with SIGKILL, resume them, and compare them with runs that nobody killed, bit for bit.

    python scripts/kill_harness.py                      200 kills, results in benchmarks/results/kills.json
    python scripts/kill_harness.py --kills 6 --only grpo,ppo --out /tmp/kills.json
    python scripts/kill_harness.py --table              the table of docs/reliability.md, from the stored results

Each trial is a run in a process of its own. It is killed once (sometimes twice) at an instant that the harness chooses:
anywhere by the clock, or when the run's own files show that it has come to a named point. Then the same folder is
resumed, as a user would, and metrics, traces, evaluations and every file of every checkpoint (weights, optimisers,
memories) are compared with those of the straight run. An interrupted harness goes on where it stopped. Variants whose
package (ray, vllm) is not installed are left out; BURNISH_VLLM_PYTHON names the Python that has vLLM.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REWARD = """
import hashlib, pathlib, time

def coin(completions):
    beat = pathlib.Path("beat")
    beat.write_bytes(b"x" * (beat.stat().st_size + 1 if beat.exists() else 1))
    time.sleep(0.004)
    return [float(hashlib.md5(text.encode()).digest()[0] % 2) for text in completions]
"""
SHARED = {
    "steps": 6,
    "prompts": 2,
    "max_new_tokens": 10,
    "eval_tasks": 4,
    "eval_every": 4,
    "save_every": 2,
    "keep": 2,
    "lr": 1e-3,
    "lr_schedule": "cosine",
    "lr_warmup": 1,
    "device": "cpu",
    "task": "sort",
}
VARIANTS: dict[str, dict[str, Any]] = {  # what is run; each keeps another kind of state
    "grpo": {"n": 4},
    "grpo-lora": {"method": "grpo", "n": 4, "lora": 4},
    "ppo": {"n": 2},  # a critic with an optimiser of its own
    "dpo": {"reward": None},  # a frozen reference
    "archer": {  # replay, EMA
        "task": "guess",
        "reward": None,
        "n": 1,
        "batch": 4,
        "critic_warmup": 0,
        "critic_updates": 2,
        "actor_updates": 1,
    },
    "prefix_rft": {"n": 4},
    "nlpo": {"n": 2, "updates": 1, "mask_every": 2},  # a snapshot that follows
    "aepo": {"n": 4},  # a controller
    "reinforce_running": {"n": 4},  # a running baseline
    "curriculum": {"method": f"{ROOT}/examples/my_curriculum.py:second_chances", "n": 4},
    "grpo-lag": {"method": "grpo", "n": 4, "lag": 2},  # replies that were sampled ahead
    "curriculum-lag": {"method": f"{ROOT}/examples/my_curriculum.py:second_chances", "n": 4, "lag": 1},
    "grpo-chunk": {"method": "grpo", "n": 4, "chunk": 4},  # replies that are half written
    "grpo-chunk-lag": {"method": "grpo", "n": 4, "chunk": 4, "lag": 1},
    "grpo-process": {"method": "grpo", "n": 4, "engine": "process"},  # a sampler in a worker process
    "grpo-process-lag": {"method": "grpo", "n": 4, "engine": "process", "lag": 1},
    "grpo-process-chunk": {"method": "grpo", "n": 4, "engine": "process", "chunk": 4, "lag": 1},
    "grpo-vllm": {"method": "grpo", "n": 4, "engine": "vllm", "model": "tiny"},  # vLLM wants heads of 32 or more
    "grpo-ray": {"method": "grpo", "n": 4, "on": "ray", "unit": 1},  # sampler, grader and trainer are processes
    "grpo-ray-lag": {"method": "grpo", "n": 4, "on": "ray", "unit": 1, "lag": 1, "samplers": 2},
}
NEEDS = {"grpo-vllm": "vllm", "grpo-ray": "ray", "grpo-ray-lag": "ray"}
HELD = "is being written by"  # the trainer of a killed driver holds the lock until it has noticed
POINTS = ("anywhere", "start", "rollout", "scoring", "learning", "logging", "writing", "retiring", "publishing")


# ------------------------------------------------------------------------------------------------------------ processes


def start(place: Path, work: Callable[[], object]) -> int:
    """A process that does the work inside `place`, its output in a file there; only its id comes back."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.chdir(place)
        log = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - it is in the output, and in the exit status
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def over(pid: int) -> int | None:
    """The exit status of a process, None while it runs; -9 where it was killed."""
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def finish(pid: int, limit: float = 300.0) -> int:
    """Wait for a process, and no longer than `limit` seconds."""
    deadline = time.monotonic() + limit
    while (code := over(pid)) is None:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.002)
    return code


# ----------------------------------------------------------------------------------------------------------- one trial


def train(variant: str, model: Path) -> None:
    """The run of a variant, into ./run; or its continuation, where ./run is a run already."""
    import torch

    import burnish
    from burnish.methods.table import load_all

    torch.set_num_threads(1)
    load_all()
    if Path("run/config.yaml").is_file():
        burnish.resume("run")
        return
    options = {**SHARED, "model": str(model), "reward": str(model.parent / "reward.py:coin"), **VARIANTS[variant]}
    burnish.train(options.pop("method", variant), out="run", **options)


def arrived(point: str, run: Path, occasion: int) -> bool:
    """Whether the run's own files show that it has come to a point for the `occasion`-th time."""
    if point == "writing":
        return any((run / "checkpoints").glob(f".step-{2 * occasion:06d}.partial/*"))
    if point == "retiring":
        return any((run / "checkpoints").glob(".step-*.old"))
    if point == "publishing":
        return (run / ".model.partial").exists()
    if point in ("scoring", "learning"):
        beat = run.parent / "beat"
        return beat.exists() and beat.stat().st_size >= occasion + 1  # the first beat is the evaluation's
    return _logged(run) == occasion  # rollout, logging


def _logged(run: Path) -> int:
    """Steps that the run's store holds."""
    file = run / "store.sqlite"
    if not file.exists():
        return 0
    try:
        db = sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)
        try:
            return db.execute("SELECT count(DISTINCT step) FROM metrics").fetchone()[0]
        finally:
            db.close()
    except sqlite3.Error:  # it is just being made
        return 0


def kill_at(pid: int, run: Path, point: str, rng: Any, whole: float) -> dict[str, Any] | None:
    """Kill the process at a point. What was hit; None where the run ended before."""
    occasion, began = rng.randint(1, 3 if point == "writing" else 5), time.monotonic()
    spread = {"anywhere": whole, "start": 0.35 * whole, "rollout": 0.03, "learning": 0.05, "writing": 0.02}.get(
        point, 0.003
    )
    delay = rng.uniform(0, spread)
    while over_now(pid) is None:
        if point in ("anywhere", "start") or arrived(point, run, occasion):
            time.sleep(delay)
            break
        time.sleep(0.0003)
    if over_now(pid) is not None:
        return None
    os.kill(pid, signal.SIGKILL)
    after = round(time.monotonic() - began, 3)
    finish(pid)
    folder = run / "checkpoints"
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return {"point": point, "after_s": after, "logged": _logged(run), "left": names}


def over_now(pid: int) -> bool | None:
    """Whether a process has ended, without taking its exit status away from `finish`."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return None if found is None else True


def trial(
    number: int, variant: str, place: Path, straight: Path, whole: float, model: Path, seed: int
) -> dict[str, Any]:
    """Run, kill (a quarter of the trials twice), resume, compare."""
    from burnish.checkpoint.diff import differences
    from burnish.core import randomness

    rng = randomness.rng(seed, "kill", number)
    point = POINTS[number % len(POINTS)]
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    kills = []
    for again in range(1 + (rng.random() < 0.25)):
        (place / "beat").unlink(missing_ok=True)
        pid = start(place, lambda: train(variant, model))
        hit = kill_at(
            pid, place / "run", rng.choice(("anywhere", "scoring", "writing")) if again else point, rng, whole
        )
        if hit is None:
            finish(pid)
            break
        kills.append(hit)
    code = 0
    if not kills or hit is not None:
        code = resumed(place, lambda: train(variant, model))
    differ = differences(straight, place / "run") if code == 0 else [(place / "output.txt").read_text()[-400:]]
    return {"trial": number, "variant": variant, "kills": kills, "same": not differ, "differences": differ}


def resumed(place: Path, work: Callable[[], object]) -> int:
    """The exit status of a resume, tried again for a minute where a process of the killed run still holds the lock."""
    deadline = time.monotonic() + 60
    while code := finish(start(place, work)):
        if HELD not in (place / "output.txt").read_text()[-600:] or time.monotonic() > deadline:
            return code
        time.sleep(1)
    return 0


# ------------------------------------------------------------------------------------------------------------ all of it


def make_model(path: Path) -> None:
    """A random model in the likeness of `tiny`, but smaller, and a reward that differs between its replies."""
    import torch
    from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM

    from burnish.models.known_models import resolve

    tiny = resolve("tiny")
    config = AutoConfig.from_pretrained(tiny)
    config.hidden_size, config.intermediate_size, config.num_hidden_layers = 64, 128, 2
    config.num_attention_heads, config.num_key_value_heads, config.head_dim = 4, 2, 16
    config.layer_types = None
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(path)
    AutoTokenizer.from_pretrained(tiny).save_pretrained(path)
    (path.parent / "reward.py").write_text(REWARD)


def straight_run(work: Path, variant: str, model: Path) -> tuple[Path, float]:
    """The run that nobody kills, and its seconds."""
    place = work / f"straight-{variant}"
    place.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    code = finish(start(place, lambda: train(variant, model)))
    if code:
        raise RuntimeError(f"the straight run of {variant} failed:\n{(place / 'output.txt').read_text()[-3000:]}")
    return place / "run", time.monotonic() - began


def trials(arguments: argparse.Namespace, done: list[dict[str, Any]], work: Path) -> Iterator[dict[str, Any]]:
    """One result after the other, until there are enough kills; `done` are those of an earlier call."""
    model = work / "model"
    if finish(start(work, lambda: make_model(model))):
        raise RuntimeError((work / "output.txt").read_text())
    straight: dict[str, tuple[Path, float]] = {}
    killed, number = sum(len(one["kills"]) for one in done), len(done)
    variants = arguments.only.split(",") if arguments.only else [name for name in VARIANTS if available(name)]
    while killed < arguments.kills:
        variant = variants[number // len(POINTS) % len(variants)]
        if variant not in straight:
            straight[variant] = straight_run(work, variant, model)
        folder, whole = straight[variant]
        result = trial(number, variant, work / f"trial-{number}", folder, whole, model, arguments.seed)
        killed, number = killed + len(result["kills"]), number + 1
        if result["same"]:
            shutil.rmtree(work / f"trial-{number - 1}", ignore_errors=True)
        yield result


def available(variant: str) -> bool:
    """Whether the package that a variant needs is installed."""
    if variant == "grpo-vllm" and os.environ.get("BURNISH_VLLM_PYTHON"):
        return True
    return variant not in NEEDS or importlib.util.find_spec(NEEDS[variant]) is not None


def table(results: list[dict[str, Any]]) -> str:
    """Markdown: kills and identical runs by kind of run, with its engine, lag and chunk."""
    lines = ["| run | engine | lag | chunk | kills | ended the same |", "|---|---|---|---|---|---|"]
    for variant, options in VARIANTS.items():
        hits = [one["same"] for one in results for _ in one["kills"] if one["variant"] == variant]
        engine = "Ray" if "on" in options else options.get("engine", "local")
        cells = (variant, engine, options.get("lag", 0), options.get("chunk", "-"), len(hits), sum(hits))
        lines += [f"| {' | '.join(map(str, cells))} |"] if hits else []
    every = [one["same"] for one in results for _ in one["kills"]]
    return "\n".join([*lines, f"| all | | | | {len(every)} | {sum(every)} |"])


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """How many kills there were, where they hit, and after how many of them the run was the same."""
    kills = [(one["same"], one["variant"], hit["point"]) for one in results for hit in one["kills"]]
    return {
        "kills": len(kills),
        "identical": sum(same for same, _, _ in kills),
        "by_point": dict(Counter(point for _, _, point in kills)),
        "by_variant": dict(Counter(variant for _, variant, _ in kills)),
        "killed_before_the_first_checkpoint": sum(
            not any(n.startswith("step") for n in hit["left"]) for one in results for hit in one["kills"]
        ),
        "killed_with_a_checkpoint_half_written": sum(
            any(n.endswith(".partial") for n in hit["left"]) for one in results for hit in one["kills"]
        ),
    }


def written(head: dict[str, Any], name: str, rows: list[dict[str, Any]]) -> str:
    """JSON with the rows one to a line, so that people can read it and git can compare it."""
    return f'{json.dumps(head, indent=1)[:-2]},\n "{name}": [\n' + ",\n".join(map(json.dumps, rows)) + "\n ]\n}\n"


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--kills", type=int, default=200)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--only", default="", help=f"variants, of {', '.join(VARIANTS)}")
    words.add_argument("--table", action="store_true", help="print the stored results as a table, and kill nothing")
    words.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "kills.json")
    arguments = words.parse_args()
    if arguments.table:
        print(table(json.loads(arguments.out.read_text())["trials"]))
        return 0
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    import transformers.models.llama.modeling_llama  # noqa: F401 - once, here, and not in every process

    import burnish.run.train  # noqa: F401
    from burnish.util.files import write_text

    stored = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {}
    results = stored.get("trials", []) if stored.get("seed") == arguments.seed else []
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="burnish-kills-") as work:
        for result in trials(arguments, results, Path(work)):
            results.append(result)
            found = summary(results)
            write_text(arguments.out, written({"seed": arguments.seed, "summary": found}, "trials", results))
            hits = ", ".join(f"{hit['point']} at {hit['after_s']:.2f} s" for hit in result["kills"]) or "ended before"
            said = "same" if result["same"] else f"DIFFERENT: {result['differences']}"
            print(f"{found['identical']}/{found['kills']}  {result['variant']:<18} {hits:<40} {said}", flush=True)
    found = summary(results)
    print(f"{found['identical']} of {found['kills']} kills left a run that ends as if it had never been killed.")
    return 0 if found["identical"] == found["kills"] else 1


if __name__ == "__main__":
    sys.exit(main())
