"""What a run is made of, decided and checked before anything is loaded: a mistake is answered at once, and costs nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from burnish.cast.budget import token_budget
from burnish.cast.lora import Lora
from burnish.cast.models import adapted_model, is_adapter, resolve
from burnish.method import Method
from burnish.methods.table import Entry
from burnish.placed.rules import check_placing, threads_for
from burnish.rollout.chunked import chunked
from burnish.run.checks import check_engine, check_options
from burnish.run.config import Config
from burnish.run.pipeline import require_pipelined
from burnish.step import Settings
from burnish.swap import swapped
from burnish.tasks.resolve import resolve_task
from burnish.tasks.source import Source


@dataclass(frozen=True)
class Plan:
    """A run before its models: the method, where its tasks come from, the model's directory and the numbers."""

    config: Config
    source: Source
    method: Method
    base: Path
    lora: Lora | None
    settings: Settings


def compose(entry: Entry, config: Config, task: Source | None = None) -> tuple[Source, Method]:
    """The tasks and the method that a configuration asks for."""
    options = config.options
    dropped = options.on_reward_failure == "drop"
    source = resolve_task(
        task or options.task, options.reward, seconds=options.reward_timeout, drop_failed=dropped, workers=options.reward_workers
    )  # fmt: skip
    method = entry.build(source, **config.arguments)
    if options.swap:
        method = swapped(method, options.swap)
    return source, chunked(replace(method, name=config.method)) if options.chunk is not None else method


def plan(entry: Entry, config: Config, task: Source | None = None) -> Plan:
    """Everything that can be checked without loading a model, checked."""
    options = config.options
    check_options(config)
    base = resolve(options.model)
    if options.lora is not None and is_adapter(base):
        raise ValueError(
            f"{base} holds LoRA adapters, and --lora would put others on top of them; leave out --lora, or go on with that "
            "run by --resume"
        )
    source, method = compose(entry, config, task)
    if options.eval_tasks and source.size("heldout") == 0:
        raise ValueError(
            f"task {source.name!r} has no held-out rows to evaluate on; give it more rows, or leave evaluation out "
            "with --eval-tasks 0"
        )
    check_engine(config, method)
    named_method = replace(method, name=config.method)
    require_pipelined(named_method, options.lag, options.steps)
    check_placing(options, named_method)
    if options.lora is not None and any(
        role.liveness in ("ema", "snapshot") and role.follows == "policy" for role in method.cast.values()
    ):
        raise ValueError(
            f"{config.method} has members that follow the policy's weights, which LoRA does not move; leave out --lora"
        )
    lora = Lora(options.lora) if options.lora is not None else None
    lr = options.lr if options.lr is not None else default_lr(base, lora) * method.lr_share
    budget = options.token_budget
    if budget is None:
        # written down in config.yaml: a resumed run must not choose anew, by the memory that is free then
        budget = token_budget(adapted_model(base), options.device)
        config = replace(config, options=replace(options, token_budget=budget))
    if options.on == "ray" and options.threads is None:  # for the same reason: another number may change the last bits
        config = replace(config, options=replace(config.options, threads=threads_for(options)))
    return Plan(config, source, method, base, lora, options.settings(lr, budget))


def default_lr(base: Path, lora: Lora | None) -> float:
    """By size, on disk at two bytes a weight: 1e-4 to 10M weights, 1e-5 to 500M, 1e-6 beyond; ten times that for LoRA."""
    size = sum(file.stat().st_size for file in adapted_model(base).glob("*.safetensors")) / 2
    lr = 1e-4 if size < 1e7 else 1e-5 if size < 1e9 else 1e-6
    return lr * 10 if lora and size >= 1e7 else lr
