"""From a model directory to a model: safetensors only, no code from the directory, dropout off."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from burnish.core.tokenizer import Tokenizer
from burnish.forward import attention, plain
from burnish.forward.accelerate import kernels
from burnish.forward.module import ModelConfig, bare, vocabulary_size
from burnish.forward.sight import sight_of
from burnish.media.processor import PictureReader, sees
from burnish.models.chat import Chat
from burnish.models.chat_style import styled_chat, use_template
from burnish.models.drawing import draws_pictures, load_drawing
from burnish.models.known_models import adapted_model, is_adapter
from burnish.models.layer_shards import divide_layers
from burnish.models.load_divided import load_divided
from burnish.models.lora import Lora, WrongAdapters, add_lora, stored_scores
from burnish.models.sanity import (
    hides_tokens,
    require_causal,
    require_finite_weights,
    require_sane_config,
    require_scorer,
)
from burnish.models.seeing_scores import as_scorer, seeing_scorer
from burnish.models.template import Style
from burnish.models.tokenizer import listed_ends, tokenizer_of
from burnish.util.files import read_json
from burnish.util.host_memory import keep_memory

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from burnish.forward.module import TransformersModel

TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model", "*.tiktoken")  # as transformers' classes name them


@contextmanager
def _readable(what: str, path: Path) -> Iterator[None]:
    """Whatever transformers and tokenizers raise over a directory that is not whole, in one sentence."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError, WrongAdapters):
        raise
    except Exception as error:  # the tokenizers library raises Exception itself, transformers all kinds
        if "trust_remote_code" in str(error):
            raise ValueError(
                f"the {what} in {path} needs Python code from its own directory (auto_map), which burnish never runs; "
                "pass a model that transformers knows by itself"
            ) from None
        why = str(error).strip().partition("\n")[0].rstrip(". ") or type(error).__name__
        raise ValueError(
            f"the {what} in {path} cannot be loaded ({why}); write it again with save_pretrained, or pass another "
            "directory"
        ) from error


def load_chat(path: Path, style: Style | None = None) -> Chat:
    """The tokenizer of a model directory with its chat template, or the one that `style` asks for.

    One that could never end a reply is refused, and so is a template that cannot be rendered.
    """
    if is_adapter(path) and not any(path.glob("tokenizer*")):  # peft alone saves none
        path = adapted_model(path)
    if not any(file for pattern in TOKENIZER_FILES for file in path.glob(pattern)):
        raise ValueError(
            f"there is no tokenizer in {path}; write that of the model there, with tokenizer.save_pretrained"
        )
    with _readable("tokenizer", path):
        tokenizer: Tokenizer = tokenizer_of(path) or _of_transformers(path)
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"the tokenizer in {path} has no eos token, so no reply would ever end; set eos_token in its "
            "tokenizer_config.json"
        )
    place = adapted_model(path)
    if sees(place) and getattr(tokenizer, "chat_template", None) is None:
        use_template(tokenizer, (read_json(place / "chat_template.json") or {}).get("chat_template"))
    chat = styled_chat(tokenizer, style or Style(), str(path), PictureReader(place) if sees(place) else None)
    chat.ends = listed_ends(path)
    chat.pictures.draws = draws_pictures(place)
    return chat


def _of_transformers(path: Path) -> Tokenizer:
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
    plain: Tokenizer = tokenizer
    return plain


def load_model(
    path: Path,
    outputs: int,
    device: torch.device,
    native: bool = True,
    dtype: torch.dtype = torch.float32,
    new_head: bool = False,
    mesh: DeviceMesh | None = None,
) -> nn.Module:
    """A causal language model, or (outputs > 0) one with `outputs` numbers per token in place of logits.

    A directory with a scoring head keeps it, however many outputs it has. new_head: one with another number of outputs
    than `outputs` gets a fresh head instead (a reward model on whose backbone another one is trained).

    dtype: of its weights: fp32 for those that are trained (master weights; on CUDA a bf16 copy of them computes,
    models/mixed_precision.py), bf16 on CUDA for those that are not. They are read as they are stored and converted on
    the device.
    mesh: the ranks that divide its layers (--shard full); None: it is whole.
    native: on a CPU a plain Llama, Qwen2 or Qwen3 runs in modules of our own, if there are kernels; False:
    transformers'.
    """
    if device.type == "cpu":
        keep_memory()
    require_sane_config(adapted_model(path))
    if not outputs and not hides_tokens(adapted_model(path)):
        require_causal(adapted_model(path))
    stored_head = _kept_outputs(path, outputs, new_head)
    if mesh is not None:
        return _divided(path, outputs, stored_head, device, dtype, mesh)
    fast = kernels() if native and not outputs and device.type == "cpu" else None
    with _readable("model", path):
        kind = dtype if device.type == "cpu" else "auto"
        model, missing = (None if fast is None else fast.load(path)) or _by_transformers(
            path, outputs, stored_head, {"dtype": kind, **straight_to(device)}
        )
    if missing:
        raise ValueError(
            f"the weights in {path} are not whole: {min(missing)} is missing; pass a directory written by "
            "save_pretrained"
        )
    for parameter in model.parameters():  # buffers (rotary frequencies) keep their precision
        parameter.data = parameter.data.to(device, dtype)
    require_finite_weights(model, path)
    _without_dropout(model)
    model = model.to(device).eval()
    if outputs and not stored_head:
        draw_head(bare(model))
    return model


def _divided(
    path: Path, outputs: int, stored_head: int, device: torch.device, dtype: torch.dtype, mesh: DeviceMesh
) -> nn.Module:
    """A model whose layers the ranks divide, read in parts where that is possible."""
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.disable_progress_bar()
    kind: Any = AutoModelForSequenceClassification if outputs else AutoModelForCausalLM
    config: Any = _config(path)
    if outputs:
        config.num_labels = stored_head or outputs
    with _readable("model", path):
        name = _attention(adapted_model(path), kind._model_mapping)
        with torch.device("meta"):
            model: Any = kind.from_config(config, attn_implementation=name, dtype=dtype, trust_remote_code=False)
        filled = load_divided(path, model, device, dtype, mesh, bool(outputs) and not stored_head)
    if not filled:
        loaded = load_model(path, outputs, device, False, dtype, bool(outputs) and not stored_head)
        divide_layers(loaded, mesh)
        return loaded
    _without_dropout(model)
    model.eval()
    if outputs and not stored_head:
        draw_head(model)
    whole: nn.Module = model
    return whole


def _kept_outputs(path: Path, outputs: int, new_head: bool) -> int:
    """How many outputs the scoring head has that a model keeps of its directory; 0: its head is a fresh one."""
    if not outputs:
        return 0
    require_scorer(adapted_model(path))
    stored = stored_outputs(path)
    _require_scoring(_config(path))
    return 0 if new_head and stored != outputs else stored


def straight_to(device: torch.device) -> dict[str, object]:
    """Options with which transformers reads each tensor of a file onto the GPU, with none of them in the host's memory;
    that takes accelerate, which LoRA's packages bring along. None for a CPU.
    """
    direct = device.type == "cuda" and importlib.util.find_spec("accelerate") is not None
    return {"device_map": {"": device}} if direct else {}


def _by_transformers(path: Path, outputs: int, kept: int, how: dict[str, object]) -> tuple[nn.Module, set[str]]:
    """Any model that transformers knows, and the names of the weights that its directory lacks.

    kept: outputs of the directory's scoring head; 0: a fresh head is to be drawn
    how: dtype, and the device if the weights are read straight to it
    """
    from transformers.utils import logging

    logging.set_verbosity_error()  # a fresh head is expected, and bars for files that load in milliseconds are noise
    logging.disable_progress_bar()
    options: dict[str, object] = {
        **how,
        "use_safetensors": True,
        "output_loading_info": True,  # weights that are missing are refused, not drawn at random
    }
    return _scalar(outputs, kept, path, options) if outputs else _language(path, options)


def _language(path: Path, options: dict[str, Any]) -> tuple[TransformersModel, set[str]]:
    """A language model, adapters added into its weights, and the names of the weights that its directory lacks."""
    import transformers

    place = adapted_model(path)
    seeing = sees(place)
    if draws_pictures(place) is not None:
        return load_drawing(place, options)
    if hides_tokens(place):
        filling: Any = transformers.AutoModelForMaskedLM.from_pretrained(
            place, attn_implementation="sdpa", trust_remote_code=False, **options
        )
        return filling[0], set(filling[1]["missing_keys"])
    auto = transformers.AutoModelForImageTextToText if seeing else transformers.AutoModelForCausalLM
    name: Any = (
        {"text_config": _text_attention(place)}
        if seeing
        else _attention(place, transformers.MODEL_FOR_CAUSAL_LM_MAPPING)
    )
    loaded: Any = auto.from_pretrained(place, attn_implementation=name, trust_remote_code=False, **options)
    if is_adapter(path):
        merged = add_lora(loaded[0], Lora(), path).merge_and_unload()
        return merged.requires_grad_(True), set()
    return loaded[0], set(loaded[1]["missing_keys"])


def _scalar(outputs: int, kept: int, path: Path, options: dict[str, object]) -> tuple[TransformersModel, set[str]]:
    """A model with numbers in place of logits, and the names of the weights that its directory lacks.

    kept: outputs of the directory's head; 0: whatever is in the head is to be replaced (`draw_head`).
    """
    from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, AutoModelForSequenceClassification

    place = adapted_model(path)
    if sees(place):
        return seeing_scorer(_language(path, options), place if is_adapter(path) else path, outputs, kept)
    if not kept and stored_outputs(path):
        options = {**options, "ignore_mismatched_sizes": True}
    name = _attention(place, MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING)
    model, info = AutoModelForSequenceClassification.from_pretrained(
        place, num_labels=kept or outputs, attn_implementation=name, trust_remote_code=False, **options
    )
    adapted = is_adapter(path)
    if adapted and stored_scores(path):
        model = add_lora(model, Lora(), path).merge_and_unload().requires_grad_(True)
    elif adapted:
        model.base_model.load_state_dict(_language(path, options)[0].base_model.state_dict())
    return model, set(info["missing_keys"]) - ({"score.weight"} if adapted or not kept else set())


FRESH_HEAD = 0.01  # standard deviation of a fresh head's weights, at most
FRESH_OUTPUT = 0.25  # standard deviation of a fresh head's outputs, at most
PROBE = 32  # tokens, spread over the vocabulary, by which the size of hidden states is measured


def draw_head(model: TransformersModel) -> None:
    """Draw the weights of a scoring head: it says almost 0 of everything, and the same in every run.

    w ~ N(0, s^2), s = min(FRESH_HEAD, FRESH_OUTPUT / |h|), |h| the norm of a hidden state after the final norm. A
    drawn head gives w . h, whose standard deviation is s |h|. The norm's weights differ much between models: |h| is 22
    for `tiny`, 51 for SmolLM2-135M and 117 for Gemma-3-270M, whose heads would give 0.2, 0.5 and 1.2 with s = 0.01,
    where rewards are often 0 or 1.
    """
    s = min(FRESH_HEAD, FRESH_OUTPUT / max(_state_norm(model), 1e-12))
    weight = torch.empty(model.score.weight.shape).normal_(std=s, generator=torch.Generator().manual_seed(0))
    model.score.weight.data = weight.to(model.score.weight)


@torch.no_grad()
def _state_norm(model: TransformersModel) -> float:
    """The median norm of the hidden states that a scoring head reads, over tokens all across the vocabulary.

    They are no text, and need no tokenizer. The median, because the states of single strange tokens are far larger.
    """
    tokens = torch.arange(PROBE) * vocabulary_size(model) // PROBE
    tokens = tokens[: _context(model.config)]
    with attention.by_transformers(model):
        states = plain.outputs(model, [tokens], [torch.arange(len(tokens)) > 0], {"state"})["state"]
    return float(states.float().norm(dim=-1).median())


def scoring(language: nn.Module, outputs: int) -> TransformersModel:
    """A model with a fresh scoring head on the decoder of a language model, whose weights it shares."""
    from transformers import AutoModelForSequenceClassification

    decoding = bare(language)
    if sight_of(decoding) is not None:
        scorer = as_scorer(copy.copy(decoding), outputs)
        draw_head(scorer)
        return scorer.eval()
    config: Any = copy.deepcopy(decoding.config)
    _require_scoring(config)
    config.num_labels = outputs
    with torch.device("meta"):
        model: Any = AutoModelForSequenceClassification.from_config(
            config, attn_implementation=config._attn_implementation, trust_remote_code=False
        )
    setattr(model, model.base_model_prefix, decoding.base_model)
    at: Tensor = next(decoding.base_model.parameters())
    kind = at.dtype if at.is_floating_point() else torch.bfloat16
    model.score = nn.Linear(model.score.in_features, outputs, bias=False, device=at.device, dtype=kind)
    made: TransformersModel = model.eval()
    draw_head(made)
    return made


def _attention(place: Path, classes: Any) -> str:
    """The name of the attention to load the model in a directory with; classes: by config, those it may have."""
    from transformers import AutoConfig

    kind = type(AutoConfig.from_pretrained(place, trust_remote_code=False))
    return attention.implementation(classes[kind]) if kind in classes else attention.register()


def _text_attention(place: Path) -> str:
    """The same for the language model inside a model that sees; towers keep transformers' own attention."""
    from transformers import MODEL_MAPPING, AutoConfig

    classes: Any = MODEL_MAPPING
    kind = type(AutoConfig.from_pretrained(place, trust_remote_code=False).get_text_config())
    return attention.implementation(classes[kind]) if kind in classes else attention.register()


def _without_dropout(model: nn.Module) -> None:
    """No dropout in any mode, neither as a module nor as the number that attention layers keep."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 - a number, not a parameter


def stored_outputs(path: Path) -> int:
    """How many outputs a saved scalar model has; 0 for a language model."""
    if is_adapter(path) and (outputs := stored_scores(path)):
        return outputs
    config = _config(path)
    scalar = any("SequenceClassification" in name for name in config.architectures or ())
    return int(config.num_labels) if scalar else 0


def context_length(model: nn.Module) -> int:
    config: Any = model.config
    return _context(config)


def stored_context(path: Path) -> int:
    """The context length of a model that is not loaded."""
    place = adapted_model(path)
    fast = kernels()
    config: Any = None if fast is None else fast.config(place)
    return _context(_config(path) if config is None else config)


def _config(path: Path) -> ModelConfig:
    """The configuration of the model in a directory, or of the one that its adapters belong to."""
    from transformers import AutoConfig

    draws_pictures(adapted_model(path))
    with _readable("model", path):
        config: ModelConfig = AutoConfig.from_pretrained(adapted_model(path), trust_remote_code=False)
        return config


def _require_scoring(config: Any) -> None:
    """Refuse a kind of model that transformers has no scoring head for; models that see get one of their own."""
    if hasattr(config, "vision_config"):
        return
    from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING

    if type(config) not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        raise ValueError(
            f"a model of type {config.model_type!r} cannot be a critic or a reward model, because transformers has no "
            "sequence classification for it; use a method without a critic, such as grpo, or another model"
        )


def _context(config: ModelConfig) -> int:
    return int(getattr(config.get_text_config(), "max_position_embeddings", None) or 1 << 20)
