"""Models that see: which parts of them learn, the column of the pictures, and what their own processor decides."""

from __future__ import annotations

import re

from burnish.migrate.draft import Draft, truth

PICTURES, OTHERS = {"images", "image"}, {"videos", "audios", "video", "audio"}
_SEES = re.compile(r"(?i)(-vl\b|-vl-|vision|llava|pixtral|idefics|internvl|paligemma|smolvlm|moondream|minicpm-v)")
_HEARS = re.compile(r"(?i)(-omni\b|-audio\b|whisper)")
_SIZES = ("image_max_pixels", "image_min_pixels", "image_resolution", "image_size", "image_resize_algorithm")
_VIDEO = ("video_max_pixels", "video_min_pixels", "video_fps", "video_maxlen", "data.video_key")
_FROZEN = {  # a switch that freezes a part -> the part, and LLaMA-Factory's default
    "freeze_vision_tower": ("tower", True),
    "freeze_multi_modal_projector": ("connector", True),
    "freeze_language_model": ("language", False),
}
_HALVES = {
    "finetune_attention_modules": "q_proj,k_proj,v_proj,o_proj",
    "finetune_mlp_modules": "gate_proj,up_proj,down_proj",
}


def sees(draft: Draft) -> bool:
    """Whether the model reads pictures, by its name, its class or a field that only such models have."""
    model = draft.value("model_name_or_path", "model_name", "base_model", "actor_rollout_ref.model.path", default="")
    named = isinstance(model, str) and _SEES.search(model.rpartition("/")[2]) is not None
    return named or draft.given.sees or any(draft.named(key) for key in (*_FROZEN, *_SIZES, "is_multimodal"))


def refuse_sound(draft: Draft) -> None:
    """Refuse a model of sound or video in a sentence."""
    model = draft.value("model_name_or_path", "model_name", "base_model", "actor_rollout_ref.model.path", default="")
    if isinstance(model, str) and _HEARS.search(model.rpartition("/")[2]):
        raise ValueError(f"the model is {model}; burnish reads text and pictures, neither sound nor video")


def pictures(draft: Draft) -> None:
    """Set `only`, and say what becomes of the fields of models that see. Call it after `adapters`."""
    for key in _SIZES:
        draft.leave(draft.named(key), "pictures are sized by the model's own processor (preprocessor_config.json)")
    for key in _VIDEO:
        draft.leave(draft.named(key), "burnish reads text and pictures")
    draft.same(draft.named("is_multimodal"), "the model says whether it sees")
    draft.same(draft.named("processor_type"), "the model's own processor reads the pictures")
    if not sees(draft):
        return
    _parts(draft)
    _unsloth(draft)
    draft.notes.append("a model that sees: see docs/pictures.md for the families and the column of the pictures")


def _parts(draft: Draft) -> None:
    """Which of tower, connector and language half learn."""
    given = {key: draft.named(key, f"actor_rollout_ref.actor.{key}") for key in _FROZEN}
    if draft.library != "LLaMA-Factory" and not any(given.values()):
        return
    own = draft.library == "LLaMA-Factory"
    frozen = {
        part: truth(draft.flat[key]) if (key := given[switch]) else own and usual
        for switch, (part, usual) in _FROZEN.items()
    }
    adapted = "lora" in draft.options
    for switch, key in given.items():
        part = _FROZEN[switch][0]
        if adapted and part == "tower" and not frozen[part]:
            draft.leave(key, "adapters are of the language half")
        draft.same(key, "adapters are of the language half" if adapted and part == "tower" else "only")
    learning = [part for part in ("connector", "language", "tower") if not frozen[part]]
    if adapted:
        learning = [part for part in learning if part == "connector"]  # whole, beside the adapters
    if learning and len(learning) < len(frozen):
        draft.options["only"] = ",".join(learning)


def _unsloth(draft: Draft) -> None:
    """The switches of FastVisionModel.get_peft_model."""
    for key in ("finetune_vision_layers", "finetune_language_layers"):
        wanted = key == "finetune_language_layers"
        if draft.named(key) and truth(draft.flat[key]) is not wanted:
            draft.changed(key, "adapters are of the language half")
        draft.same(draft.named(key), "adapters are of the language half")
    off = [key for key in _HALVES if draft.named(key) and not truth(draft.flat[key])]
    if len(off) == 1 and "lora" in draft.options:
        (kept,) = _HALVES.keys() - off
        draft.options["lora_targets"] = _HALVES[kept]
    for key in _HALVES:
        draft.same(draft.named(key), "lora_targets")
