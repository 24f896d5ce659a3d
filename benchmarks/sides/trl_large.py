"""TRL's trainers on the cases of benchmarks/large_models.py: seconds of each step and the peak of torch's allocator.

    python benchmarks/sides/trl_large.py CASE.json          prints RESULT and a JSON object

TRL at its best without a server: weights in bf16, fused AdamW, peft for LoRA, nothing logged or saved, for GRPO no
reference (beta 0) and one generation for the whole batch. micro: rows of one micro-batch; recompute: gradient
checkpointing. Needs trl, datasets and peft, and nothing of burnish.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast, TrainerCallback


class Timer(TrainerCallback):
    """When training began and when each step ended."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def _mark(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.marks.append(time.perf_counter())

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._mark()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._mark()


def settings(case: dict[str, Any], folder: str) -> dict[str, Any]:
    cuda = case["device"] == "cuda"
    rows = case["prompts"] * case.get("n", 1)
    micro = min(case.get("micro") or rows, rows)
    return {
        "output_dir": folder,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": rows // micro,
        "max_steps": case["steps"],
        "learning_rate": 1e-6,
        "lr_scheduler_type": "constant",
        "optim": "adamw_torch_fused",
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "bf16": cuda,
        "model_init_kwargs": {"dtype": "bfloat16" if cuda else "float32", "attn_implementation": "sdpa"},
        "gradient_checkpointing": case.get("recompute", False),
        "use_cpu": not cuda,
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "seed": 0,
    }


def trainer_of(case: dict[str, Any], folder: str) -> Any:
    from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

    shared: dict[str, Any] = {
        "model": case["model"],
        "train_dataset": Dataset.from_list(case["rows"]),
        "processing_class": PreTrainedTokenizerFast.from_pretrained(case["model"], padding_side="left"),
    }
    if case.get("lora"):
        from peft import LoraConfig

        rank = case["lora"]
        shared["peft_config"] = LoraConfig(
            r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
        )
    told = settings(case, folder)
    if case["method"] == "sft":
        return SFTTrainer(args=SFTConfig(**told, packing=False, max_length=None), **shared)
    if case["method"] == "dpo":
        return DPOTrainer(args=DPOConfig(**told, max_length=None), **shared)
    grpo = GRPOConfig(
        **told,
        num_generations=case["n"],
        max_completion_length=case["max_new_tokens"],
        beta=0.0,
        temperature=1.0,
        loss_type="grpo",
    )

    def reward(completions: list[str], **_: Any) -> list[float]:
        return [float(len(said) % 7) for said in completions]

    return GRPOTrainer(args=grpo, reward_funcs=reward, **shared)


def main(file: str) -> None:
    case = json.loads(Path(file).read_text())
    begin = time.perf_counter()
    timer = Timer()
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(case, folder)
        trainer.add_callback(timer)
        trainer.train()
    each = [b - a for a, b in zip(timer.marks, timer.marks[1:], strict=False)]
    found: dict[str, Any] = {
        "load_s": timer.marks[0] - begin,
        "first_step_s": each[0],
        "step_s": statistics.median(each[2:] or each),
        "steps_s": each,
    }
    if case["device"] == "cuda":
        found["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        found["reserved_gib"] = torch.cuda.max_memory_reserved() / 2**30
        found["gpu"] = torch.cuda.get_device_name(0)
    print("RESULT " + json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
