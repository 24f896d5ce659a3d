"""Help texts: the flags of a command or method as a table, in groups, the common ones first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from burnish.config.flags import Flag, dashed

if TYPE_CHECKING:
    from rich.console import Console

# Title -> options of every run, in the order of --help-all; --help shows the first group only.
GROUPS: dict[str, tuple[str, ...]] = {
    "Common": (
        *("model", "task", "steps", "epochs", "prompts", "max_new_tokens", "lr", "lora", "reward", "seed", "device"),
        *("ranks", "out", "run_name"),
    ),
    "Data": ("max_length", "on_long", "train_on", "columns", "mix"),
    "Learning rate and optimiser": ("lr_schedule", "lr_warmup", "lr_min", "weight_decay", "optimiser", "clip", "swap"),
    "Held-out evaluation and early stopping": (
        "eval_tasks",
        "eval_every",
        "eval_measure",
        "eval_k",
        "eval_temperature",
        "patience",
        "stop_at",
    ),
    "Checkpoints and the final model": ("save_every", "keep", "keep_every", "keep_best", "product", "merge", "dtype"),
    "LoRA": ("lora_alpha", "lora_dropout", "lora_targets", "lora_variant", "lora_save", "quantization"),
    "Chat template": ("chat_template", "system_prompt", "template_option"),
    "Rewards": ("reward_timeout", "reward_workers", "on_reward_failure", "max_reward_failures", "reward_weights"),
    "Records": ("tag", "record", "log", "diagnose_every", "on_nan"),
    "Memory and precision": (
        "memory",
        "master_weights",
        "shard_optimiser",
        "token_budget",
        "packed",
        "kv_gib",
        "checkpoint_activations",
        "exact",
    ),
    "Other": (),  # options that no group names
    "Sampling ahead of learning": ("lag", "chunk"),
    "Engines": ("engine", "vllm_python", "on_mismatch"),
    "Ray": (
        *("on", "ray_address", "samplers", "graders", "spares", "unit", "order", "replacements", "recover_within"),
        *("call_timeout", "threads"),
    ),
}


def grouped(flags: Iterable[Flag]) -> dict[str, list[Flag]]:
    """The flags of every run by group; groups without a flag are left out."""
    by_name = {flag.name: flag for flag in flags}
    named = {name for names in GROUPS.values() for name in names}
    found = {title: [by_name[name] for name in names if name in by_name] for title, names in GROUPS.items()}
    found["Other"] = [flag for name, flag in by_name.items() if name not in named]
    return {title: some for title, some in found.items() if some}


def print_flags(console: Console, flags: Iterable[Flag]) -> None:
    """Print one flag per row: name and type, help text and default. Help texts wrap; nothing is cut off."""
    from rich.table import Table
    from rich.text import Text

    rows = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    for flag in flags:
        switch = flag.kind == "on/off"
        name = f"  --{'[no-]' if switch and flag.default == 'on' else ''}{dashed(flag.name)}"
        default = "" if flag.default in ("-", "off") else f" [{flag.default}]"
        text = Text.assemble(flag.help.replace("`", ""), (default, "dim"))
        rows.add_row(Text.assemble((name, "cyan"), ("" if switch else f" {flag.kind.upper()}", "dim")), text)
    console.print(rows)
