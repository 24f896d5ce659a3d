"""Small random models that see, one of each family, on `tiny`'s tokenizer; and pictures to show them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import AutoTokenizer

import burnish

TINY = Path(burnish.__file__).parent / "models" / "tiny"
PARTS = (  # a template as models that see have them: it takes parts or text, and writes the placeholder of a picture
    "{%- for m in messages -%}{{- '<|' + m['role'] + '|>' -}}"
    "{%- if m['content'] is string -%}{{- m['content'] -}}{%- else -%}{%- for p in m['content'] -%}"
    "{%- if p['type'] == 'image' -%}{{- 'PLACEHOLDER' -}}{%- else -%}{{- p['text'] -}}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}{{- '<|end|>' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}"
)
TEXT = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT |= {"num_key_value_heads": 2, "max_position_embeddings": 512}
VISION = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
IDEFICS = ["<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>"]
IDEFICS += [f"<row_{i}_col_{j}>" for i in (1, 2) for j in (1, 2)]
QWEN = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]


@dataclass(frozen=True)
class See:
    """A family. marked: what its template writes for a picture; soft: a vector's token; named: by the tokenizer."""

    processor: str
    tokens: list[str]
    soft: str
    marked: str
    image: Callable[[], Any]
    model: Callable[[Callable[[str], int], int], Any]
    options: dict[str, Any] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)


def _llava(number: Callable[[str], int], words: int) -> Any:
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

    vision = CLIPVisionConfig(**VISION, image_size=32, patch_size=8, projection_dim=32)
    text = LlamaConfig(**TEXT, vocab_size=words)
    return LlavaForConditionalGeneration(
        LlavaConfig(vision_config=vision, text_config=text, image_token_index=number("<image>"), image_seq_length=16)
    )


def _idefics3(number: Callable[[str], int], words: int) -> Any:
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration, LlamaConfig
    from transformers.models.idefics3.configuration_idefics3 import Idefics3VisionConfig

    vision = Idefics3VisionConfig(**VISION, image_size=32, patch_size=8)
    text = LlamaConfig(**TEXT, vocab_size=words, pad_token_id=0)
    return Idefics3ForConditionalGeneration(
        Idefics3Config(
            vision_config=vision, text_config=text, image_token_id=number("<image>"), scale_factor=2, pad_token_id=0
        )
    )


def _smolvlm(number: Callable[[str], int], words: int) -> Any:
    from transformers import LlamaConfig, SmolVLMConfig, SmolVLMForConditionalGeneration
    from transformers.models.smolvlm.configuration_smolvlm import SmolVLMVisionConfig

    vision = SmolVLMVisionConfig(**VISION, image_size=32, patch_size=8)
    text = LlamaConfig(**TEXT, vocab_size=words, pad_token_id=0)
    return SmolVLMForConditionalGeneration(
        SmolVLMConfig(
            vision_config=vision, text_config=text, image_token_id=number("<image>"), scale_factor=2, pad_token_id=0
        )
    )


def _internvl(number: Callable[[str], int], words: int) -> Any:
    from transformers import InternVLConfig, InternVLForConditionalGeneration, InternVLVisionConfig, Qwen2Config

    vision = InternVLVisionConfig(**VISION, image_size=[32, 32], patch_size=[8, 8])
    text = Qwen2Config(**TEXT, vocab_size=words)
    return InternVLForConditionalGeneration(
        InternVLConfig(
            vision_config=vision, text_config=text, image_token_id=number("<IMG_CONTEXT>"), image_seq_length=4
        )
    )


def _gemma3(number: Callable[[str], int], words: int) -> Any:
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3TextConfig, SiglipVisionConfig

    vision = SiglipVisionConfig(**VISION, image_size=32, patch_size=8, vision_use_head=False)
    text = Gemma3TextConfig(**TEXT, vocab_size=words, head_dim=16, sliding_window=64, pad_token_id=0)
    config = Gemma3Config(
        vision_config=vision,
        text_config=text,
        mm_tokens_per_image=4,
        image_token_index=number("<image_soft_token>"),
        boi_token_index=number("<start_of_image>"),
        eoi_token_index=number("<end_of_image>"),
    )
    return Gemma3ForConditionalGeneration(config)


def _qwen(kind: str) -> Callable[[Callable[[str], int], int], Any]:
    def make(number: Callable[[str], int], words: int) -> Any:
        import transformers

        rope = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
        text: dict[str, Any] = {**TEXT, "vocab_size": words, "rope_parameters": rope}
        vision: dict[str, Any] = {"patch_size": 8, "spatial_merge_size": 2, "temporal_patch_size": 2}
        if kind == "Qwen2VL":
            vision |= {"depth": 2, "embed_dim": 32, "num_heads": 4, "hidden_size": 64, "mlp_ratio": 2}
        elif kind == "Qwen2_5_VL":
            vision |= {"depth": 2, "hidden_size": 32, "num_heads": 4, "out_hidden_size": 64, "intermediate_size": 64}
            vision |= {"window_size": 32, "fullatt_block_indexes": [1]}
        else:
            vision |= {"depth": 2, "hidden_size": 32, "num_heads": 4, "out_hidden_size": 64, "intermediate_size": 64}
            vision |= {"num_position_embeddings": 64, "deepstack_visual_indexes": [0]}
            text |= {"head_dim": 16, "rope_parameters": {**rope, "mrope_interleaved": True}}
        config = getattr(transformers, f"{kind}Config")(
            text_config=text,
            vision_config=vision,
            image_token_id=number("<|image_pad|>"),
            video_token_id=number("<|video_pad|>"),
            vision_start_token_id=number("<|vision_start|>"),
            vision_end_token_id=number("<|vision_end|>"),
        )
        return getattr(transformers, f"{kind}ForConditionalGeneration")(config)

    return make


def _clip() -> Any:
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    return CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})


def _tiles(name: str) -> Callable[[], Any]:
    def make() -> Any:
        import importlib

        kind = {"idefics3": "Idefics3", "smolvlm": "SmolVLM"}[name]
        module = importlib.import_module(f"transformers.models.{name}.image_processing_pil_{name}")
        size = {"longest_edge": 64}
        return getattr(module, f"{kind}ImageProcessorPil")(size=size, max_image_size={"longest_edge": 32})

    return make


def _got() -> Any:
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil

    return GotOcr2ImageProcessorPil(size={"height": 32, "width": 32}, crop_to_patches=False, max_patches=2)


def _gemma() -> Any:
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    return Gemma3ImageProcessorPil(size={"height": 32, "width": 32})


def _patches(**more: Any) -> Callable[[], Any]:
    def make() -> Any:
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

        return Qwen2VLImageProcessorPil(patch_size=8, merge_size=2, min_pixels=256, max_pixels=2048, **more)

    return make


_BOX = "<|vision_start|><|image_pad|><|vision_end|>"
FAMILIES = {
    "llava": See(
        "LlavaProcessor",
        ["<image>"],
        "<image>",
        "<image>",
        _clip,
        _llava,
        {"patch_size": 8, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1},
    ),
    "idefics3": See(
        "Idefics3Processor", IDEFICS, "<image>", "<image>", _tiles("idefics3"), _idefics3, {"image_seq_len": 4}
    ),
    "smolvlm": See(
        "SmolVLMProcessor", IDEFICS, "<image>", "<image>", _tiles("smolvlm"), _smolvlm, {"image_seq_len": 4}
    ),
    "internvl": See(
        "InternVLProcessor",
        ["<img>", "</img>", "<IMG_CONTEXT>", "<video>"],
        "<IMG_CONTEXT>",
        "<IMG_CONTEXT>",
        _got,
        _internvl,
        {"image_seq_length": 4},
        {
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        },
    ),
    "gemma3": See(
        "Gemma3Processor",
        ["<start_of_image>", "<end_of_image>", "<image_soft_token>"],
        "<image_soft_token>",
        "<start_of_image>",
        _gemma,
        _gemma3,
        {"image_seq_length": 4},
        {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"},
    ),
    "qwen2_vl": See("Qwen2VLProcessor", QWEN, "<|image_pad|>", _BOX, _patches(), _qwen("Qwen2VL")),
    "qwen2_5_vl": See("Qwen2_5_VLProcessor", QWEN, "<|image_pad|>", _BOX, _patches(), _qwen("Qwen2_5_VL")),
    "qwen3_vl": See("Qwen3VLProcessor", QWEN, "<|image_pad|>", _BOX, _patches(), _qwen("Qwen3VL")),
}


def write_vlm(name: str, path: Path) -> Path:
    """A directory with a random model of a family, its tokenizer and its processor."""
    family = FAMILIES[name]
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    tokenizer.add_special_tokens({"additional_special_tokens": family.tokens})
    if family.named:
        tokenizer.init_kwargs["extra_special_tokens"] = family.named
    tokenizer.chat_template = PARTS.replace("PLACEHOLDER", family.marked)
    tokenizer.save_pretrained(path)
    if family.named:
        told = json.loads((path / "tokenizer_config.json").read_text())
        told |= {"extra_special_tokens": family.named}
        (path / "tokenizer_config.json").write_text(json.dumps(told))
    family.image().save_pretrained(path)
    (path / "processor_config.json").write_text(json.dumps({"processor_class": family.processor, **family.options}))
    torch.manual_seed(0)
    model = family.model(tokenizer.convert_tokens_to_ids, len(tokenizer))
    for parameter in model.parameters():  # as drawn they say nearly the same of everything, which hides mistakes
        if parameter.ndim > 1:
            parameter.data = parameter.data * 5 if parameter.any() else torch.randn(parameter.shape) / 4
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.float().save_pretrained(path)
    return path


def picture(seed: int, width: int = 44, height: int = 36) -> Image.Image:
    """A random picture: a few coloured rectangles."""
    rng = np.random.default_rng(seed)
    pixels = np.full((height, width, 3), rng.integers(0, 256, 3), dtype=np.uint8)
    for _ in range(4):
        x, y = rng.integers(0, width - 8), rng.integers(0, height - 8)
        pixels[y : y + 8, x : x + 8] = rng.integers(0, 256, 3)
    return Image.fromarray(pixels)


def picture_file(folder: Path, seed: int, **size: int) -> str:
    """A random picture as a PNG file; its path."""
    file = folder / f"picture{seed}{''.join(map(str, size.values()))}.png"
    picture(seed, **size).save(file)
    return str(file)
