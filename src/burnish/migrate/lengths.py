"""Which tokens are trained on, and what happens to rows that are too long."""

from __future__ import annotations

from burnish.migrate.batches import whole_number
from burnish.migrate.draft import Draft, truth

DEMOS = ("sft", "dft", "neftune", "hft")
_LENGTHS = ("max_length", "max_seq_length", "max_seq_len", "cutoff_len", "sequence_len", "data.max_length")
_PROMPTS = ("max_prompt_length", "data.max_prompt_length")
_REPLIES = ("max_completion_length", "data.max_response_length", "response_length", "max_new_tokens")


def lengths(draft: Draft) -> None:
    """Set max_length and on_long."""
    prompt, whole = draft.named(*_PROMPTS), draft.named(*_LENGTHS)
    if prompt is not None and "n" in draft.known:
        longest = draft.value(*_REPLIES, default=512 if draft.library == "verl" else 256)
        both = whole_number(draft.flat[prompt], prompt) + whole_number(longest, "the longest reply")
        draft.carry(prompt, "max_length", both, f"{both}: with the longest reply, because ours is of both")
        draft.changed(whole, "max_length is that of the longest prompt and the longest reply")
    elif prompt is not None and whole is None:
        draft.leave(prompt, "max_length is of prompt and reply together; there is none for a prompt alone")
    elif whole is not None:
        draft.carry(whole, "max_length", draft.flat[whole])
        draft.leave(prompt, "max_length is of prompt and reply together; there is none for a prompt alone")
    for key in (*_LENGTHS, "max_model_length", "vllm_max_model_length"):
        draft.same(draft.named(key), "max_length holds for the run")
    _long(draft)
    _overlong(draft)


def _long(draft: Draft) -> None:
    """Theirs truncate rows; Axolotl and TRL's RewardTrainer drop them."""
    for key in ("excess_length_strategy", "data.truncation", "truncation_mode"):
        if draft.named(key):
            word = str(draft.flat[key])
            ours = {"drop": "drop", "truncate": "truncate", "raise": "stop", "error": "stop"}.get(word, "truncate")
            how = (
                ""
                if word in ("drop", "error", "raise", "truncate")
                else ("truncate: replies are cut at their end, prompts at their beginning")
            )
            draft.carry(key, "on_long", ours, how)
    drops = draft.named("data.filter_overlong_prompts")
    if drops is not None:
        if truth(draft.flat[drops]):
            draft.options["on_long"] = "drop"
            draft.same(drops, "on_long drop")
        draft.same(drops, "off, here too")
    if "on_long" in draft.options:
        return
    if "max_length" not in draft.options:
        return
    if draft.library == "Axolotl" or (draft.method == "reward_model" and draft.library in ("TRL", "Unsloth")):
        draft.options["on_long"] = "drop"
    else:
        draft.options["on_long"] = "stop" if draft.library == "verl" else "truncate"


def _overlong(draft: Draft) -> None:
    """verl's buffer before the longest reply, in which a reply loses up to 1, is the shape `overlong`."""
    place = next(
        (
            p
            for p in ("reward_model.overlong_buffer.", "reward_model.reward_kwargs.overlong_buffer_cfg.")
            if draft.named(f"{p}enable")
        ),
        None,
    )
    if place is None:
        return
    names = [f"{place}{name}" for name in ("enable", "len", "penalty_factor", "log")]
    if not truth(draft.flat[names[0]]):
        for name in names:
            draft.same(name, "off, here too")
        return
    longest = whole_number(draft.value(*_REPLIES, default=512), "the longest reply")
    share = whole_number(draft.value(names[1], default=0), names[1]) / longest
    draft.options["shape"] = f"overlong({share:g}, weight={float(draft.value(names[2], default=1.0)):g})"
    for name in names:
        draft.same(name, f"shape: {draft.options['shape']}")


def masks(draft: Draft) -> None:
    """Set train_on, for methods that imitate demonstrations."""
    if draft.method not in DEMOS:
        for key in (
            "assistant_only_loss",
            "completion_only_loss",
            "train_on_inputs",
            "train_on_prompt",
            "mask_history",
        ):
            draft.same(draft.named(key), f"{draft.method} trains on replies alone")
        return
    everything, why = _everything(draft)
    draft.options["train_on"] = everything
    if why:
        draft.notes.append(f"train_on {everything}: {why}")


def _everything(draft: Draft) -> tuple[str, str]:
    """train_on, and what to say of it where no field says it."""
    on = draft.value
    if draft.library in ("LLaMA-Factory", "Axolotl"):
        for key in ("train_on_inputs", "train_on_prompt"):
            if draft.named(key):
                draft.same(
                    draft.named(key), "train_on everything" if truth(draft.flat[key]) else "train_on all replies"
                )
        if draft.named("mask_history"):
            draft.same("mask_history", "train_on last" if truth(draft.flat["mask_history"]) else "train_on all replies")
        if truth(on("train_on_inputs")) or truth(on("train_on_prompt")):
            return "everything", ""
        return ("last" if truth(on("mask_history")) else "all"), ""
    if draft.library == "verl":
        return "all", ""
    for key in ("train_on_responses_only", "assistant_only_loss"):
        if truth(on(key)):
            draft.same(key, "train_on all replies")
            draft.same("assistant_only_loss", "train_on all replies")
            draft.same("completion_only_loss", "train_on all replies")
            return "all", ""
    only = draft.named("completion_only_loss")
    if only is not None:
        replies = truth(draft.flat[only])
        draft.same(only, "train_on all: the completion" if replies else "train_on everything")
        draft.same("assistant_only_loss", "off: train_on says what is trained on")
        return ("all" if replies else "everything"), ""
    draft.same("assistant_only_loss", "train_on everything")
    return "everything", (
        "TRL trains on every token of conversations and texts; where the rows have prompt and completion it trains on "
        "completions alone: then write train_on: all"
    )
