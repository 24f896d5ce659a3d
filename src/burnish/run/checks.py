"""What is looked at before anything is loaded: options that contradict each other, engines that cannot do what is asked."""

from __future__ import annotations

import torch

from burnish.cast.apart.engine import KINDS
from burnish.method import Method
from burnish.report.sinks import named
from burnish.run.config import Config
from burnish.run.refused import POLICIES


def check_options(config: Config) -> None:
    """Raises ValueError for a value that no run can have."""
    options = config.options
    named(options.log)
    if options.record < 0:
        raise ValueError(f"option 'record' is {options.record}; it must be at least 0")
    for name in ("steps", "prompts", "max_new_tokens", "chunk", "token_budget", "keep"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            raise ValueError(f"option {name!r} is {getattr(options, name)}; it must be at least 1")
    if options.on_nan not in POLICIES:
        raise ValueError(f"option 'on_nan' is {options.on_nan!r}; it is {' or '.join(POLICIES)}")
    if options.on_reward_failure not in ("zero", "drop"):
        raise ValueError(f"option 'on_reward_failure' is {options.on_reward_failure!r}; it is zero or drop")
    if options.reward_timeout is not None and options.reward is None:
        raise ValueError("--reward-timeout limits a reward function, but there is no --reward; leave it out")
    if options.reward_workers < 0:
        raise ValueError(f"option 'reward_workers' is {options.reward_workers}; it must be 0 or more")
    if options.reward_workers and options.reward is None:
        raise ValueError("--reward-workers is for a reward function, but there is no --reward; leave it out")
    for name in ("keep_every", "lag"):
        if getattr(options, name) < 0:
            raise ValueError(f"option {name!r} is {getattr(options, name)}; it must be 0 or more steps")
    if options.merge and options.lora is None:
        raise ValueError("--merge adds LoRA adapters into the weights, but no --lora is asked for; leave it out")
    if options.device not in ("auto", "cpu") and not torch.cuda.is_available():
        raise ValueError(
            f"device {options.device!r} was asked for, but torch sees no GPU; use --device cpu or install a CUDA build of torch"
        )


def check_engine(config: Config, method: Method) -> None:
    """What the engine cannot do is refused before anything is loaded."""
    options = config.options
    if options.on_mismatch not in ("stop", "warn"):
        raise ValueError(f"option 'on_mismatch' is {options.on_mismatch!r}; it is stop or warn")
    if options.engine not in ("local", *KINDS):
        raise ValueError(f"option 'engine' is {options.engine!r}; it is local, {' or '.join(KINDS)}")
    if options.vllm_python is not None and options.engine != "vllm":
        raise ValueError("--vllm-python is for --engine vllm, which is not asked for; leave it out or add it")
    mixes = any(name.endswith(".mix") for phase in method.phases for name in phase.rollout.reads)
    if options.engine != "local" and mixes:
        raise ValueError(
            f"{config.method} samples from a mixture of models, which the engine {options.engine!r} cannot do; use --engine local"
        )
