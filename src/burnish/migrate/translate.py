"""Translation of a configuration of TRL, LLaMA-Factory, Axolotl, Unsloth or verl into options of burnish.

Their options become ours by the table in config/words.py; their values are converted in migrate/converted.py; here are
those that belong together: method, batch size, loss, defaults. What has no counterpart is listed with the reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burnish.config.options import Options, configure, method_fields
from burnish.config.words import find, normalised
from burnish.methods.table import METHODS, load_all
from burnish.methods.table import find as find_method
from burnish.migrate.converted import Context, Flat, Skip, converted, whole_number

# LLaMA-Factory's stage and pref_loss, Axolotl's rl, verl's adv_estimator, TRL's trainer and loss_type -> our method
METHOD_NAMES = {
    "pt": "sft",
    "rm": "reward_model",
    "reward": "reward_model",
    "sigmoid": "dpo",
    "gae": "ppo",
    "on_policy": "opd",
    "reinforce_plus_plus": "reinforce_pp",
    "reinforce_plus_plus_baseline": "reinforce_pp_baseline",
    "dr_grpo": "dr_grpo",
    "grpo_passk": "grpo",
    "onlinedpo": "online_dpo",
    "nashmd": "nash_md",
}
_TOKEN_MEAN = {"dapo", "bnpo", "token-mean"}  # losses that are GRPO's with a mean over tokens

# Their defaults where they train something else than ours would, by library and method ("" for any method)
DEFAULTS: dict[str, dict[str, Flat]] = {
    "TRL": {
        "": {"lr_schedule": "linear", "epochs": 3, "batch": 8},
        "grpo": {"lr": 1e-6, "n": 8, "beta": 0.0, "max_new_tokens": 256},
        "rloo": {"lr": 1e-6, "n": 2, "beta": 0.05, "max_new_tokens": 256},
        "dpo": {"lr": 1e-6},
        "sft": {"lr": 2e-5},
        "reward_model": {"lr": 1e-4},
    },
    "LLaMA-Factory": {"": {"lr": 5e-5, "lr_schedule": "linear", "epochs": 3, "batch": 8}},
    "Axolotl": {"": {"lr_schedule": "cosine", "epochs": 1, "batch": 1}},
    "verl": {"": {"lr": 1e-6, "n": 1, "max_new_tokens": 512, "batch": 1024, "epochs": 30, "beta": 0.0, "kl": 0.0}},
}


@dataclass
class Translation:
    """Our options, and what was left out: (their option, its value, the reason)."""

    library: str
    method: str
    options: Flat = field(default_factory=dict)
    left_out: list[tuple[str, Any, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def translate(given: Mapping[str, Any], method: str | None = None, folder: Path | None = None) -> Translation:
    """Translate options of another library. method: ours, where the file does not say; folder: of the file."""
    load_all()
    flat = flattened(given)
    library = library_of(flat)
    name, used = _method(flat, method)
    result = Translation(library, name)
    known = {*method_fields(find_method(name)), *(f.name for f in dataclasses.fields(Options))}
    context = Context(flat, folder or Path(), name, known)
    for key, value in flat.items():
        if key not in used:
            _one(context, key, value, result)
    _defaults(context, result)
    _batch(context, result)
    _loss(flat, result)
    _checked(result)
    return result


def flattened(given: Mapping[str, Any], prefix: str = "") -> Flat:
    """Nested mappings as dotted names: {"data": {"seed": 1}} is {"data.seed": 1}."""
    flat: Flat = {}
    for key, value in given.items():
        name = f"{prefix}{normalised(str(key))}"
        flat |= flattened(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat


def library_of(flat: Flat) -> str:
    """The library that a configuration is for, by the options that only it has."""
    if any(key.startswith(("actor_rollout_ref.", "algorithm.adv_estimator")) for key in flat):
        return "verl"
    if "base_model" in flat:
        return "Axolotl"
    return "LLaMA-Factory" if {"stage", "finetuning_type", "cutoff_len"} & flat.keys() else "TRL"


def _method(flat: Flat, given: str | None) -> tuple[str, set[str]]:
    """Our method, and the options that said so."""
    losses = ("loss_type", "trl.loss_type")
    keys = ("method", "algorithm.adv_estimator", "rl", "pref_loss", "stage", *losses)
    used = {key for key in keys if key in flat}
    if given:
        return given, used
    for key in (key for key in keys if flat.get(key)):
        value = flat[key][0] if isinstance(flat[key], list) else flat[key]
        word = str(value).lower()
        if key in losses and word in _TOKEN_MEAN:
            return "grpo", used
        ours = METHOD_NAMES.get(word, word)
        if ours in METHODS and (key != "pref_loss" or word != "sigmoid"):
            return ours, used
        if word not in ("sigmoid", "none"):
            raise ValueError(
                f"{key} {word!r} is no method of burnish; say which one to take instead: --method NAME (burnish "
                "methods lists them)"
            )
    if {"num_generations", "reward_funcs", "max_completion_length", "num_iterations"} & flat.keys():
        return "grpo", used
    return ("dpo" if {"beta", "pref_beta", "precompute_ref_log_probs"} & flat.keys() else "sft"), used


def _one(context: Context, key: str, value: Any, result: Translation) -> None:
    """Translate one option into `result`."""
    if key in _BATCH or key in _ELSEWHERE or value is None:
        return
    word = find(key)
    last = key.rpartition(".")[2]
    if last in context.known and (word is None or not word.ours):
        ours: str | None = last
    elif word is None:
        result.left_out.append((key, value, "burnish has no such option"))
        return
    elif word.why:
        if value is not False:
            result.left_out.append((key, value, word.why))
        return
    else:
        ours = next((one for one in word.ours if one in context.known), None)
        ours = None if word.ours[0] == "epochs" != ours else ours  # so many epochs are not so many steps
        if ours is None and word.ours[0] not in _SILENT:
            result.left_out.append((key, value, f"{context.method} has no option {word.ours[0]!r}"))
    if ours is None:
        return
    try:
        result.options[ours] = converted(ours, value, key, context)
    except Skip as skip:
        if str(skip):
            result.left_out.append((key, value, str(skip)))


# options that `_batch`, `_lora`, `_task` or `_loss` read together with others
_BATCH = {"per_device_train_batch_size", "gradient_accumulation_steps", "micro_batch_size", "data.train_batch_size"}
_BATCH |= {"generation_batch_size", "train_batch_size", "steps_per_generation"}
_ELSEWHERE = {"finetuning_type", "adapter", "use_peft", "use_lora", "dataset_config", "dataset_dir", "scale_rewards"}
_ELSEWHERE |= {"actor_rollout_ref.actor.use_kl_loss", "algorithm.use_kl_in_reward", "custom_reward_function.name"}
_ELSEWHERE |= {"actor_rollout_ref.actor.loss_agg_mode", "trl.scale_rewards", "trl.use_vllm"}
_ELSEWHERE |= {"reward_weights", "trl.reward_weights"}
_ELSEWHERE |= {"epsilon_high", "actor_rollout_ref.actor.clip_ratio_high"}
_SILENT = {"token_budget"}


def _defaults(context: Context, result: Translation) -> None:
    """Write their defaults where the file leaves them out and ours differ."""
    table = DEFAULTS[result.library]
    family = (
        "grpo" if result.library == "TRL" and "n" in context.known and result.method not in table else result.method
    )
    written = []
    for key, value in {**table[""], **table.get(family, {})}.items():
        if key == "epochs" and "steps" in result.options:
            continue
        if key in context.known and key not in result.options:
            result.options[key] = value
            written.append(f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}")
    if written:
        result.notes.append(f"not in the file, so {result.library}'s defaults are written: {', '.join(written)}")


def _batch(context: Context, result: Translation) -> None:
    """prompts = samples per optimiser step (per device x accumulation), divided by n where a sample is a reply."""
    names: Flat = {key.rpartition(".")[2]: value for key, value in context.flat.items() if value is not None}
    if result.library == "verl":
        size = names.get("train_batch_size", DEFAULTS["verl"][""]["batch"])
        result.options["prompts"] = whole_number(size, "data.train_batch_size")
        return
    words = ("per_device_train_batch_size", "micro_batch_size", "train_batch_size")
    named = next((word for word in words if word in names), "")
    one = whole_number(names.get(named, DEFAULTS[result.library][""]["batch"]), named)
    many = names.get("gradient_accumulation_steps", 1)
    many = 1 if many == "auto" else whole_number(many, "gradient_accumulation_steps")
    rows = one * many
    if "generation_batch_size" in names:
        rows = whole_number(names["generation_batch_size"], "generation_batch_size")
    n = whole_number(result.options.get("n", 1), "the number of replies to a prompt")
    result.options["prompts"] = max(1, rows // n)
    said = f"{one} x {many} accumulated" if "generation_batch_size" not in names else f"{rows}"
    divided = f", divided by n = {n}" if n > 1 else ""
    result.notes.append(f"prompts {result.options['prompts']}: a batch of {said} on one device{divided}")


def _loss(flat: Flat, result: Translation) -> None:
    """How TRL and verl average GRPO's loss and scale its advantages, as parts that replace GRPO's own (--swap)."""
    words = {str(flat.get(key)) for key in ("loss_type", "trl.loss_type", "actor_rollout_ref.actor.loss_agg_mode")}
    high = flat.get("epsilon_high", flat.get("actor_rollout_ref.actor.clip_ratio_high"))
    scale = flat.get("scale_rewards", flat.get("trl.scale_rewards"))
    swaps = []
    if high is not None and "eps_high" in method_fields(find_method(result.method)):
        result.options["eps_high"] = high
    elif result.method == "grpo" and (words & _TOKEN_MEAN or high is not None):
        low = result.options.pop("eps", 0.2)
        swaps.append(f"pg=pg_clip({low}, {high if high is not None else low})")  # its norm is the token mean
    elif high is not None:
        result.left_out.append(("epsilon_high", high, f"{result.method} has no option 'eps_high'"))
    if result.method == "grpo" and str(scale).lower() in ("false", "none") and scale is not None:
        swaps.append("group_relative=group_relative(std=False)")
    if swaps:
        result.options["swap"] = "; ".join(swaps)
        if result.options.get("beta"):
            result.notes.append("the KL term stays a mean over replies")


def _checked(result: Translation) -> None:
    """Move options that burnish refuses to the left-out ones, so that the file can be run."""
    entry = find_method(result.method)
    for key, value in list(result.options.items()):
        try:
            config = configure(entry, result.method, {key: value, **_needed(entry, key)})
            result.options[key] = config.to_dict()[key]  # as a number, where the file has text such as 1e-6
        except ValueError as error:
            del result.options[key]
            result.left_out.append((key, value, str(error)))


def _needed(entry: Any, key: str) -> Flat:
    """Values for the arguments without a default, so that one option can be checked alone."""
    return {name: "tiny" for name, p in method_fields(entry).items() if p.default is p.empty and name != key}
