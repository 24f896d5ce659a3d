"""Architectures with a spec on one GPU: whether the fused path is right, and how fast it is beside the general one.

    PYTHONPATH=src python3 benchmarks/layer_spec.py --out spec.json              everything, eight minutes on an H200
    ... benchmarks/layer_spec.py --only learning,after --shapes gemma3-270m      some parts, some shapes

learning  log-probs and gradients of a few layers in bf16 beside transformers' in fp32, the general path beside them;
          gradients of a CUDA graph beside those without one
bits      the sampler's log-probs beside the trainer's, bit for bit
after     tokens per second, sampling 256 x (128+256) in groups of 8, and training on 64 x (128+256), random weights
before    the same on the general path: transformers' modules, compiled

Each part is guarded: a failure is printed with its traceback and recorded, and the next part runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from burnish.engine.local import LocalEngine, Request
from burnish.forward import attention, plain
from burnish.forward.outputs import outputs
from burnish.kernels.triton import decoder as fused
from burnish.kernels.triton.runner import TritonRunner
from burnish.models.mixed_precision import ComputeCopy

MOE = {"num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 512, "norm_topk_prob": True}
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3-0.6b": (
        "Qwen3Config",
        {"vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "head_dim": 128}
        | {"num_attention_heads": 16, "num_key_value_heads": 8, "tie_word_embeddings": True},
    ),
    "gemma3-270m": (
        "Gemma3TextConfig",
        {"vocab_size": 262144, "hidden_size": 640, "intermediate_size": 2048, "num_hidden_layers": 18, "head_dim": 256}
        | {"num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window": 512, "query_pre_attn_scalar": 256},
    ),
    "gemma3-1b": (
        "Gemma3TextConfig",
        {"vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26, "head_dim": 256}
        | {"num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window": 512, "query_pre_attn_scalar": 256},
    ),
    "qwen3-moe": (
        "Qwen3MoeConfig",
        {"vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 16, "head_dim": 128}
        | {"num_attention_heads": 16, "num_key_value_heads": 4, **MOE},
    ),
}
SMALL = {"vocab_size": 2000, "num_hidden_layers": 6}  # of the exactness checks; of six Gemma layers, one has no window


class Silent:
    """Of a chat, what an engine asks for: no token ends a reply."""

    stops = (-1,)

    def text(self, tokens: Tensor) -> str:
        return ""


def model_of(shape: str, **changes: Any) -> nn.Module:
    """A model with random weights, norms included, in fp32."""
    import transformers

    name, sizes = SHAPES[shape]
    config = getattr(transformers, name)(**(sizes | {"max_position_embeddings": 2048} | changes))
    config._attn_implementation = attention.register()
    torch.manual_seed(0)
    with torch.device("cuda"):
        model: nn.Module = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.1 if parameter.ndim == 1 else 0.005))
    return model.eval()


def general() -> Any:
    """In this context, no decoder has a spec."""
    return mock.patch.object(fused.FusedDecoder, "of", return_value=None)


def rows_of(count: int, group: int, prompt: int, new: int, vocabulary: int) -> tuple[list[Tensor], list[Tensor]]:
    dice = torch.Generator().manual_seed(1)
    starts = [torch.randint(0, vocabulary, (prompt,), generator=dice) for _ in range(count // group)]
    rows = [torch.cat([starts[i // group], torch.randint(0, vocabulary, (new,), generator=dice)]) for i in range(count)]
    return rows, [torch.arange(prompt + new) >= prompt] * count


def learned(made: ComputeCopy, rows: list[Tensor], masks: list[Tensor], replayed: bool = False) -> list[Tensor]:
    """Log-probs, and the gradient of a mixture of them, as the master weights get it."""
    for parameter in made.model.parameters():
        parameter.grad = None
    logp = outputs(made.current(), rows, masks, {"logp"}, replayed=replayed)["logp"]
    (logp.float() * torch.linspace(-1, 1, len(logp), device=logp.device)).sum().backward()
    made.collect()
    grads = [p.grad for p in made.model.parameters()]
    return [logp.detach().float(), *(torch.zeros(1) if g is None else g.clone() for g in grads)]


def by_transformers(model: nn.Module, rows: list[Tensor], masks: list[Tensor]) -> list[Tensor]:
    """The same by transformers' eager forward of each row alone, in fp32."""
    for parameter in model.parameters():
        parameter.grad = None
    with attention.by_transformers(model):
        logp = plain.outputs(model, rows, masks, {"logp"})["logp"]
        (logp * torch.linspace(-1, 1, len(logp), device=logp.device)).sum().backward()
    return [logp.detach(), *(torch.zeros(1) if p.grad is None else p.grad.clone() for p in model.parameters())]


def apart(found: list[Tensor], wanted: list[Tensor]) -> dict[str, float]:
    """The median difference of log-probs, and the relative differences of gradients: the median and the largest."""
    pairs = list(zip(found[1:], wanted[1:], strict=True))
    grads = [float((a - b.to(a.device)).norm() / b.norm().clamp(min=1e-30)) for a, b in pairs if b.norm() > 0]
    return {
        "logp_median": float((found[0] - wanted[0].to(found[0].device)).abs().median()),
        "grad_median": statistics.median(grads),
        "grad_largest": max(grads),
    }


def check_learning(shape: str) -> dict[str, Any]:
    """bf16 on both paths beside fp32, and a CUDA graph beside no graph; rows share prompts, some are longer than a
    span."""
    model = model_of(shape, **SMALL)
    vocabulary = len(model.get_input_embeddings().weight)
    found: dict[str, Any] = {}
    for name, sizes in {"groups": (8, 4, 20, 12), "long": (2, 1, 600, 100)}.items():
        rows, masks = rows_of(*sizes, vocabulary)
        wanted = by_transformers(model, rows, masks)
        made = ComputeCopy(model, frozen=False)
        assert made.runner.accelerated
        mine = learned(made, rows, masks)
        with general():
            other = ComputeCopy(model, frozen=False)
        found[name] = {"fused": apart(mine, wanted), "general": apart(learned(other, rows, masks), wanted)}
        for _ in range(3):  # asked for often enough to be captured
            replayed = learned(made, rows, masks, replayed=True)
        assert isinstance(made.runner, TritonRunner) and made.runner.graphs is not None
        found[name]["graph"] = {"captured": len(made.runner.graphs.graphs.kept), **apart(replayed, mine)}
    return found


def check_bits(shape: str) -> dict[str, Any]:
    """How many of the sampler's log-probs the trainer finds again bit for bit, in packs of 1, 20 and 120 rows."""
    made = ComputeCopy(model_of(shape, **SMALL), frozen=True, exact=True)
    assert made.runner.accelerated
    dice = torch.Generator().manual_seed(2)
    prompts = [torch.randint(0, SMALL["vocab_size"], (n,), generator=dice) for n in (1, 2, 9, 40, 130, 480, 1100)]
    count = 120
    asked = [Request(prompts[k % len(prompts)], k, 1 + (k * 7) % 90) for k in range(count)]
    samples = LocalEngine(made.current(), Silent(), 2048, exact=True).generate(asked)
    rows = [torch.cat([request.prompt, sample.tokens]) for request, sample in zip(asked, samples, strict=True)]
    masks = [torch.arange(len(row)) >= len(r.prompt) for row, r in zip(rows, asked, strict=True)]
    wanted, found = torch.cat([sample.logp for sample in samples]), {}
    for at_once in (1, 20, count):
        parts = []
        for i in range(0, count, at_once):
            with torch.no_grad():
                some = outputs(made.current(), rows[i : i + at_once], masks[i : i + at_once], {"logp"})["logp"]
            parts.append(some.float().cpu())
        apart_by = (torch.cat(parts) - wanted).abs()
        found[f"{at_once} rows"] = {"other_bits": int((apart_by > 0).sum()), "largest": float(apart_by.max())}
    return {"tokens": len(wanted), **found}


def timed(run: Callable[[], Any], times: int, warm_ups: int) -> tuple[float, list[float], float]:
    """The median of so many seconds, all of them, and the seconds of the warm-up."""

    def once() -> float:
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    warm = sum(once() for _ in range(warm_ups))
    found = [once() for _ in range(times)]
    return statistics.median(found), found, warm


def rates(shape: str) -> dict[str, Any]:
    """Sampled and trained tokens per second on the path that there is."""
    model = model_of(shape)
    vocabulary = len(model.get_input_embeddings().weight)
    rows, prompt, new, trained = 256, 128, 256, 64
    made = ComputeCopy(model, frozen=False)
    texts, _ = rows_of(rows, 8, prompt, 0, vocabulary)
    asked = [Request(text, k, new) for k, text in enumerate(texts)]
    engine = LocalEngine(made.current(), Silent(), 2048)
    median, seconds, warm = timed(lambda: engine.generate(asked), 3, 2)
    found: dict[str, Any] = {"fused": made.runner.accelerated, "weights": sum(p.numel() for p in model.parameters())}
    found["sampling"] = {"tokens_per_s": rows * new / median, "seconds": seconds, "warm_up": warm}
    if engine.workspace is not None:
        engine.workspace.release()
    given = rows_of(trained, 1, prompt, new, vocabulary)
    median, seconds, warm = timed(lambda: learned(made, *given, replayed=True), 5, 3)
    found["training"] = {"tokens_per_s": trained * (prompt + new) / median, "seconds": seconds, "warm_up": warm}
    found["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return found


def before(shape: str) -> dict[str, Any]:
    with general():
        return rates(shape)


PARTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "learning": check_learning,
    "bits": check_bits,
    "after": rates,
    "before": before,
}


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    flags.add_argument("--out", type=Path)
    flags.add_argument("--only", default="learning,bits,after,before")
    flags.add_argument("--shapes", default=",".join(SHAPES))
    asked = flags.parse_args()
    found: dict[str, Any] = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
    for part in asked.only.split(","):
        for shape in asked.shapes.split(","):
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
            torch.cuda.reset_peak_memory_stats()
            if asked.out:
                asked.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
