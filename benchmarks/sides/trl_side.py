"""TRL: whole steps of its GRPOTrainer, paused between turns by a callback."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from worker import Turns

from sides.problems import Few, source_of


class TakeTurns(TrainerCallback):
    """One turn is so many optimiser steps with everything that the trainer does around them."""

    def __init__(self, turns: Turns, counted: dict[str, Any], steps: int) -> None:
        self.turns, self.counted, self.steps = turns, counted, steps

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = not self.turns.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step % self.steps:
            return
        counts = {name: int(value) if torch.is_tensor(value) else value for name, value in self.counted.items()}
        self.turns.end(**counts)
        self.counted.clear()
        control.should_training_stop = not self.turns.begin()


class Counting(GRPOTrainer):
    """The trainer as it is, with a count of the tokens whose loss is taken (summed on the device)."""

    counted: dict[str, Any]

    def compute_loss(self, model: Any, inputs: Any, *rest: Any, **more: Any) -> Any:
        tokens = inputs["completion_mask"].sum()
        self.counted["trained_tokens"] = self.counted.get("trained_tokens", 0) + tokens
        return super().compute_loss(model, inputs, *rest, **more)


def _dataset(source: Few, tokenizer: Any) -> Dataset:
    """The problems as TRL takes them: messages where the tokenizer has a chat template, plain text where not."""
    rows = []
    for number, task in enumerate(source.tasks):
        prompt: Any = task.prompt
        if tokenizer.chat_template:
            prompt = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(m) for m in prompt]
        rows.append({"prompt": prompt, "number": number})
    return Dataset.from_list(rows)


def step(work: dict[str, Any], turns: Turns) -> None:
    """Whole GRPO steps: generate, reward, advantages, loss, optimiser."""
    counted: dict[str, Any] = {}
    trainer = trainer_of(work, lambda found: None, counted)
    trainer.add_callback(TakeTurns(turns, counted, work["steps_a_turn"]))
    trainer.train()


def trainer_of(work: dict[str, Any], rewarded: Callable[[dict[str, Any]], None], counted: dict[str, Any]) -> Counting:
    """The trainer of this work. `rewarded` hears of every batch that was generated; `counted` is kept up to date."""
    source = source_of(work)
    tokenizer = AutoTokenizer.from_pretrained(work["model"], padding_side="left")
    data = _dataset(source, tokenizer)
    lengths = [_length(tokenizer, row["prompt"]) for row in data]

    def reward(completions: list[Any], completion_ids: list[list[int]], number: list[int], **_: Any) -> list[float]:
        texts = [said if isinstance(said, str) else said[0]["content"] for said in completions]
        scores = [source.verify(source.tasks[n], said).score for n, said in zip(number, texts, strict=True)]
        earlier = counted.get("samples", 0) * counted.get("rewarded", 0.0)
        more = {"samples": len(scores), "prompt_tokens": sum(lengths[n] for n in number)}
        more["sampled_tokens"] = sum(map(len, completion_ids))
        for name, number_of in more.items():
            counted[name] = counted.get(name, 0) + number_of
        counted["rewarded"] = (earlier + sum(scores)) / counted["samples"]
        rewarded(counted)
        return scores

    trainer = Counting(
        model=work["model"],
        args=GRPOConfig(output_dir=tempfile.mkdtemp(prefix="trl-"), **settings_of(work)),
        reward_funcs=reward,
        train_dataset=data,
        processing_class=tokenizer,
        **_adapters(work),
    )
    trainer.counted = counted
    return trainer


def _adapters(work: dict[str, Any]) -> dict[str, Any]:
    """LoRA as burnish has it by default: all linear layers, alpha twice the rank."""
    if not work.get("lora"):
        return {}
    from peft import LoraConfig

    rank = work["lora"]
    return {"peft_config": LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM")}


def _length(tokenizer: Any, prompt: Any) -> int:
    if isinstance(prompt, str):
        return len(tokenizer(prompt)["input_ids"])
    found = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=True, return_dict=True)
    return len(found["input_ids"])


def settings_of(work: dict[str, Any]) -> dict[str, Any]:
    """TRL at its fastest without a server: weights in bf16 on a GPU, nothing recomputed, nothing logged, no second
    model,
    one generation for the whole batch, and the log-probs of sampling not computed again (one update a batch)."""
    cuda = work["device"] == "cuda"
    rows = work["prompts_a_step"] * work["group"]
    micro = work.get("micro", rows)
    settings: dict[str, Any] = {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": rows // micro,
        "num_generations": work["group"],
        "max_completion_length": work["max_new"],
        "max_steps": 1 << 20,
        "learning_rate": 1e-6,
        "lr_scheduler_type": "constant",
        "optim": "adamw_torch_fused",
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "loss_type": "grpo",
        "beta": 0.0,
        "temperature": 1.0,
        "bf16": cuda,
        "model_init_kwargs": {"dtype": "bfloat16" if cuda else "float32", "attn_implementation": "sdpa"},
        "gradient_checkpointing": False,
        "use_cpu": not cuda,
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "shuffle_dataset": False,
        "seed": 0,
    }
    if "continuous_batching" in work:
        settings["use_transformers_continuous_batching"] = True
        settings["transformers_continuous_batching_config"] = work["continuous_batching"]
    return settings
