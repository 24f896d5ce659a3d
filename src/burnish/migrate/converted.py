"""Values of options of other libraries, converted to those of ours, one option at a time (see migrate/translate.py)."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from burnish.migrate.batches import whole_number
from burnish.migrate.draft import Differs, Draft, Same, Skip, truth
from burnish.store.sinks import SINKS
from burnish.util.failures import said, shown


def converted(ours: str, value: object, key: str, draft: Draft) -> tuple[object, str]:
    """The value of their option `key` for our option `ours`, and how it differs ("" where it does not).

    Raises Skip where it has no counterpart, Same where nothing has to be set, Differs where burnish chooses by itself.
    """
    try:
        result = _CONVERT.get(ours, _plain)(value, key, draft)
        return result if isinstance(result, tuple) else (result, "")
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise ValueError(f"{key} is {shown(value)}, which cannot be translated ({said(error)}); correct it") from None


def _plain(value: object, key: str, draft: Draft) -> object:
    if isinstance(value, list | dict | tuple):
        raise Skip("a list is not expected here; give one value")
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        raise Same("not set")  # -1 stands for that
    return value


def _steps(value: object, key: str, draft: Draft) -> object:
    if whole_number(value, key, -1) <= 0:
        raise Same("not set")
    return value


def _epochs(value: object, key: str, draft: Draft) -> object:
    steps = draft.value("max_steps", "trainer.total_training_steps", default=0) or 0
    if whole_number(steps, "the number of steps", -1) > 0:
        raise Same("the number of steps overrides it")
    return _plain(value, key, draft)


def _schedule(value: object, key: str, draft: Draft) -> object:
    changed = {
        "cosine_with_restarts": ("cosine", "without restarts; theirs has one cycle by default"),
        "polynomial": ("linear", "to 0; theirs has the power 1 by default"),
        "inverse_sqrt": None,
    }
    same = {"constant_with_warmup": "constant", "cosine_with_min_lr": "cosine", "schedulertype.cosine": "cosine"}
    name = same.get(str(value).lower(), str(value).lower())
    schedule = changed.get(name, (name, ""))
    if schedule is None or schedule[0] not in ("constant", "linear", "cosine"):
        raise Skip("the schedules are constant, linear and cosine")
    return schedule


def _warmup(value: Any, key: str, draft: Draft) -> object:
    steps = draft.named("warmup_steps")
    if "ratio" in key and steps is not None and float(draft.flat[steps]) > 0:
        raise Same("warmup_steps overrides it")
    if "steps" in key and "ratio" not in key and float(value) <= 0:
        raise Same("not set")
    return float(value)


def _lowest(value: object, key: str, draft: Draft) -> object:
    if "cosine" not in str(draft.value("lr_scheduler_type", "lr_scheduler", default="cosine")) and "kwargs" in key:
        raise Skip("the schedule has no lowest rate")
    return value


def _every(value: object, key: str, draft: Draft) -> object:
    if isinstance(value, float) and 0 < value < 1:
        raise Skip("give a number of steps, not a share of them")
    return max(0, whole_number(value, key, -1))


def _optimiser(value: object, key: str, draft: Draft) -> object:
    name = str(value).lower().rpartition(".")[2]
    if name in ("adamw", "adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_anyprecision", "adamw_apex_fused"):
        return "adamw"
    if name in ("adamw_8bit", "adamw_bnb_8bit", "adamw8bit"):
        return "adamw8bit"
    if name == "paged_adamw_8bit":
        return "adamw8bit", "not paged to the host"
    if name in ("paged_adamw_32bit", "paged_adamw"):
        return "adamw", "not paged to the host"
    raise Skip("the optimiser is AdamW: adamw, adamw16bit or adamw8bit")


def _log(value: object, key: str, draft: Draft) -> object:
    if isinstance(value, bool):
        value = "wandb" if value else "none"
    named = [value] if isinstance(value, str) else list(value) if isinstance(value, list) else []
    sinks = [name for name in named if name in SINKS]
    if not sinks:
        if set(named) <= {"none", "all", "console"}:
            raise Same("the run store has every metric")
        raise Skip(f"the trackers are {', '.join(SINKS)}")
    for name in sinks:
        if find_spec(name) is None:
            raise Skip(f"it is not installed: pip install 'burnish[{name}]', then add log: {name}")
    return ",".join(sinks)


def _vllm(value: object, key: str, draft: Draft) -> object:
    if not value or str(value).lower() in ("false", "hf"):
        raise Same("off: burnish samples with its own engine")
    raise Skip("burnish samples with its own engine; engine: vllm uses vLLM, where it is installed")


def _dtype(value: object, key: str, draft: Draft) -> object:
    """The saved model's number format. bf16: true is about the computation, which a GPU does in bf16 anyway."""
    names = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "half": "float16"}
    name = names.get(str(value), str(value))
    if str(value).lower() in ("auto", "full", "none") or value is False:
        raise Same("a GPU computes in bf16 over fp32 weights")
    if value is True:
        if "fp16" in key:
            raise Skip("a GPU computes in bf16 over fp32 weights")
        raise Same("a GPU computes in bf16 over fp32 weights")
    if name not in names.values():
        raise Skip("the saved model is bfloat16, float16 or float32")
    return name, "of the saved model; training keeps fp32 master weights (master_weights: bfloat16 does not)"


def _reward(value: object, key: str, draft: Draft) -> object:
    """One function or several, with their weights; verl's is a path and a name."""
    if key.endswith("custom_reward_function.path"):
        name = draft.value(key.removesuffix("path") + "name", default="compute_score")
        draft.same(key.removesuffix("path") + "name", "reward: the function")
        return f"{value}:{name}"
    named = value if isinstance(value, list) else [value]
    weights_key = draft.named("reward_weights")
    weights = draft.flat[weights_key] if weights_key else [1.0] * len(named)
    rewards = []
    refused = []
    for name, weight in zip(named, weights, strict=False):
        try:
            rewards.append(f"{_function(str(name), draft)}*{weight:g}".removesuffix("*1"))
        except Skip as skip:
            refused.append(f"{name}: {skip}")
    if not rewards:
        raise Skip(refused[0].partition(": ")[2])
    draft.same(weights_key, "reward: weights")
    return ",".join(rewards), "; ".join(refused)


def _function(name: str, draft: Draft) -> str:
    """path/to/file.py:function: of the script that is imported, of a file, or of a module beside the configuration."""
    if ".py:" in name:
        return name
    if name in draft.given.rewards:
        if draft.rewards_file is None:
            raise Skip("its source is in the script; with -o ours.yaml it is written to ours_rewards.py")
        return f"{draft.rewards_file}:{name}"
    module, _, function = name.rpartition(".")
    file = draft.folder / f"{module.replace('.', '/')}.py"
    if not module or not file.is_file():
        raise Skip("the task's own verifier scores replies; a function is --reward path/to/file.py:function")
    return f"{file}:{function}"


def _template(value: object, key: str, draft: Draft) -> object:
    if str(value) in ("chatml", "plain", "none") or os.path.isfile(str(value)):
        return value
    if str(value) in ("tokenizer_default", "default", "empty"):
        raise Same("the model's own chat template")
    raise Skip("the model's own chat template is used; chat_template takes a file with a Jinja template")


def _critic_lr(value: Any, key: str, draft: Draft) -> object:
    rate = draft.value("actor_rollout_ref.actor.optim.lr", "learning_rate", default=1e-6)
    return float(f"{float(value) / float(rate):.6g}"), "a factor of the policy's learning rate"


def _on(value: object, key: str, draft: Draft) -> object:
    if str(value).lower() in ("false", "none", "off", ""):
        raise Same("off, here too")
    return "offload" if "offload" in key else "recompute"


def _thinking(value: object, key: str, draft: Draft) -> object:
    return f"enable_thinking={str(value).lower()}"


def _critic(value: object, key: str, draft: Draft) -> object:
    if value == draft.value("actor_rollout_ref.model.path"):
        raise Same("the critic starts from the policy's model")
    raise Skip("the critic starts from the policy's model; critic takes a model with a head of one output")


def _merge(value: object, key: str, draft: Draft) -> object:
    if "4bit" in str(value):
        raise Skip("merged weights are saved in 16 or 32 bits: merge")
    return truth(value) or "merged" in str(value)


def _best(value: object, key: str, draft: Draft) -> object:
    if not truth(value):
        raise Same("off, here too")
    return "best"


def _cpu(value: object, key: str, draft: Draft) -> object:
    if not truth(value):
        raise Same("off, here too")
    return "cpu"


def _always(why: str) -> Callable[[object, str, Draft], object]:
    def call(value: object, key: str, draft: Draft) -> object:
        raise Same(why)

    return call


def _chosen(how: str) -> Callable[[object, str, Draft], object]:
    def call(value: object, key: str, draft: Draft) -> object:
        raise Differs(how)

    return call


def _needs_resume(value: object, key: str, draft: Draft) -> object:
    if not value or str(value).lower() in ("false", "none", "null"):
        raise Same("off, here too")
    raise Skip("burnish train --resume RUN resumes a run")


_CONVERT: dict[str, Callable[[object, str, Draft], object]] = {
    "steps": _steps,
    "epochs": _epochs,
    "lr_schedule": _schedule,
    "lr_warmup": _warmup,
    "lr_min": _lowest,
    "save_every": _every,
    "eval_every": _every,
    "optimiser": _optimiser,
    "log": _log,
    "engine": _vllm,
    "dtype": _dtype,
    "reward": _reward,
    "chat_template": _template,
    "critic_lr": _critic_lr,
    "critic": _critic,
    "template_option": _thinking,
    "checkpoint_activations": _on,
    "device": _cpu,
    "merge": _merge,
    "product": _best,
    "packed": _always("rows are always packed, which cannot change the gradient"),
    "kv_gib": _chosen("the KV cache is sized by the free memory (kv_gib)"),
    "token_budget": _chosen("micro-batches are chosen by memory (token_budget) and cannot change the gradient"),
    "resume": _needs_resume,
}
