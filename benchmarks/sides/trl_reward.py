"""TRL's RewardTrainer on given tokens in their order: the losses of its steps, and the model that it trained.

    python benchmarks/sides/trl_reward.py WORK.json OUT.json MODEL_DIRECTORY

The work names the model (a sequence-classification model with its head), the rows (chosen_ids and rejected_ids) and
the settings. Needs trl and datasets, and nothing of burnish.
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
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from trl import RewardConfig, RewardTrainer


class Recorded(RewardTrainer):
    """The trainer as it is; the loss of each step is kept unrounded (its log has four digits)."""

    losses: list[float]

    def training_step(self, *args: Any, **more: Any) -> torch.Tensor:
        loss = super().training_step(*args, **more)
        self.losses.append(float(loss))
        return loss


def settings(work: dict[str, Any], folder: str) -> RewardConfig:
    """What burnish's run has: fp32, AdamW without weight decay, constant learning rate, clipping at 1, no shuffling."""
    return RewardConfig(
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
        max_length=None,
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


def main(work_file: str, out: str, model_folder: str) -> None:
    work = json.loads(Path(work_file).read_text())
    model = AutoModelForSequenceClassification.from_pretrained(work["model"], num_labels=1, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Recorded(
            model=model,
            args=settings(work, folder),
            train_dataset=Dataset.from_list(work["rows"]),
            processing_class=AutoTokenizer.from_pretrained(work["model"]),
        )
        trainer.losses = []
        trainer.train()
    found = {
        "loss": trainer.losses,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "trl": trl.__version__,
        },
    }
    trainer.model.save_pretrained(model_folder)
    Path(out).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:4])
