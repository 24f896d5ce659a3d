"""The runs that `kill_harness.py` kills: what each is called with, and how it is started and continued."""

from __future__ import annotations

import importlib.util
import os
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
    "grpo-ranks": {"method": "grpo", "n": 4, "ranks": 2},  # a launcher and two ranks
    "ppo-ranks-sharded": {"method": "ppo", "n": 2, "ranks": 2, "shard": "optimiser"},
    "sft-ranks-states": {"method": "sft", "reward": None, "ranks": 2, "shard": "states", "optimiser": "adamw8bit"},
    "grpo-ray": {"method": "grpo", "n": 4, "on": "ray", "unit": 1},  # sampler, grader and trainer are processes
    "grpo-ray-lag": {"method": "grpo", "n": 4, "on": "ray", "unit": 1, "lag": 1, "samplers": 2},
}
NEEDS = {"grpo-vllm": "vllm", "grpo-ray": "ray", "grpo-ray-lag": "ray"}


def train(variant: str, model: Path) -> None:
    """The run of a variant, into ./run; or its continuation, where ./run is a run already."""
    if "ranks" in VARIANTS[variant]:
        train_ranks(variant, model)
        return
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


def train_ranks(variant: str, model: Path) -> None:
    """The same with several ranks, as the command starts them."""
    from burnish.cli import main

    options = {**SHARED, "model": str(model), "reward": str(model.parent / "reward.py:coin"), **VARIANTS[variant]}
    method = options.pop("method")
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in options.items() if value is not None]
    begun = Path("run/config.yaml").is_file()
    code = main(["train", "--resume", "run"] if begun else ["train", method, "--out", "run", "--quiet", *flags])
    if code:
        os._exit(code)  # the command has said why


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


def available(variant: str) -> bool:
    """Whether the package that a variant needs is installed."""
    if variant == "grpo-vllm" and os.environ.get("BURNISH_VLLM_PYTHON"):
        return True
    return variant not in NEEDS or importlib.util.find_spec(NEEDS[variant]) is not None
