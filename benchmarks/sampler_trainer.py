"""How far the trainer's log-probs are from the sampler's on a GPU, by architecture, with LoRA and with `--exact`.

    PYTHONPATH=src python3 benchmarks/sampler_trainer.py --out gap.json              every part, about five minutes
    ... benchmarks/sampler_trainer.py --only products                                one part

products  rows of a library's bf16 product, by how many rows are asked for at once, beside those of a large product:
          how many differ in a bit
bits      exact: sampled log-probs beside the trainer's, in packs of 1, 20 and 120 rows, and where the others stand
lora-bits the same with LoRA
gap       mean and largest difference over replies of 256 tokens in groups of 8, for all weights trained and for LoRA
          whose B is zero or not
speed     seconds of sampling by default and with `exact`, in turns
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from layer_spec import SHAPES, SMALL, Silent, model_of
from torch import Tensor, nn

from burnish.engine.local import LocalEngine, Request
from burnish.forward.outputs import outputs
from burnish.kernels.triton.cublas import product
from burnish.models.mixed_precision import ComputeCopy

QWEN = {"vocab_size": 151936, "head_dim": 128, "tie_word_embeddings": True}
SHAPES["qwen2.5-1.5b"] = (
    "Qwen2Config",
    {"vocab_size": 151936, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28}
    | {"num_attention_heads": 12, "num_key_value_heads": 2, "tie_word_embeddings": True},
)
SHAPES["qwen3-8b"] = (
    "Qwen3Config",
    QWEN
    | {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36}
    | {"num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": False},
)
WIDTHS = (
    *((1024, 4096), (2048, 1024), (1024, 6144), (3072, 1024), (640, 1536), (4096, 6144)),
    *((12288, 4096), (4096, 48), (1536, 2048), (8960, 1536)),
)


def check_products() -> dict[str, Any]:
    """Of products x [rows, K] W [K, N]: the share of numbers that differ from those of 4,096 rows at once."""
    found: dict[str, Any] = {}
    torch.manual_seed(0)
    for k, n in WIDTHS:
        x = torch.randn(4096, k, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(n, k, device="cuda", dtype=torch.bfloat16) * k**-0.5
        for ordered in (False, True):
            whole = product(x, w, None, ordered)
            spare = torch.cat([w, w[:48]])  # as LoRA's A lies behind frozen weights
            if share := float((product(x[:64], spare, None, ordered)[:, :n] != whole[:64]).float().mean()):
                found[f"{k}x{n}+48 rows=64 ordered={ordered}"] = round(share, 5)
            for rows in (1, 2, 3, 4, 8, 15, 16, 17, 33, 64, 128, 500):
                some = product(x[:rows], w, None, ordered)
                if share := float((some != whole[:rows]).float().mean()):
                    found[f"{k}x{n} rows={rows} ordered={ordered}"] = round(share, 5)
    return found


def adapted(model: nn.Module, b: float) -> nn.Module:
    """The model with LoRA of rank 16 on all projections; b: the size of the numbers in B."""
    from peft import LoraConfig, get_peft_model

    made: Any = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"))  # type: ignore[arg-type]
    for name, parameter in made.named_parameters():
        if "lora_B" in name:
            parameter.data = torch.randn_like(parameter) * b
    return made.eval()


def differences(made: ComputeCopy, asked: list[Request], at_once: int, exact: bool) -> tuple[Tensor, list[Tensor]]:
    """The trainer's log-probs less the sampler's, and the same by row."""
    engine = LocalEngine(made.current(), Silent(), 2048, exact=exact)
    samples = engine.generate(asked)
    if engine.workspace is not None:
        engine.workspace.release()
    rows = [torch.cat([request.prompt, sample.tokens]) for request, sample in zip(asked, samples, strict=True)]
    masks = [torch.arange(len(row)) >= len(r.prompt) for row, r in zip(rows, asked, strict=True)]
    parts = []
    for i in range(0, len(rows), at_once):
        with torch.no_grad():
            some = outputs(made.current(), rows[i : i + at_once], masks[i : i + at_once], {"logp"})["logp"]
        parts.append(some.float().cpu())
    apart = torch.cat(parts) - torch.cat([sample.logp for sample in samples])
    return apart, list(apart.split([len(sample.tokens) for sample in samples]))


def check_bits(shape: str, lora: bool = False) -> dict[str, Any]:
    model = model_of(shape, **SMALL)
    made = ComputeCopy(adapted(model, 0.05) if lora else model, frozen=not lora, exact=True)
    assert made.runner.accelerated
    dice = torch.Generator().manual_seed(2)
    prompts = [torch.randint(0, SMALL["vocab_size"], (n,), generator=dice) for n in (1, 2, 9, 40, 130, 480, 1100)]
    asked = [Request(prompts[k % len(prompts)], k, 1 + (k * 7) % 90) for k in range(120)]
    found: dict[str, Any] = {}
    for at_once in (1, 20, 120):
        apart, rows = differences(made, asked, at_once, exact=True)
        others = [(k, len(asked[k].prompt), len(row), row.nonzero()[:, 0].tolist()[:5]) for k, row in enumerate(rows)]
        found[f"{at_once} rows"] = {
            "tokens": len(apart),
            "other_bits": int((apart != 0).sum()),
            "largest": float(apart.abs().max()),
            "where (row, prompt, reply, positions)": [one for one in others if one[3]][:12],
        }
    return found


def check_gap(shape: str) -> dict[str, Any]:
    """All weights, and LoRA, each as by default and with `exact`."""
    found: dict[str, Any] = {}
    for name, lora, b in (("all", False, 0.0), ("lora, B 0", True, 0.0), ("lora, B 0.01", True, 0.01)):
        for exact in (False, True):
            model = model_of(shape).bfloat16()
            if lora:
                model = adapted(model, b)
            made = ComputeCopy(model, frozen=not lora, exact=exact)
            assert made.runner.accelerated
            dice = torch.Generator().manual_seed(1)
            vocabulary = len(model.get_input_embeddings().weight)  # type: ignore[operator]
            prompts = [torch.randint(0, vocabulary, (128,), generator=dice) for _ in range(8)]
            asked = [Request(prompts[k // 8], k, 128) for k in range(64)]
            apart, _ = differences(made, asked, 16, exact)
            how = {"mean": float(apart.abs().mean()), "largest": float(apart.abs().max())}
            found[f"{name}{', exact' if exact else ''}"] = how
            del made, model
            torch.cuda.empty_cache()
    return found


def check_speed(shape: str) -> dict[str, Any]:
    """Sampled tokens per second, 128 x (128+256) in groups of 8, by default and with `exact` in turns."""
    found: dict[str, Any] = {}
    for name, lora in (("all", False), ("lora", True)):
        engines = []
        for exact in (False, True):
            model = model_of(shape).bfloat16()
            made = ComputeCopy(adapted(model, 0.01) if lora else model, frozen=not lora, exact=exact)
            engines.append((made, LocalEngine(made.current(), Silent(), 2048, exact=exact)))
        dice = torch.Generator().manual_seed(1)
        vocabulary = len(model.get_input_embeddings().weight)  # type: ignore[operator]
        prompts = [torch.randint(0, vocabulary, (128,), generator=dice) for _ in range(16)]
        asked = [Request(prompts[k // 8], k, 256) for k in range(128)]
        seconds: dict[str, list[float]] = {"default": [], "exact": []}
        for turn in range(6):
            for label, (_, engine) in zip(seconds, engines, strict=True):
                torch.cuda.synchronize()
                start = time.perf_counter()
                engine.generate(asked)
                torch.cuda.synchronize()
                if turn > 1:  # the first calls capture
                    seconds[label].append(time.perf_counter() - start)
        medians = {label: statistics.median(times) for label, times in seconds.items()}
        found[name] = {"seconds": seconds, "exact / default": medians["exact"] / medians["default"], **medians}
        for _, engine in engines:
            if engine.workspace is not None:
                engine.workspace.release()
        del engines, engine, made, model
        torch.cuda.empty_cache()
    return found


PARTS: dict[str, Any] = {
    "products": lambda _: check_products(),
    "bits": check_bits,
    "lora-bits": lambda shape: check_bits(shape, lora=True),
    "gap": check_gap,
    "speed": check_speed,
}
OF = {
    "products": ["-"],
    "bits": ["qwen3-0.6b", "gemma3-270m", "gemma3-1b", "qwen3-moe", "qwen2.5-1.5b"],
    "lora-bits": ["qwen3-0.6b", "qwen2.5-1.5b", "gemma3-270m"],
    "gap": ["qwen2.5-1.5b", "qwen3-0.6b", "qwen3-8b"],
    "speed": ["qwen2.5-1.5b", "qwen3-8b"],
}


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    flags.add_argument("--out", type=Path)
    flags.add_argument("--only", default=",".join(PARTS))
    flags.add_argument("--shapes")
    asked = flags.parse_args()
    found: dict[str, Any] = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
    for part in asked.only.split(","):
        for shape in asked.shapes.split(",") if asked.shapes else OF[part]:
            start = time.perf_counter()
            try:
                got: dict[str, Any] = PARTS[part](shape)
            except Exception:  # the other parts still run
                got = {"failed": traceback.format_exc()}
                print(got["failed"], flush=True)
            got["took_s"] = round(time.perf_counter() - start, 1)
            found.setdefault(part, {})[shape] = got
            print(part, shape, json.dumps({k: v for k, v in got.items() if k != "failed"}), flush=True)
            torch.cuda.empty_cache()
            if asked.out:
                asked.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
