"""Translation of a configuration of TRL, LLaMA-Factory, Axolotl, Unsloth or verl into options of burnish.

Every field of theirs gets one line: carried, carried differently (how), or not carried (why). What belongs together is
decided together: method (choice.py), data (datasets.py), batch and steps (batches.py), adapters, lengths and masks,
loss (losses.py). The rest goes by the table in config/words.py, with values converted in converted.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burnish.config.options import Options, configure, method_fields
from burnish.config.words import find, table
from burnish.methods.table import Entry, load_all
from burnish.methods.table import find as find_method
from burnish.migrate.adapters import adapters
from burnish.migrate.batches import batches
from burnish.migrate.choice import choose
from burnish.migrate.converted import converted
from burnish.migrate.datasets import tasks
from burnish.migrate.defaults import BATCH, defaults
from burnish.migrate.draft import (
    CARRIED,
    CHANGED,
    LEFT,
    Differs,
    Draft,
    Flat,
    Given,
    Kind,
    Line,
    Same,
    Skip,
    Unread,
    flattened,
)
from burnish.migrate.lengths import lengths, masks
from burnish.migrate.losses import losses
from burnish.migrate.pictures import pictures, refuse_sound
from burnish.util.failures import said, shown


@dataclass
class Translation:
    """Our options, and a line for each field of theirs."""

    library: str
    method: str
    options: Flat = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def of(self, kind: Kind) -> list[Line]:
        return [line for line in self.lines if line.kind == kind]


def translate(
    given: Mapping[str, object] | Given,
    method: str | None = None,
    folder: Path | None = None,
    rewards_file: str | None = None,
) -> Translation:
    """Translate options of another library.

    given: nested or flat options, or a file that was read; method: ours, where the file does not say
    folder: of the file; rewards_file: where reward functions of a script will be written
    """
    load_all()
    read = given if isinstance(given, Given) else Given(flattened(given))
    draft = Draft(read, read.library or library_of(read.flat), folder or Path(), rewards_file=rewards_file)
    refuse_sound(draft)
    _unread(draft)
    try:
        _decide(draft, method)
    except (TypeError, AttributeError, LookupError, ArithmeticError) as error:
        raise ValueError(f"a field has a value that cannot be translated ({said(error)}); correct it") from None
    _checked(draft)
    lines = [*draft.lines.values(), *read.lines]
    return Translation(draft.library, draft.method, draft.options, lines, draft.notes)


def _decide(draft: Draft, method: str | None) -> None:
    """Say of every field what becomes of it, those first that others depend on."""
    draft.method = choose(draft, method)
    entry = find_method(draft.method)
    draft.known = frozenset({*method_fields(entry), *(f.name for f in dataclasses.fields(Options))})
    tasks(draft)
    for step in (adapters, pictures, lengths, masks):
        step(draft)
    for key in list(draft.flat):
        if key not in draft.lines and key not in _TOGETHER:
            _one(draft, key)
    defaults(draft)
    losses(draft)
    batches(draft, BATCH[draft.library])
    for key in list(draft.flat):  # what no part has decided
        _one(draft, key)


def library_of(flat: Flat) -> str:
    """The library that a configuration is for, by the options that only it has."""
    if any(key.startswith(("actor_rollout_ref.", "algorithm.adv_estimator", "data.train_batch_size")) for key in flat):
        return "verl"
    if "model.partial_pretrain" in flat:
        return "verl"
    if "base_model" in flat:
        return "Axolotl"
    return "LLaMA-Factory" if {"stage", "finetuning_type", "cutoff_len"} & flat.keys() else "TRL"


def _unread(draft: Draft) -> None:
    """Fields without a value, and those whose value only a run of the script knows."""
    for key, value in draft.flat.items():
        if isinstance(value, Unread):
            draft.leave(key, "its value is known only while the script runs")
        elif value is None or value == {} or value == []:
            draft.same(key, "not set")


# fields that `losses` and `batches` decide after the table has set the options that they need
_WORDS = """
    per_device_train_batch_size gradient_accumulation_steps micro_batch_size data.train_batch_size
    generation_batch_size train_batch_size steps_per_generation num_mini_batches ppo_buffer_size packing
    sample_packing neat_packing trainer.nnodes trainer.n_gpus_per_node actor_rollout_ref.actor.ppo_mini_batch_size
    actor_rollout_ref.actor.loss_agg_mode actor_rollout_ref.actor.use_kl_loss actor_rollout_ref.actor.kl_loss_coef
    actor_rollout_ref.actor.kl_loss_type actor_rollout_ref.actor.clip_ratio actor_rollout_ref.actor.clip_ratio_low
    actor_rollout_ref.actor.clip_ratio_high actor_rollout_ref.actor.clip_ratio_c algorithm.use_kl_in_reward
    algorithm.kl_ctrl.kl_coef algorithm.kl_ctrl.type algorithm.norm_adv_by_std_in_grpo scale_rewards epsilon
    epsilon_high delta cliprange label_smoothing dpo_label_smoothing cpo_label_smoothing rpo_alpha pref_ftx
    loss_weights desirable_weight kto_chosen_weight kto_desirable_weight undesirable_weight kto_rejected_weight
    kto_undesirable_weight simpo_gamma cpo_alpha discopop_tau center_rewards_coefficient sapo_temperature_pos
    sapo_temperature_neg reward_weights custom_reward_function.name reward.custom_reward_function.name
"""
_TOGETHER = frozenset(_WORDS.split())
_TOGETHER |= frozenset(f"trl.{name}" for name in _TOGETHER)


def _one(draft: Draft, key: str) -> None:
    """Decide one field by the table of words."""
    value = draft.flat[key]
    if key in draft.lines:
        return
    try:
        special = _of_another(draft, key, value) or _special(draft, key, value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{key} is {shown(value)}, which cannot be translated ({said(error)}); correct it") from None
    if special is not None:
        draft.said(key, *special)
        return
    word = find(key)
    last = key.rpartition(".")[2]
    if word is None or not word.ours:
        if last in draft.known and last not in ("model", "method", "task"):
            ours = last
        elif word is None:
            draft.leave(key, "burnish has no such option")
            return
        else:
            off = value is False or str(value).lower() == "false"
            (draft.same if off else draft.leave)(key, "off, here too" if off else word.why)
            return
    else:
        ours = next((one for one in word.ours if one in draft.known), "")
        ours = "" if word.ours[0] == "epochs" != ours else ours  # so many epochs are not so many steps
        if not ours:
            draft.leave(key, f"{draft.method} has no option {word.ours[0]!r}")
            return
    try:
        translated, how = converted(ours, value, key, draft)
        if ours in draft.options and draft.options[ours] != translated and ours not in ("chat_template",):
            draft.changed(key, f"{ours} is {draft.options[ours]}, from another field")
            return
        draft.carry(key, ours, translated, how)
    except Same as same:
        draft.same(key, str(same))
    except Differs as differs:
        draft.changed(key, str(differs))
    except Skip as skip:
        draft.leave(key, str(skip))


_OTHERS = ("critic.", "actor_rollout_ref.ref.", "reward_model.", "actor_rollout_ref.rollout.val_kwargs.")
_EVALUATED = {"temperature": "eval_temperature", "n": "eval_k"}
_HARMLESS = ("token_budget", "packed", "kv_gib")


def _of_another(draft: Draft, key: str, value: object) -> tuple[Kind, str] | None:
    """verl's fields of the critic, the reference, the reward model and the evaluation: they do not set the policy's."""
    prefix = next((one for one in _OTHERS if key.startswith(one)), None)
    if draft.library != "verl" or prefix is None or key in table():
        return None
    last, word = key.rpartition(".")[2], find(key)
    if word is not None and (not word.ours or word.ours[0] in _HARMLESS):
        return None
    if prefix.endswith("val_kwargs."):
        if last in _EVALUATED:
            draft.options[_EVALUATED[last]] = value
            return CARRIED, _EVALUATED[last]
        return LEFT, "held-out replies are sampled from the whole distribution, beside a greedy one"
    for place in ("actor_rollout_ref.actor.", "actor_rollout_ref."):
        if str(draft.flat.get(place + key.removeprefix(prefix))) == str(value):
            return CARRIED, "that of the policy, here too"
    return LEFT, "it is that of the policy here, or burnish has no such option"


def _special(draft: Draft, key: str, value: Any) -> tuple[Kind, str] | None:
    """Fields whose meaning depends on their value alone; None for any other."""
    last = key.rpartition(".")[2]
    if last in ("top_p", "top_k", "min_p", "repetition_penalty", "do_sample"):
        off = {
            "top_p": (1, 1.0),
            "top_k": (0, -1),
            "min_p": (0, 0.0),
            "repetition_penalty": (1, 1.0),
            "do_sample": (True, "true", "True"),
        }[last]
        return (CARRIED, "off, here too") if value in off else None
    if last == "adam_beta1" or last == "adam_beta2" or last == "adam_epsilon":
        ours = {"adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8}[last]
        return (CARRIED, "AdamW's, here too") if float(value) == ours else (LEFT, f"AdamW's is {ours:g}")
    if last == "beta" and last not in draft.known:
        none = value in (0, 0.0, "0")
        return (CARRIED, "off, here too") if none else (LEFT, f"{draft.method} has no option 'beta'")
    if last in ("entropy_coeff", "entropy_coef", "critic_warmup", "ld_alpha"):
        return (CARRIED, "off, here too") if value in (0, 0.0, "0", "0.0") else None
    if last == "dataset_text_field":
        if value == "text":
            return CARRIED, "found by its name"
        if draft.options.get("task") and "," not in str(draft.options["task"]):
            draft.options["task"] += f",text={value}"
            return CARRIED, f"task: text={value}"
    if last == "multi_objective_aggregation" and value == "sum_then_normalize":
        return CARRIED, "rewards are summed with their weights, then compared within the group"
    if last == "top_entropy_quantile" and float(value) == 1:
        return CARRIED, "off, here too"
    if last == "precompute_ref_log_probs":
        return CARRIED, "the reference's log-probs are computed once and kept"
    if last == "f_divergence_type" and value == "reverse_kl":
        return CARRIED, "the reverse KL"
    if last == "disable_dropout":
        return (CARRIED, "dropout is off") if value in (True, "true", "True") else None
    if last == "chat_template_name":
        if value == "chatml":
            draft.options["chat_template"] = "chatml"
            return CARRIED, "chat_template chatml"
        return LEFT, "the model's own chat template is used; chat_template takes a file with a Jinja template"
    return None


def _checked(draft: Draft) -> None:
    """Move options that burnish refuses to the fields that are not carried, so that the file can be run."""
    entry = find_method(draft.method)
    for key, value in list(draft.options.items()):
        try:
            config = configure(entry, draft.method, {key: value, **_needed(entry, key)})
            draft.options[key] = config.to_dict()[key]  # as a number, where the file has text such as 1e-6
        except ValueError as error:
            del draft.options[key]
            named = [name for name, line in draft.lines.items() if line.text.split(":")[0].split(" ")[0] == key]
            for name in named:
                draft.lines[name] = dataclasses.replace(draft.lines[name], kind=LEFT, text=str(error))
            if not named:
                draft.notes.append(f"{key} {value} is left out: {error}")


def _needed(entry: Entry, key: str) -> Flat:
    """Values for the arguments without a default, so that one option can be checked alone."""
    return {name: "tiny" for name, p in method_fields(entry).items() if p.default is p.empty and name != key}


__all__ = ["CARRIED", "CHANGED", "LEFT", "Translation", "library_of", "translate"]
