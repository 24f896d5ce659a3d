"""Batch, steps and epochs: theirs count samples, completions or prompts; ours are prompts and updates of a step."""

from __future__ import annotations

from typing import Any

from burnish.config.options import method_fields
from burnish.methods.table import find
from burnish.migrate.draft import Draft
from burnish.util.failures import shown

_PER_DEVICE = ("per_device_train_batch_size", "micro_batch_size", "train_batch_size")
_ACTOR = "actor_rollout_ref.actor."


def whole_number(value: Any, key: str, least: int = 1) -> int:
    """A number of the file that others are computed from; ValueError for what is none."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = least - 1
    if number < least or isinstance(value, bool):
        raise ValueError(f"{key} is {shown(value)}; it must be a whole number of at least {least}")
    return number


def batches(draft: Draft, default: int) -> None:
    """prompts, minibatches and ranks; and steps, where theirs are updates."""
    if draft.library == "verl":
        _of_verl(draft, default)
        return
    key = draft.named(*_PER_DEVICE)
    one = whole_number(draft.flat[key] if key else default, key or "the batch size")
    more_key = draft.named("gradient_accumulation_steps")
    more = draft.flat[more_key] if more_key else 1
    more = 1 if more == "auto" else whole_number(more, "gradient_accumulation_steps")
    devices = draft.given.devices or 1
    rows = one * more * devices
    told = f"{one} x {more} accumulated x {devices} devices" if devices > 1 else f"{one} x {more} accumulated"
    n = whole_number(draft.options.get("n", 1), "the number of replies to a prompt")
    grouped = draft.method in ("online_dpo", "ppo", "nash_md", "xpo", "gkd")  # their batches count prompts
    sampled, updates = _generations(draft, rows, one * devices)
    if draft.method == "ppo":
        splits = whole_number(draft.value("num_mini_batches", "ppo_buffer_size", default=1), "num_mini_batches")
        sampled, updates = rows * splits, splits
        draft.same(draft.named("num_mini_batches", "ppo_buffer_size"), f"minibatches {splits}, of {rows} prompts each")
    draft.options["prompts"] = max(1, sampled if grouped else sampled // n)
    how = f"prompts {draft.options['prompts']}: a batch of {told}"
    how += "" if devices > 1 else " on one device"
    how += f" x {updates} updates" if updates > 1 else ""
    how += f", divided by n = {n}" if n > 1 and not grouped else ""
    draft.notes.append(how)
    packed = _packing(draft)
    for name in (key, more_key):
        draft.changed(name, f"prompts {draft.options['prompts']}{packed}")
    if updates > 1:
        if "minibatches" in draft.known:
            draft.options["minibatches"] = updates
        else:
            draft.notes.append(f"{draft.method} makes one update of a batch, where theirs makes {updates}")
    _steps(draft, updates)
    if draft.given.devices and draft.given.devices > 1:
        draft.options["ranks"] = draft.given.devices


def _generations(draft: Draft, rows: int, one: int) -> tuple[int, int]:
    """Completions that TRL generates at once, and the updates that it makes of them."""
    size, many = draft.named("generation_batch_size"), draft.named("steps_per_generation")
    sampled = rows
    if size is not None:
        sampled = whole_number(draft.flat[size], size)
    elif many is not None:
        sampled = one * whole_number(draft.flat[many], many)
    updates = max(1, sampled // rows)
    for name in (size, many):
        if name is not None and "minibatches" in draft.known:
            draft.same(name, f"minibatches {updates}")
        elif name is not None and updates > 1:
            draft.leave(name, f"{draft.method} makes one update of a batch")
        else:
            draft.same(name, "one update of a batch")
    return sampled, updates


def _steps(draft: Draft, updates: int) -> None:
    """TRL counts updates: of a batch it makes num_iterations x the updates of one pass."""
    key = draft.named("max_steps")
    passes = draft.value("num_iterations", default=1) if "updates" in draft.known else 1
    each = updates * whole_number(passes, "num_iterations") if "n" in draft.known and draft.method != "ppo" else 1
    if key is None or whole_number(draft.flat[key], key, -1) <= 0 or each <= 1:
        return
    steps = max(1, whole_number(draft.flat[key], key) // each)
    draft.lines.pop(key, None)
    draft.carry(key, "steps", steps, f"{steps}, because theirs are updates and a step makes {each}")


def _packing(draft: Draft) -> str:
    """A caution where a batch of theirs holds packed blocks; ours holds rows."""
    key = draft.named("packing", "sample_packing", "neat_packing")
    on = key is not None and str(draft.flat[key]).lower() in ("true", "1", "yes")
    for name in ("packing", "sample_packing", "neat_packing"):
        if draft.named(name) and on:
            apart = (
                ""
                if draft.library != "LLaMA-Factory" or draft.named("neat_packing")
                else ("; rows never see each other, as with neat_packing")
            )
            draft.changed(
                draft.named(name),
                f"rows are always packed in a micro-batch, without changing the gradient; prompts counts rows, where "
                f"theirs counts blocks of several rows{apart}",
            )
        else:
            draft.same(draft.named(name), "off: packing cannot change our gradient, so it stays on")
    return " rows, where theirs counts packed blocks" if on else ""


def _of_verl(draft: Draft, default: int) -> None:
    """verl's train_batch_size counts prompts, and so does ppo_mini_batch_size, which makes several updates."""
    key = draft.named("data.train_batch_size")
    prompts = whole_number(draft.flat[key] if key else default, "data.train_batch_size")
    draft.options["prompts"] = prompts
    draft.same(key, "prompts: it counts prompts, each with n replies" if draft.method != "sft" else "prompts")
    draft.notes.append(f"prompts {prompts}: data.train_batch_size counts prompts")
    small = draft.named(f"{_ACTOR}ppo_mini_batch_size")
    if draft.method != "sft":
        size = whole_number(draft.flat[small] if small else min(256, prompts), "ppo_mini_batch_size")
        updates = max(1, prompts // size)
        usual = method_fields(find(draft.method)).get("minibatches")
        if "minibatches" in draft.known:
            if small or (usual is not None and usual.default != updates):
                draft.options["minibatches"] = updates
            draft.same(small, f"minibatches {updates}: {size} of {prompts} prompts each")
        elif updates > 1 and small:
            draft.leave(small, f"{draft.method} makes one update of a batch, where theirs makes {updates}")
        elif updates > 1:
            draft.notes.append(
                f"{draft.method} makes one update of a batch, where theirs makes {updates} (mini-batches of 256)"
            )
        draft.same(small, "one update of a batch")
    gpus, nodes = draft.named("trainer.n_gpus_per_node"), draft.named("trainer.nnodes")
    many = whole_number(draft.flat[nodes], "trainer.nnodes") if nodes else 1
    if many > 1:
        draft.leave(nodes, "several machines are started by torchrun (docs/multi-gpu.md); ranks is for one machine")
    draft.same(nodes, "one machine")
    if gpus is not None:
        draft.carry(gpus, "ranks", whole_number(draft.flat[gpus], gpus))
    elif draft.given.devices and draft.given.devices > 1:
        draft.options["ranks"] = draft.given.devices
