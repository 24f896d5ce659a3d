"""Values of options of other libraries, converted to those of ours (see migrate/translate.py)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from burnish.store.sinks import SINKS
from burnish.util.failures import said, shown

Flat = dict[str, Any]


class Skip(Exception):
    """A value without counterpart; its text is the reason, and empty where nothing is lost."""


@dataclass(frozen=True)
class Context:
    """The whole configuration that a value stands in, the file's folder, our method and the options that it has."""

    flat: Flat
    folder: Path
    method: str
    known: set[str]


def converted(ours: str, value: Any, key: str, context: Context) -> Any:
    """The value of their option `key` for our option `ours`; raises Skip where it has no counterpart."""
    try:
        return _CONVERT.get(ours, _plain)(value, key, context)
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise ValueError(f"{key} is {shown(value)}, which cannot be translated ({said(error)}); correct it") from None


def whole_number(value: Any, key: str, least: int = 1) -> int:
    """A number of the file that others are computed from; ValueError for what is none."""
    try:
        found = int(value)
    except (TypeError, ValueError, OverflowError):
        found = least - 1
    if found < least or isinstance(value, bool):
        raise ValueError(f"{key} is {shown(value)}; it must be a whole number of at least {least}")
    return found


def _plain(value: Any, key: str, context: Context) -> Any:
    if isinstance(value, list | dict):
        raise Skip("a list is not expected here; give one value")
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        raise Skip("")  # -1 stands for "not set"
    return value


def _epochs(value: Any, key: str, context: Context) -> Any:
    steps = context.flat.get("max_steps") or context.flat.get("trainer.total_training_steps") or 0
    if whole_number(steps, "the number of steps", -1) > 0:
        raise Skip("")  # a number of steps overrides it
    return _plain(value, key, context)


def _schedule(value: Any, key: str, context: Context) -> Any:
    known = {"constant_with_warmup": "constant", "cosine_with_min_lr": "cosine"}
    name = known.get(str(value), str(value))
    if name not in ("constant", "linear", "cosine"):
        raise Skip("the schedules are constant, linear and cosine")
    return name


def _every(value: Any, key: str, context: Context) -> Any:
    if isinstance(value, float) and 0 < value < 1:
        raise Skip("give a number of steps, not a share of them")
    return max(0, whole_number(value, key, -1))


def _log(value: Any, key: str, context: Context) -> Any:
    named = [value] if isinstance(value, str) else list(value) if isinstance(value, list) else []
    known = [name for name in named if name in SINKS]
    if not known:
        raise Skip("" if set(named) <= {"none", "all", "console"} else f"the trackers are {', '.join(SINKS)}")
    for name in known:
        if find_spec(name) is None:
            raise Skip(f"it is not installed: pip install 'burnish[{name}]', then add log: {name}")
    return ",".join(known)


def _vllm(value: Any, key: str, context: Context) -> Any:
    raise Skip("burnish samples with its own engine; engine: vllm uses vLLM, where it is installed" if value else "")


def _lora(value: Any, key: str, context: Context) -> Any:
    flat = context.flat
    off = flat.get("use_peft") is False or flat.get("use_lora") is False or value in (0, "0")
    full = flat.get("finetuning_type", "lora") != "lora" or str(flat.get("adapter", "lora")) not in ("lora", "qlora")
    if off or full:
        raise Skip("")
    return value


def _of_lora(convert: Callable[[Any, str, Context], Any]) -> Callable[[Any, str, Context], Any]:
    """A conversion of an option that is about adapters: skipped where there are none."""

    def call(value: Any, key: str, context: Context) -> Any:
        ranks = [one for name, one in context.flat.items() if name.rpartition(".")[2] in _RANKS]
        for rank in ranks:
            _lora(rank, key, context)
        if not ranks:
            raise Skip("" if not value else "there is no rank beside it; add lora: 16")
        return convert(value, key, context)

    return call


_RANKS = {"lora", "lora_r", "lora_rank", "peft_lora_r", "r"}


def _names(value: Any, key: str, context: Context) -> Any:
    """Names of modules; LLaMA-Factory writes all, Axolotl lora_target_linear: true for every linear layer."""
    if value in (True, "all", "all-linear"):
        return "all-linear"
    named = [str(one) for one in value] if isinstance(value, list | tuple) else str(value or "").split(",")
    if not all(name.strip().replace("_", "").replace(".", "").isalnum() for name in named) or value is False:
        raise Skip("" if not value else "it is a pattern; give the names of layers")
    return ",".join(name.strip() for name in named)


def _variant(value: Any, key: str, context: Context) -> Any:
    if value in (False, "lora"):
        raise Skip("")
    return "rslora" if "rslora" in (key, str(value)) or key.endswith("rslora") else "dora"


def _dtype(value: Any, key: str, context: Context) -> Any:
    """The saved model's number format. bf16: true is about the computation, which a GPU does in bf16 anyway."""
    names = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
    name = names.get(str(value), str(value))
    if name not in names.values():
        raise Skip("a GPU computes in bf16 over fp32 weights; dtype is the saved model's" if value is True else "")
    return name


def _max_length(value: Any, key: str, context: Context) -> Any:
    """Ours is the length of prompt and reply together."""
    if not key.endswith("max_prompt_length"):
        return _plain(value, key, context)
    replies = ("max_completion_length", "data.max_response_length", "trl.max_completion_length")
    longest = next((context.flat[name] for name in replies if context.flat.get(name)), 512 if "." in key else 256)
    return whole_number(value, key) + whole_number(longest, "the longest reply")


def _reward(value: Any, key: str, context: Context) -> Any:
    """One function or several, with their weights; verl's is a path and a name."""
    if key == "custom_reward_function.path":
        return f"{value}:{context.flat.get('custom_reward_function.name', 'compute_score')}"
    named = value if isinstance(value, list) else [value]
    weights = context.flat.get("reward_weights", context.flat.get("trl.reward_weights")) or [1.0] * len(named)
    found = [f"{_function(str(name), context)}*{weight:g}" for name, weight in zip(named, weights, strict=False)]
    return ",".join(part.removesuffix("*1") for part in found)


def _function(name: str, context: Context) -> str:
    """path/to/file.py:function, from that or from a dotted name of a module beside the configuration."""
    if ".py:" in name:
        return name
    module, _, function = name.rpartition(".")
    file = context.folder / f"{module.replace('.', '/')}.py"
    if not module or not file.is_file():
        raise Skip("the task's own verifier scores replies; a function is --reward path/to/file.py:function")
    return f"{file}:{function}"


def _template(value: Any, key: str, context: Context) -> Any:
    if value in ("chatml", "plain", "none") or os.path.isfile(str(value)):
        return value
    raise Skip("the model's own chat template is used")


def _task(value: Any, key: str, context: Context) -> Any:
    """A dataset: a path, a hub name, Axolotl's list of mappings, or names in LLaMA-Factory's dataset_info.json.

    Several are a mixture in equal shares.
    """
    several = value if isinstance(value, list) else str(value).split(",") if key == "dataset" else [value]
    names = [str(one.get("path", "")) if isinstance(one, Mapping) else str(one).strip() for one in several]
    names = [os.path.expandvars(os.path.expanduser(name)) for name in names]
    if context.flat.get("dataset_config"):
        names = [f"{name}:{context.flat['dataset_config']}" for name in names]
    tasks = [_listed(name, context) or name for name in names]
    if len(tasks) == 1:
        return tasks[0]
    parts = [task.partition(",") for task in tasks]  # options follow the weight: a.jsonl*0.5,prompt=text
    return ",".join(f"{name}*{1 / len(tasks):.3g}{comma}{options}" for name, comma, options in parts)


def _listed(name: str, context: Context) -> str | None:
    """The file or hub name of a dataset that LLaMA-Factory's dataset_info.json describes, with its columns."""
    place = context.folder / str(context.flat.get("dataset_dir", "data"))
    try:
        entry = json.loads((place / "dataset_info.json").read_text())[name.partition(",")[0]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    file = str(place / entry["file_name"]) if "file_name" in entry else str(entry.get("hf_hub_url", name))
    parts = {"prompt": "prompt", "response": "demo", "chosen": "chosen", "rejected": "rejected", "messages": "messages"}
    columns = entry.get("columns", {})
    return ",".join([file, *(f"{ours}={columns[theirs]}" for theirs, ours in parts.items() if theirs in columns)])


def _minibatches(value: Any, key: str, context: Context) -> Any:
    batch = context.flat.get("data.train_batch_size", 1024)
    if "num_mini_batches" in key:
        return value
    return max(1, whole_number(batch, "data.train_batch_size") // whole_number(value, key))


def _kl(value: Any, key: str, context: Context) -> Any:
    """verl has two switches: a KL in the loss, and one in the reward."""
    in_loss = context.flat.get("actor_rollout_ref.actor.use_kl_loss")
    in_reward = context.flat.get("algorithm.use_kl_in_reward")
    if ("kl_loss_coef" in key and in_loss is False) or ("kl_ctrl" in key and not in_reward):
        raise Skip("")
    return value


def _on(value: Any, key: str, context: Context) -> Any:
    return bool(value)


def _four_bits(value: Any, key: str, context: Context) -> Any:
    if not value or (key.endswith("quantization_bit") and str(value) != "4"):
        raise Skip("weights are quantised to four bits, or not at all" if value else "")
    return "nf4"


def _best(value: Any, key: str, context: Context) -> Any:
    if not value:
        raise Skip("")
    return "best"


def _cpu(value: Any, key: str, context: Context) -> Any:
    if not value:
        raise Skip("")
    return "cpu"


def _nothing(value: Any, key: str, context: Context) -> Any:
    raise Skip("")


def _needs_resume(value: Any, key: str, context: Context) -> Any:
    raise Skip("burnish train --resume RUN resumes a run")


_CONVERT: dict[str, Callable[[Any, str, Context], Any]] = {
    "epochs": _epochs,
    "lr_schedule": _schedule,
    "save_every": _every,
    "eval_every": _every,
    "log": _log,
    "engine": _vllm,
    "lora": _lora,
    "lora_alpha": _of_lora(_plain),
    "lora_dropout": _of_lora(_plain),
    "lora_targets": _of_lora(_names),
    "lora_variant": _of_lora(_variant),
    "lora_save": _of_lora(_names),
    "quantization": _of_lora(_four_bits),
    "dtype": _dtype,
    "max_length": _max_length,
    "reward": _reward,
    "chat_template": _template,
    "task": _task,
    "minibatches": _minibatches,
    "beta": _kl,
    "kl": _kl,
    "checkpoint_activations": _on,
    "device": _cpu,
    "packed": _nothing,
    "kv_gib": _nothing,
    "token_budget": _nothing,
    "resume": _needs_resume,
    "product": _best,
}
