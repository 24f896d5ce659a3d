"""LoRA: rank, scale, dropout, layers and four bits, with the defaults of the library that the file is for."""

from __future__ import annotations

from burnish.migrate.draft import Draft, truth

_RANK = ("lora_r", "lora_rank", "actor_rollout_ref.model.lora_rank", "model.lora_rank", "peft.r", "lora")
_SCALE = ("lora_alpha", "actor_rollout_ref.model.lora_alpha", "model.lora_alpha")
_DROPOUT = ("lora_dropout",)
_TARGETS = (
    "lora_target_modules",
    "target_modules",
    "lora_target",
    "actor_rollout_ref.model.target_modules",
    "model.target_modules",
)
_WHOLE = ("modules_to_save", "lora_modules_to_save", "additional_target")
_PLAIN = ("use_rslora", "use_dora", "peft_use_rslora", "peft_use_dora", "lora_use_rslora", "lora_use_dora")
_QUERY_VALUE = "q_proj,v_proj"  # PEFT's layers of Llama, Qwen, Mistral and Gemma, where none are named
_SEVEN = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
_UNTRAINED_DROPOUT = ("dpo", "kto", "ipo", "orpo", "cpo", "simpo", "reward_model", "rdpo", "exo", "nca", "bco")
# rank, alpha, dropout, layers where a file names none: by what made the adapters
_DEFAULTS: dict[str, tuple[int, int | None, float, str | None]] = {
    "TRL": (16, 32, 0.05, _QUERY_VALUE),
    "LoraConfig": (8, 8, 0.0, _QUERY_VALUE),
    "get_peft_model": (16, 16, 0.0, _SEVEN),
    "LLaMA-Factory": (8, None, 0.0, None),
    "Axolotl": (8, None, 0.0, _QUERY_VALUE),
    "verl": (8, 16, 0.0, None),
}


def adapters(draft: Draft) -> None:
    """Set lora and its relatives, or say that all weights are trained."""
    off = _full(draft)
    if off:
        for key in (*_RANK, *_SCALE, *_DROPOUT, *_TARGETS, *_WHOLE, *_PLAIN, "lora_target_linear", "lora_bias"):
            draft.same(draft.named(key), f"{off}: all weights are trained")
        if not truth(draft.value("load_in_4bit")):
            draft.same(draft.named("load_in_4bit"), "off, here too")
        for key in ("load_in_4bit", "quantization_bit"):
            draft.leave(draft.named(key), f"four bits are for frozen weights under adapters; {off}: all are trained")
        return
    made = "get_peft_model" if draft.library == "Unsloth" else draft.library
    if draft.library in ("TRL", "Unsloth") and "LoraConfig" in draft.flat:
        made = "LoraConfig"
    rank, alpha, dropout, targets = _DEFAULTS[made]
    written = []
    for names, ours, default in (
        (_RANK, "lora", rank),
        (_SCALE, "lora_alpha", alpha),
        (_DROPOUT, "lora_dropout", dropout),
    ):
        given = draft.named(*names)
        if given is not None and not isinstance(draft.flat[given], bool):
            draft.carry(given, ours, draft.flat[given])
        elif default:
            draft.options[ours] = default
            written.append(f"{ours} {default}")
    _dropout(draft)
    targets_key = draft.named(*_TARGETS)
    linear = draft.named("lora_target_linear")
    if linear is not None and truth(draft.flat[linear]):
        draft.carry(linear, "lora_targets", "all-linear")
        draft.changed(targets_key, "lora_target_linear: every linear layer")
    elif targets_key is not None:
        _targets(draft, targets_key)
    elif targets:
        draft.options["lora_targets"] = targets
        written.append(f"lora_targets {targets}")
    draft.same(linear, "off, here too")
    _variants(draft)
    _four_bits(draft)
    if written:
        draft.notes.append(f"not in the file, so the defaults of its adapters are written: {', '.join(written)}")


def _full(draft: Draft) -> str:
    """Why there are no adapters; empty if there are."""
    library = draft.library
    if library == "LLaMA-Factory":
        kind = str(draft.value("finetuning_type", default="lora"))
        if kind == "lora":
            draft.same("finetuning_type", "lora")
            return ""
        if kind == "full":
            draft.same("finetuning_type", "all weights are trained")
        else:
            draft.leave("finetuning_type", "all weights are trained, or LoRA adapters: lora")
        return f"finetuning_type {kind}"
    if library == "Axolotl":
        kind = str(draft.value("adapter", default="") or "")
        if kind in ("lora", "qlora"):
            draft.same("adapter", "lora" if kind == "lora" else "lora, with quantization nf4")
            return ""
        if kind:
            draft.leave("adapter", "adapters are LoRA's: adapter: lora")
        return "no adapter" if not kind else f"adapter {kind}"
    if library == "verl":
        rank = draft.value("actor_rollout_ref.model.lora_rank", "model.lora_rank", default=0)
        return "" if rank and int(rank) > 0 else "lora_rank 0"
    rank = draft.named(*_RANK)
    called = {"LoraConfig", "get_peft_model"} & draft.flat.keys()
    if "use_peft" in draft.flat or rank is not None or called:
        switch = draft.named("use_peft", "use_lora")
        if switch in ("use_peft", "use_lora") and not truth(draft.flat[switch]) and not called:
            draft.same(switch, "off: all weights are trained")
            return f"{switch} is off"
        for key in ("use_peft", "use_lora", "LoraConfig", "get_peft_model"):
            draft.same(draft.named(key), "lora")
        if "use_peft" not in draft.flat and not called and rank and draft.library == "TRL":
            draft.notes.append(f"{rank} is carried; TRL itself needs use_peft: true for it")
        return "" if rank is None or draft.flat[rank] not in (0, False) else f"{rank} is 0"
    return "there are no adapters"


def _dropout(draft: Draft) -> None:
    """TRL's preference trainers turn dropout off, that of adapters too, unless disable_dropout is false."""
    key = draft.named("lora_dropout")
    if draft.library == "LLaMA-Factory" or draft.method not in _UNTRAINED_DROPOUT:
        return
    if truth(draft.value("disable_dropout", default=True)) and draft.options.pop("lora_dropout", 0) and key:
        del draft.lines[key]
        draft.same(key, "off: disable_dropout, the default of TRL's trainer, turns it off")


def _targets(draft: Draft, key: str) -> None:
    value: object = draft.flat[key]
    if value in ("all", "all-linear", ["all-linear"], ["all"]):
        draft.carry(key, "lora_targets", "all-linear")
        return
    named = [str(one) for one in value] if isinstance(value, list | tuple) else str(value).split(",")
    if not all(name.strip().replace("_", "").replace(".", "").isalnum() for name in named):
        draft.leave(key, "it is a pattern; give the names of layers")
        return
    whole = [name.strip() for name in named if name.strip() in ("embed_tokens", "lm_head")]
    layers = [name.strip() for name in named if name.strip() not in whole]
    draft.carry(key, "lora_targets", ",".join(layers), "embeddings are trained whole: lora_save" if whole else "")
    if whole:
        draft.options["lora_save"] = ",".join(whole)


def _variants(draft: Draft) -> None:
    for key in _PLAIN:
        if draft.named(key) and truth(draft.flat[key]):
            draft.carry(key, "lora_variant", "rslora" if "rslora" in key else "dora")
        draft.same(draft.named(key), "off, here too")
    whole = draft.named(*_WHOLE)
    if whole is not None:
        value = draft.flat[whole]
        names = value if isinstance(value, list) else str(value).split(",")
        if draft.method == "reward_model" and "score" in names:
            draft.same(whole, "the head of a reward model is always trained")
            names = [name for name in names if name != "score"]
        if names and names != [""]:
            draft.carry(whole, "lora_save", ",".join(str(one).strip() for one in names))
        draft.same(whole, "none, here too")
    bias = draft.named("lora_bias")
    if bias is not None and str(draft.flat[bias]) not in ("none", "None", "False"):
        draft.leave(bias, "adapters have no biases")
    draft.same(bias, "adapters have no biases")
    draft.same(draft.named("lora_task_type"), "a causal language model, or a reward model by its method")
    if draft.named("init_lora_weights") or draft.named("loftq_config", "pissa_init"):
        for key in ("init_lora_weights", "loftq_config", "pissa_init"):
            name = draft.named(key)
            if name and (draft.flat[name] in (True, "True", False, {}) or not draft.flat[name]):
                draft.same(name, "adapters start with B = 0")
            draft.leave(name, "adapters start with B = 0")


def _four_bits(draft: Draft) -> None:
    key = draft.named("load_in_4bit", "quantization_bit")
    four = key is not None and (truth(draft.flat[key]) if key == "load_in_4bit" else str(draft.flat[key]) == "4")
    if draft.library == "Axolotl" and str(draft.flat.get("adapter")) == "qlora":
        four = True
    if four:
        draft.carry(key, "quantization", "nf4")
        if key is None:
            draft.options["quantization"] = "nf4"
    elif key is not None and draft.flat[key] in (False, "false", "False"):
        draft.same(key, "off, here too")
    else:
        draft.leave(key, "weights are quantised to four bits, or not at all")
