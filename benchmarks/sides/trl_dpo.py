"""TRL's DPOTrainer on given rows in their order: the losses of its steps, and the model that it trained.

    python benchmarks/sides/trl_dpo.py WORK.json OUT.json MODEL_DIRECTORY

The work names the model, the rows (prompt, chosen and rejected as texts, and the tokens that burnish makes of them)
and the settings. TRL makes its own tokens of the texts; how many rows got the same ones is part of the result. Needs
trl and datasets, and nothing of burnish.
"""

from __future__ import annotations

import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

TOKENS = ("prompt_ids", "chosen_ids", "rejected_ids")


class Recorded(DPOTrainer):
    """The trainer as it is; the loss of each step is kept unrounded (its log has four digits)."""

    losses: list[float]

    def training_step(self, *args: Any, **more: Any) -> torch.Tensor:
        loss = super().training_step(*args, **more)
        self.losses.append(float(loss))
        return loss


def settings(work: dict[str, Any], folder: str) -> DPOConfig:
    """What burnish's run has: fp32, AdamW without weight decay, constant learning rate, clipping at 1, no shuffling."""
    return DPOConfig(
        output_dir=folder,
        per_device_train_batch_size=work["batch"],
        gradient_accumulation_steps=1,
        max_steps=work["steps"],
        learning_rate=work["lr"],
        lr_scheduler_type="constant",
        warmup_steps=0,
        weight_decay=0.0,
        max_grad_norm=1.0,
        adam_beta1=0.9,
        adam_beta2=0.999,
        adam_epsilon=1e-8,
        beta=work["beta"],
        loss_type="sigmoid",
        max_length=work["max_length"],
        train_sampling_strategy="sequential",
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )


def same_tokens(found: Dataset, rows: list[dict[str, Any]]) -> int:
    """How many rows have the tokens that burnish made of them."""
    return sum(all(mine[name] == row[name] for name in TOKENS) for mine, row in zip(found, rows, strict=True))


def main(work_file: str, out: str, model_folder: str) -> None:
    work = json.loads(Path(work_file).read_text())
    rows = Dataset.from_list([{name: row[name] for name in ("prompt", "chosen", "rejected")} for row in work["rows"]])
    model = AutoModelForCausalLM.from_pretrained(work["model"], dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Recorded(
            model=model,
            args=settings(work, folder),
            train_dataset=rows,
            processing_class=AutoTokenizer.from_pretrained(work["model"]),
        )
        trainer.losses = []
        same = same_tokens(trainer.train_dataset, work["rows"])
        print(f"{same} of {len(rows)} rows have the same tokens", flush=True)
        trainer.train()
    logs = [entry for entry in trainer.state.log_history if "rewards/margins" in entry]
    found = {
        "loss": trainer.losses,
        "margin": [entry["rewards/margins"] for entry in logs],
        "accuracy": [entry["rewards/accuracies"] for entry in logs],
        "same_tokens": same,
        "rows": len(rows),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "trl": trl.__version__,
        },
    }
    trainer.model.save_pretrained(model_folder)
    trainer.processing_class.save_pretrained(model_folder)
    Path(out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:4])
