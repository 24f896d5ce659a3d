"""Write docs/hardware.md: the GPU memory of models by method, as `burnish plan` predicts it. Nothing is loaded.

    python scripts/write_hardware_table.py

A model is described by its configuration alone, in a temporary folder, so no weights are needed.
"""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from burnish.cli import main as burnish

OUT = Path(__file__).parents[1] / "docs" / "hardware.md"
MODELS = {  # name -> the numbers of its config.json that memory depends on
    "SmolLM2-135M": {
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    },
    "Qwen2.5-0.5B": {
        "model_type": "qwen2",
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "Qwen2.5-1.5B": {
        "model_type": "qwen2",
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "Qwen2.5-3B": {
        "model_type": "qwen2",
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "Llama-3.1-8B": {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "tie_word_embeddings": False,
    },
}
METHODS = {
    "sft": "sft",
    "sft, LoRA": "sft --lora 16",
    "dpo": "dpo",
    "dpo, LoRA": "dpo --lora 16",
    "grpo": "grpo --max-new-tokens 512",
    "grpo, LoRA": "grpo --lora 16 --max-new-tokens 512",
    "grpo, QLoRA": "grpo --lora 16 --quantization nf4 --max-new-tokens 512",
    "ppo": "ppo --max-new-tokens 512",
}
_PEAK = re.compile(r"predicted\s+([0-9.]+) GiB")


def described(config: dict[str, object]) -> dict[str, object]:
    """The config.json of a model."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        **config,
    }


def peak(folder: Path, words: str) -> float:
    """GiB that the plan of a run predicts."""
    method, *flags = words.split()
    printed = StringIO()
    with redirect_stdout(printed):
        common = ["--model", str(folder), "--task", "add", "--checkpoint-activations", "on"]
        code = burnish(["plan", method, *common, *flags])
    found = _PEAK.search(printed.getvalue())
    assert code == 0 and found, printed.getvalue()
    return float(found[1])


def main() -> None:
    rows = []
    for name, config in MODELS.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            (folder / "config.json").write_text(json.dumps(described(config)))
            rows.append(f"| {name} | " + " | ".join(f"{peak(folder, words):.1f}" for words in METHODS.values()) + " |")
    head = f"| GiB | {' | '.join(METHODS)} |\n|---|{'--:|' * len(METHODS)}"
    text = OUT.read_text() if OUT.is_file() else "<!-- table -->\n<!-- end -->\n"
    before, _, rest = text.partition("<!-- table -->")
    after = rest.partition("<!-- end -->")[2]
    OUT.write_text(f"{before}<!-- table -->\n\n{head}\n" + "\n".join(rows) + f"\n\n<!-- end -->{after}")


if __name__ == "__main__":
    main()
