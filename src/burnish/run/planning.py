"""What a run is made of, decided and checked before anything is loaded: a mistake is answered at once, and costs nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from burnish.cast.apart.engine import KINDS
from burnish.cast.budget import token_budget
from burnish.cast.lora import Lora
from burnish.cast.models import adapted_model, is_adapter, resolve
from burnish.method import Method
from burnish.methods.table import Entry
from burnish.placed.rules import check_placing
from burnish.report.sinks import named
from burnish.run.config import Config
from burnish.run.pipeline import require_pipelined
from burnish.run.refused import POLICIES
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
    source = resolve_task(task or options.task, options.reward, seconds=options.reward_timeout, drop_failed=dropped)
    method = entry.build(source, **config.arguments)
    return source, swapped(method, options.swap) if options.swap else method


def plan(entry: Entry, config: Config, task: Source | None = None) -> Plan:
    """Everything that can be checked without loading a model, checked."""
    options = config.options
    _check(config)
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
    _check_engine(config, method)
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
    return Plan(config, source, method, base, lora, options.settings(lr, budget))


def default_lr(base: Path, lora: Lora | None) -> float:
    """By size, on disk at two bytes a weight: 1e-4 to 10M weights, 1e-5 to 500M, 1e-6 beyond; ten times that for LoRA."""
    size = sum(file.stat().st_size for file in adapted_model(base).glob("*.safetensors")) / 2
    lr = 1e-4 if size < 1e7 else 1e-5 if size < 1e9 else 1e-6
    return lr * 10 if lora and size >= 1e7 else lr


def _check(config: Config) -> None:
    options = config.options
    named(options.log)
    if options.record < 0:
        raise ValueError(f"option 'record' is {options.record}; it must be at least 0")
    for name in ("steps", "prompts", "max_new_tokens", "token_budget", "keep"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            raise ValueError(f"option {name!r} is {getattr(options, name)}; it must be at least 1")
    if options.on_nan not in POLICIES:
        raise ValueError(f"option 'on_nan' is {options.on_nan!r}; it is {' or '.join(POLICIES)}")
    if options.on_reward_failure not in ("zero", "drop"):
        raise ValueError(f"option 'on_reward_failure' is {options.on_reward_failure!r}; it is zero or drop")
    if options.reward_timeout is not None and options.reward is None:
        raise ValueError("--reward-timeout limits a reward function, but there is no --reward; leave it out")
    for name in ("keep_every", "lag"):
        if getattr(options, name) < 0:
            raise ValueError(f"option {name!r} is {getattr(options, name)}; it must be 0 or more steps")
    if options.merge and options.lora is None:
        raise ValueError("--merge adds LoRA adapters into the weights, but no --lora is asked for; leave it out")
    if options.device not in ("auto", "cpu") and not torch.cuda.is_available():
        raise ValueError(
            f"device {options.device!r} was asked for, but torch sees no GPU; use --device cpu or install a CUDA build of torch"
        )


def _check_engine(config: Config, method: Method) -> None:
    """What the engine cannot do is refused before anything is loaded."""
    options = config.options
    if options.on_mismatch not in ("stop", "warn"):
        raise ValueError(f"option 'on_mismatch' is {options.on_mismatch!r}; it is stop or warn")
    if options.engine not in ("local", *KINDS):
        raise ValueError(f"option 'engine' is {options.engine!r}; it is local, {' or '.join(KINDS)}")
    if options.vllm_python is not None and options.engine != "vllm":
        raise ValueError("--vllm-python is for --engine vllm, which is not asked for; leave it out or add it")
    if options.engine != "local" and options.lag:
        raise ValueError(
            f"--lag {options.lag} samples ahead inside this process, which the engine {options.engine!r} does not do yet; "
            "use --engine local, or leave out --lag"
        )
    mixes = any(name.endswith(".mix") for phase in method.phases for name in phase.rollout.reads)
    if options.engine != "local" and mixes:
        raise ValueError(
            f"{config.method} samples from a mixture of models, which the engine {options.engine!r} cannot do; use --engine local"
        )
