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
    from rich.console import Console

    from burnish.run.memory_plan import Choices
    from burnish.run.plan import RunPlan
    from burnish.run.step_time import Cluster

SHOWN = 6  # ways to run

USAGE = """\
[bold]burnish plan[/] [METHOD] --model MODEL [--memory 24GiB] [any flag of burnish train]

  burnish plan grpo --model Qwen/Qwen2.5-3B --lora 16 --max-new-tokens 1024
  burnish plan sft --model path/to/8b --memory 120GiB        what has to be chosen so that it fits
  burnish plan grpo --model path/to/8b --lora 16 --quantization nf4

  burnish plan grpo --model path/to/32b --cluster 8xH100 --nodes 2    which --shard, predicted seconds and memory

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

    words, cluster = _cluster(words)
    name, config = read_run(words)
    found = plan(find(name), config, loads=False)
    options = found.config.options
    shapes, batch, how = asked(found.config, found.method, found.base)
    tokens = found.settings.token_budget
    if config.options.token_budget is None and config.options.memory is None and not torch.cuda.is_available():
        tokens = (1 if batch.replies else 2) * max(busy(shape) for shape in shapes.values())  # what a GPU would get
    how = replace(how, token_budget=tokens)
    if cluster is not None:
        _print_candidates(out, name, found, how, cluster)
        return 0
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


def _cluster(words: list[str]) -> tuple[list[str], Cluster | None]:
    """The words without --cluster and --nodes, and the cluster that these describe."""
    from burnish.run.step_time import Cluster

    if not any(word.partition("=")[0] == "--cluster" for word in words):
        return words, None
    own: dict[str, str] = {}
    rest: list[str] = []
    left = iter(words)
    for word in left:
        name, sign, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and name in ("cluster", "nodes"):
            own[name] = value if sign else next(left, "")
        else:
            rest.append(word)
    nodes = own.get("nodes", "1")
    return rest, Cluster.read(own["cluster"], int(nodes) if nodes.isdigit() else 0)


def _print_candidates(out: Console, name: str, found: RunPlan, how: Choices, cluster: Cluster) -> None:
    """A table of the ways to run on a cluster, the best first."""
    from burnish.run.cluster_plan import candidates
    from burnish.run.memory_plan import GIB, PROMPT, batch_of
    from burnish.run.plan import asked
    from burnish.run.step_time import Work

    options = found.config.options
    shapes, whole, _ = asked(replace(found.config, options=replace(options, ranks=1)), found.method, found.base)
    batch = batch_of(found.method, options.prompts, whole.reply, options.max_length, cluster.ranks)
    rows = whole.replies or options.prompts
    reply = whole.reply or (options.max_length or 2 * PROMPT) - PROMPT
    work = Work(rows, whole.prompt, max(1, reply), max(1, rows // options.prompts), bool(whole.replies))
    product, roles = found.method.product, found.method.models
    made = candidates(shapes, roles, product, found.lora, batch, work, how, cluster)
    out.print(
        f"[bold]{escape(name)}[/] on {escape(str(found.base))}: {shapes[product].weights:,} weights, "
        f"on {cluster.nodes} x {cluster.per_node} {cluster.name}; {rows} rows a step, of {work.prompt} + {work.reply} "
        "tokens"
    )
    heads = ("--shard", "ranks a pass", "activations", "GiB a GPU", "rollout", "others", "learn", "exchange", "step")
    table = Table(*heads, box=None, padding=(0, 3, 0, 0), pad_edge=False)
    for one in made[:SHOWN]:
        seconds = (one.time.rollout, one.time.others, one.time.learn, one.time.exchange, one.time.total)
        gib = f"{one.memory / GIB:.1f}" + ("" if one.fits(cluster) else " (too much)")
        table.add_row(
            one.how.shard, str(one.context), one.how.activations, gib, *(f"{second:.2f} s" for second in seconds)
        )
    out.print(table)
    best = made[0]
    if not best.fits(cluster):
        out.print("none of them fits: more machines, --lora 16, or a smaller --max-new-tokens")
    else:
        out.print(f"best: {best.flags(cluster)}")
    out.print("Seconds are predicted from one measured H200 and data sheets; exchanges between GPUs were not measured.")
    if any(one.how.shard == "full" for one in made[:SHOWN]):
        out.print(
            "--shard full computes in transformers' modules, which are slower than reckoned: it is the last choice."
        )


def _flags(how: Choices, kv_gib: float | None) -> str:
    """The flags of `burnish train` that the plan is for."""
    words = [f"--token-budget {how.token_budget}", f"--optimiser {how.optimiser}"]
    words += [f"--checkpoint-activations {how.activations}"] if how.activations != "off" else []
    words += [f"--shard {how.shard}"] if how.shard != "off" else []
    words += [f"--master-weights {how.master_weights}"] if how.master_weights != "float32" else []
    words += [f"--kv-gib {kv_gib:g}"] if kv_gib is not None else []
    return f"with {' '.join(words)}"
