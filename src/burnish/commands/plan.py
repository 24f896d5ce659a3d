"""`burnish plan`: what a run will hold in a GPU's memory, before anything is loaded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from burnish.commands.train import read_run
from burnish.methods.table import find
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from burnish.run.memory_plan import Choices

USAGE = """\
[bold]burnish plan[/] [METHOD] --model MODEL [--memory 24GiB] [any flag of burnish train]

  burnish plan grpo --model Qwen/Qwen2.5-3B --lora 16 --max-new-tokens 1024
  burnish plan sft --model path/to/8b --memory 120GiB        what has to be chosen so that it fits
  burnish plan grpo --model path/to/8b --lora 16 --quantization nf4

Nothing is loaded: sizes come from config.json and the headers of the weight files (without these, from config.json
alone). It needs no GPU, and says what the run takes on one.
"""


def main(words: list[str]) -> int:
    out = stdout_console()
    if not words or words[0] == "help" or {"--help", "-h"} & set(words):
        out.print(USAGE)
        return 0
    import torch

    from burnish.models.token_budget import busy
    from burnish.run.memory_plan import GIB, parts_of
    from burnish.run.plan import asked, plan

    name, config = read_run(words)
    found = plan(find(name), config, loads=False)
    options = found.config.options
    shapes, batch, how = asked(found.config, found.method, found.base)
    tokens = found.settings.token_budget
    if config.options.token_budget is None and config.options.memory is None and not torch.cuda.is_available():
        tokens = (1 if batch.replies else 2) * max(busy(shape) for shape in shapes.values())  # what a GPU would get
    how = replace(how, token_budget=tokens)
    parts = parts_of(shapes, found.method.models, found.lora, batch, how)
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, show_header=False)
    for part, size in parts.items():
        table.add_row(part, f"{size / GIB:8.2f} GiB")
    table.add_row("[bold]peak on a GPU, predicted[/]", f"[bold]{sum(parts.values()) / GIB:8.2f} GiB[/]")
    out.print(f"[bold]{escape(name)}[/] on {escape(str(found.base))}: {shapes[found.method.product].weights:,} weights")
    out.print(f"models: {', '.join(f'{name} ({role.liveness})' for name, role in found.method.models.items())}")
    out.print(table)
    out.print(_flags(how, options.kv_gib))
    return 0


def _flags(how: Choices, kv_gib: float | None) -> str:
    """The flags of `burnish train` that the plan is for."""
    words = [f"--token-budget {how.token_budget}", f"--optimiser {how.optimiser}"]
    words += [f"--checkpoint-activations {how.activations}"] if how.activations != "off" else []
    words += [f"--shard {how.shard}"] if how.shard != "off" else []
    words += [f"--master-weights {how.master_weights}"] if how.master_weights != "float32" else []
    words += [f"--kv-gib {kv_gib:g}"] if kv_gib is not None else []
    return f"with {' '.join(words)}"
