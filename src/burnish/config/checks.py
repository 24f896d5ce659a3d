"""Checks of options before anything is loaded: contradictions, and what the engine does not support.

The range of each option by itself is in its type (config/options.py).
"""

from __future__ import annotations

from dataclasses import fields

from burnish.config.options import Config, Options
from burnish.core.method import Method
from burnish.learn.learn import Learn
from burnish.models.build import device_named
from burnish.store.sinks import sink_names


def check_options(config: Config) -> None:
    """Raise ValueError for options that contradict each other or this machine."""
    options = config.options
    sink_names(options.log)
    _check_ending(options)
    if options.reward_workers and options.reward is None:
        raise ValueError("--reward-workers needs a reward function, but there is no --reward; leave it out")
    if options.merge and options.lora is None:
        raise ValueError("--merge adds LoRA adapters into the weights, but there is no --lora; leave it out")
    for field in fields(Options):
        if field.name.startswith("lora_") and options.lora is None and getattr(options, field.name) != field.default:
            flag = field.name.replace("_", "-")
            raise ValueError(f"--{flag} is about LoRA adapters, but there is no --lora; add --lora 16, or leave it out")
    if options.master_weights != "float32" and options.lora is not None:
        raise ValueError(
            f"--master-weights {options.master_weights} is for weights that are all trained; with --lora they are "
            "frozen, and held in bf16 on a GPU anyway: leave it out"
        )
    device_named(options.device)


def _check_ending(options: Options) -> None:
    """Options of the schedule's end, early stopping and the final model."""
    if options.lr_min and options.lr_schedule == "constant":
        raise ValueError("--lr-min is where a schedule ends, but the schedule is constant; add --lr-schedule cosine")
    if options.lr_warmup > 1 and options.lr_warmup != int(options.lr_warmup):
        raise ValueError(f"option 'lr_warmup' is {options.lr_warmup}; it is a number of steps, or a share from 0 to 1")
    named = {"--patience": options.patience, "--product best": options.product == "best"}
    for name, wanted in {**named, "--stop-at": options.stop_at is not None}.items():
        if wanted and not (options.eval_tasks and options.eval_every):
            raise ValueError(f"{name} needs held-out evaluations; leave out --eval-tasks 0 and --eval-every 0")
    if options.product == "best" and not options.keep_best:
        raise ValueError("--product best needs the best checkpoint; leave out --no-keep-best")


def check_master_weights(config: Config, method: Method) -> None:
    """Raise ValueError for a method that moves weights by itself, where AdamW would have to round them."""
    held = config.options.master_weights
    if held != "float32" and any(
        isinstance(phase.learn, Learn) and phase.learn.move is not None for phase in method.phases
    ):
        raise ValueError(
            f"{config.method} moves the weights by an update of its own, and --master-weights {held} is AdamW's; "
            "leave it out"
        )


def check_shard(config: Config, method: Method) -> None:
    """Raise ValueError for a method that moves weights by a gradient of its own, where ranks divide gradients, or that
    changes weights by itself, where ranks divide these."""
    shard, plans = config.options.shard, [phase.learn for phase in method.phases if isinstance(phase.learn, Learn)]
    if shard in ("states", "full") and any(plan.move is not None for plan in plans):
        raise ValueError(
            f"{config.method} moves the weights by an update of its own, which needs the whole gradient, and --shard "
            f"{shard} divides it among the ranks; use --shard optimiser, or leave it out"
        )
    if shard == "full" and any(plan.search is not None for plan in plans):
        raise ValueError(
            f"{config.method} searches with the whole weights, and --shard full divides them among the ranks; leave it "
            "out"
        )


def check_search(config: Config, method: Method) -> None:
    """Raise ValueError for a method that moves LoRA adapters in a run without them."""
    for phase in method.phases:
        search = phase.learn.search if isinstance(phase.learn, Learn) else None
        if search is not None and search.needs_lora and config.options.lora is None:
            raise ValueError(search.needs_lora)


def check_engine(config: Config, method: Method) -> None:
    """Raise ValueError for a method that needs what the engine cannot do."""
    options = config.options
    if options.vllm_python is not None and options.engine != "vllm":
        raise ValueError(
            "--vllm-python is for --engine vllm, but the engine is another; leave it out, or add --engine vllm"
        )
    mixes = any(name.endswith(".mix") for phase in method.phases for name in phase.rollout.reads)
    if options.engine != "local" and mixes:
        raise ValueError(
            f"{config.method} samples from a mixture of models, which the engine {options.engine!r} cannot do; "
            "use --engine local"
        )
