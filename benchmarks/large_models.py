"""Steps of models of 1B to 8B weights on one GPU: seconds and memory of GRPO with LoRA, SFT and full fine-tuning.

    PYTHONPATH=src python3 benchmarks/large_models.py                            every case, each in its own process
    ... benchmarks/large_models.py --only grpo-lora-3b,grpo-lora-8b --steps 5    some of them
    PYTHONPATH=src:build/peers ... --trl '{"micro": 16, "recompute": true}'      TRL on the same rows, after burnish

Models have real shapes and random weights (benchmarks/workload.py). The first step includes loading nothing but all
that is compiled or captured; `load` is the time until the weights are there. Memory is the peak of torch's allocator,
and what it had reserved. Results go to benchmarks/results/large_models.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from workload import model_directory, text

from burnish.core.randomness import rng

RESULTS = Path(__file__).with_name("results") / "large_models.json"
SCRATCH = Path(".bench")
GRPO = {"method": "grpo", "prompts": 16, "n": 8, "max_new_tokens": 256, "prompt": 128}
QLORA_8B = {"shape": "qwen3-8b", "lora": 16, "quantization": "nf4", "checkpoint_activations": True}
CASES: dict[str, dict[str, Any]] = {
    "grpo-lora-3b": {"shape": "qwen2.5-3b", "lora": 16, **GRPO},
    "grpo-lora-8b": {"shape": "qwen3-8b", "lora": 16, **GRPO},
    "grpo-full-135m": {
        "shape": "smollm2-135m",
        "method": "grpo",
        "prompts": 32,
        "n": 8,
        "max_new_tokens": 256,
        "prompt": 128,
    },
    "grpo-lora-1.5b-16k": {
        "shape": "qwen2.5-1.5b",
        "lora": 16,
        "method": "grpo",
        "prompts": 2,
        "n": 8,
        "max_new_tokens": 16384,
        "prompt": 128,
    },
    "grpo-qlora-8b": {"shape": "qwen3-8b", "lora": 16, "quantization": "nf4", **GRPO},
    "sft-qlora-8b-2k": {
        **QLORA_8B,
        "method": "sft",
        "prompts": 8,
        "prompt": 1024,
        "reply": 680,
    },
    "grpo-qlora-8b-20k": {
        **QLORA_8B,
        "method": "grpo",
        "prompts": 1,
        "n": 8,
        "max_new_tokens": 20000,
        "prompt": 128,
    },
    "sft-qlora-8b-20k": {  # the learner's part of the case before: eight rows of about 20k tokens
        **QLORA_8B,
        "method": "sft",
        "prompts": 8,
        "prompt": 12000,
        "reply": 8000,
    },
    "sampling-qlora-8b-20k": {  # the sampler's part: room for eight replies of 20k tokens, most of which end early
        **QLORA_8B,
        "method": "grpo",
        "prompts": 1,
        "n": 8,
        "max_new_tokens": 20000,
        "prompt": 128,
        "ends": 100,
    },
    "sft-full-8b": {
        "shape": "qwen3-8b",
        "optimiser": "adamw8bit",
        "method": "sft",
        "prompts": 64,
        "prompt": 128,
        "reply": 128,
    },
    "sft-full-1.5b": {"shape": "qwen2.5-1.5b", "method": "sft", "prompts": 64, "prompt": 128, "reply": 128},
    "grpo-full-1.5b": {"shape": "qwen2.5-1.5b", "beta": 0.0, **GRPO},
    "sft-full-3b": {"shape": "qwen2.5-3b", "method": "sft", "prompts": 32, "prompt": 128, "reply": 128},
    "sft-lora-3b-8k": {  # long rows: what activations take, and where they may be kept
        "shape": "qwen2.5-3b",
        "lora": 16,
        "method": "sft",
        "prompts": 4,
        "prompt": 4000,
        "reply": 4000,
    },
    "sft-135m-64": {"shape": "smollm2-135m", "method": "sft", "prompts": 64, "prompt": 60, "reply": 140},
    "sft-135m-512": {"shape": "smollm2-135m", "method": "sft", "prompts": 512, "prompt": 60, "reply": 140},
    "dpo-135m-64": {"shape": "smollm2-135m", "method": "dpo", "prompts": 64, "prompt": 60, "reply": 140},
}


def rows_of(method: str, count: int, prompt: int, reply: int) -> list[dict[str, Any]]:
    """Rows of random words: prompts of one length; replies from half to one and a half of theirs."""
    dice = rng("benchmark", "large rows", count, prompt)

    def words(length: int) -> str:
        return text([dice.randrange(2, 500) for _ in range(length)])

    def answer() -> str:
        return words(dice.randrange(reply // 2, reply + reply // 2))

    if method == "sft":
        return [{"prompt": words(prompt), "completion": answer()} for _ in range(count)]
    if method == "dpo":
        return [{"prompt": words(prompt), "chosen": answer(), "rejected": answer()} for _ in range(count)]
    return [{"prompt": words(prompt), "answer": "1"} for _ in range(count)]


def ending(model: Path, length: int) -> Path:
    """The same model with so many tokens that end a reply that random weights reach one after about `length`."""
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    place = model.with_name(f"{model.name}-ends-{length}")
    place.mkdir(exist_ok=True)
    for file in model.iterdir():
        if not (place / file.name).exists():
            (place / file.name).symlink_to(file.resolve())
    (place / "generation_config.json").unlink(missing_ok=True)
    ends = list(range(0, vocabulary, length))
    (place / "generation_config.json").write_text(json.dumps({"eos_token_id": ends, "pad_token_id": 1}))
    return place


def measure(name: str, steps: int, device: str, more: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run one case in this process. more: options in place of the case's own."""
    import torch

    case = {**CASES[name], **(more or {})}
    model = model_directory(case.pop("shape"), SCRATCH / "models")
    if ends := case.pop("ends", 0):
        model = ending(model, ends)
    length, method = case.pop("prompt"), case.pop("method")
    rows = rows_of(method, case["prompts"] * steps, length, case.pop("reply", 0))
    if method == "grpo":
        case["reward"] = lambda completions, **_: [float(len(c) % 7) for c in completions]
    seen: list[dict[str, float]] = []
    losses: list[float | None] = []
    begin = time.perf_counter()
    loaded: list[float] = []

    class Timer:
        def on_start(self, *_: Any) -> None:
            loaded.append(time.perf_counter() - begin)

        def on_step(self, report: Any) -> None:
            seen.append({**report.seconds, "total": time.perf_counter() - begin})
            losses.append(report.metrics.get("sft/loss"))

    _train(
        method,
        model=model,
        task=rows,
        callbacks=[Timer()],
        steps=steps,
        eval_tasks=0,
        eval_every=0,
        save_every=0,
        record=0,
        out=str(SCRATCH / "runs" / f"{name}-{time.time_ns()}"),
        device=device,
        **case,
    )
    marks = [loaded[0] if loaded else 0.0, *(one["total"] for one in seen)]
    each = [b - a for a, b in zip(marks, marks[1:], strict=False)]
    found = {
        "load_s": marks[0],
        "first_step_s": each[0],
        "step_s": statistics.median(each[2:] or each),
        "steps_s": each,
        "stages_s": {key: round(value, 4) for key, value in seen[-1].items() if key != "total"},
    }
    if method == "sft":
        found["losses"] = losses
    if device == "cuda":
        found["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        found["reserved_gib"] = torch.cuda.max_memory_reserved() / 2**30
        found["gpu"] = torch.cuda.get_device_name(0)
    return found


def of_trl(name: str, steps: int, device: str, more: dict[str, Any]) -> list[str]:
    """The command that runs a case's rows in TRL. more: micro, the rows of a micro-batch, and recompute."""
    case = {**CASES[name], **more, "steps": steps, "device": device}
    case["model"] = str(model_directory(case.pop("shape"), SCRATCH / "models"))
    case["rows"] = rows_of(case["method"], case["prompts"] * steps, case.pop("prompt"), case.pop("reply", 0))
    file = SCRATCH / f"trl-{name}.json"
    file.write_text(json.dumps(case))
    return [sys.executable, str(Path(__file__).parent / "sides" / "trl_large.py"), str(file)]


def _train(*given: Any, **options: Any) -> None:
    """Train; a disk that has no room for the last checkpoint (46 GiB of an 8B model) does not spoil the measurement."""
    import burnish

    try:
        burnish.train(*given, **options)
    except ValueError as error:
        if "could not save" not in str(error):
            raise
        print(error, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--here", help="run this one case in this process and print its result")
    parser.add_argument("--set", type=json.loads, default={}, help='other options: {"token_budget": 4096}')
    parser.add_argument("--trl", type=json.loads, help='run TRL, too, with {"micro": 16, "recompute": true}')
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.here:
        print("RESULT " + json.dumps(measure(given.here, given.steps, given.device, given.set)))
        return
    known = json.loads(given.out.read_text()) if given.out.exists() else {}
    for name in given.only.split(","):
        words = [sys.executable, __file__, "--here", name, "--steps", str(given.steps), "--device", given.device]
        label = name + "".join(f" {key}={value}" for key, value in given.set.items())
        sides = {label: [*words, "--set", json.dumps(given.set)]}
        if given.trl is not None:
            beside = "".join(f" {key}={value}" for key, value in given.trl.items())
            sides[f"{name} in TRL{beside}"] = of_trl(name, given.steps, given.device, given.trl)
        for side, command in sides.items():
            done = subprocess.run(command, capture_output=True, text=True)
            lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
            if not lines:
                print(f"{side}: failed\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}", flush=True)
                continue
            known[side] = json.loads(lines[-1].removeprefix("RESULT "))
            print(side, json.dumps(known[side]), flush=True)
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
