"""`burnish sae`: a sparse autoencoder of a model's last hidden states, for `fpo`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from burnish.config.flags import read
from burnish.core.option import Option
from burnish.util.terminal import stdout_console


@dataclass(frozen=True)
class SaeOptions:
    """burnish sae --model MODEL --task DATA --out FILE: train a sparse autoencoder on the replies of a dataset.

    FILE is a safetensors file with W_enc, b_enc, W_dec, b_dec and threshold, which `burnish train fpo --sae FILE`
    reads. Printed are the share of the variance of the states that it leaves, and how many features are active."""

    model: str = "tiny"
    """The model that reads the replies: the one that fpo starts from."""
    task: str = "sort"
    """A dataset or a built-in task, with pairs or demonstrations."""
    out: str = ""
    """The safetensors file to write; it must not exist."""
    features: Annotated[int, Option(at_least=1)] = 1024
    """Features of the autoencoder."""
    k: Annotated[int, Option(at_least=1)] = 16
    """Features that are active in a state, on average."""
    tasks: Annotated[int, Option(at_least=1)] = 256
    """Number of rows whose replies are read, at most."""
    steps: Annotated[int, Option(at_least=1)] = 400
    """Steps of its training."""
    seed: int = 0
    """Of its first weights and of the order of states."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    json: bool = False
    """Print JSON only."""


def main(words: list[str]) -> int:
    asked = read(SaeOptions, "sae", ["--out" if word == "-o" else word for word in words])
    if asked is None:
        return 0
    options = asked[1]
    out = Path(options.out)
    if not options.out or out.exists() or out.suffix != ".safetensors" or not out.parent.is_dir():
        raise ValueError("say where a new file is written: burnish sae --model tiny --task sort --out sae.safetensors")
    from safetensors.torch import save_file

    from burnish.commands.loaded import load_policy
    from burnish.core.step import Settings
    from burnish.datagen.sparse_features import hidden_states, train_autoencoder
    from burnish.datagen.stored_rows import rows_asked
    from burnish.tasks.resolve import resolve_task

    source, settings = resolve_task(options.task), Settings()
    if not source.gives & {"chosen", "demo"}:
        raise ValueError(f"task {options.task!r} has neither pairs nor demonstrations, so there are no replies to read")
    count = rows_asked(source.size("train"), options.tasks, options.tasks)
    models = load_policy(options.model, settings, options.device)
    states = hidden_states(models, source, count, settings).cpu()
    if options.k > options.features:
        raise ValueError(f"--k is {options.k}, more than the {options.features} features that there are")
    made = train_autoencoder(states, options.features, options.k, steps=options.steps, seed=options.seed)
    save_file(made.weights, out)
    summary = {"states": len(states), "unexplained": made.unexplained, "active": made.active}
    if options.json:
        print(json.dumps({"out": options.out, **summary}))
        return 0
    console = stdout_console()
    console.print(
        f"[bold]{out}[/]: {options.features} features of {len(states):,} states, {made.active:.1f} active in one; "
        f"{made.unexplained:.1%} of the variance is left",
        soft_wrap=True,
    )
    console.print(f"burnish train fpo --model {options.model} --sae {out}", style="dim", soft_wrap=True)
    return 0
