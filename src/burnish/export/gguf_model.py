"""A model directory as a GGUF file, for llama.cpp and what is built on it.

The package gguf writes the file and quantises to 8 bits; the formats with fewer bits are made by llama.cpp's own code,
through its Python package. Tensors are read and written one at a time, so a model need not fit into memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from burnish.export.gguf_tokenizer import add_to, vocabulary_of
from burnish.models.precision import tensors_in
from burnish.util.files import read_json

PLAIN = {"f32": "F32", "f16": "F16", "bf16": "BF16", "q8_0": "Q8_0"}  # --quantize -> the format of the matrices
BY_LLAMA_CPP = {"q6_k": 18, "q5_k_m": 17, "q4_k_m": 15}  # -> llama.cpp's number of a mixture of formats
FORMATS = ("stored", *PLAIN, *BY_LLAMA_CPP)
_STORED = {"BF16": "bf16", "F16": "f16", "F32": "f32"}
_FILE_TYPES = {"f32": 0, "f16": 1, "q8_0": 7, "bf16": 32}


@dataclass(frozen=True)
class Architecture:
    """A model type of transformers in llama.cpp. permutes: whether rows of q and k are stored in another order."""

    name: str
    permutes: bool


ARCHITECTURES = {
    "llama": Architecture("llama", True),
    "mistral": Architecture("llama", True),
    "qwen2": Architecture("qwen2", False),
    "qwen3": Architecture("qwen3", False),
}


def write_gguf(folder: Path, file: Path, quantize: str, *, licence: str = "", name: str = "") -> None:
    """Write the model of a directory (whole weights) as one GGUF file.

    quantize: one of FORMATS; "stored": that of the weights, so that nothing is rounded
    """
    config = read_json(folder / "config.json") or {}
    kind = str(config.get("model_type"))
    if kind not in ARCHITECTURES:
        raise ValueError(
            f"burnish writes GGUF files of {', '.join(ARCHITECTURES)}, and {folder} is of type {kind!r}; convert it "
            "with llama.cpp's convert_hf_to_gguf.py"
        )
    if quantize in BY_LLAMA_CPP:
        llama_cpp = _llama_cpp()
        whole = file.with_name(f".{file.name}.whole")
        try:
            _write(folder, whole, config, "f32", licence, name)
            _quantise(llama_cpp, whole, file, BY_LLAMA_CPP[quantize])
        finally:
            whole.unlink(missing_ok=True)
        return
    _write(folder, file, config, quantize, licence, name)


def _write(folder: Path, file: Path, config: dict[str, Any], quantize: str, licence: str, name: str) -> None:
    gguf = _gguf()
    architecture = ARCHITECTURES[config["model_type"]]
    tensors = list(_tensors(folder, config, architecture, gguf))
    if quantize == "stored":
        sizes = {kind: sum(math.prod(t.shape) for t in tensors if t.stored == kind) for kind in _STORED}
        quantize = _STORED[max(sizes, key=lambda kind: sizes[kind])]
    writer = gguf.GGUFWriter(file, architecture.name)
    try:
        _describe(writer, config, name, licence)
        writer.add_file_type(_FILE_TYPES[quantize])
        add_to(writer, vocabulary_of(folder, int(config["vocab_size"])))
        formats = [_format(gguf, tensor, quantize) for tensor in tensors]
        for tensor, form in zip(tensors, formats, strict=True):
            count = math.prod(tensor.shape)
            block, size = gguf.GGML_QUANT_SIZES[form]
            place = np.dtype(np.int8)  # any but uint8, which the writer takes for a shape in bytes
            writer.add_tensor_info(tensor.name, tensor.shape, place, count // block * size, form)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for tensor, form in zip(tensors, formats, strict=True):
            writer.write_tensor_data(gguf.quantize(tensor.read().float().contiguous().numpy(), form))
    finally:
        writer.close()


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of the file: its name there, its shape, the format that it has in the directory, and how to read it."""

    name: str
    shape: tuple[int, ...]
    stored: str
    read: Callable[[], Tensor]


def _tensors(folder: Path, config: dict[str, Any], architecture: Architecture, gguf: ModuleType) -> Iterator[Any]:
    """The tensors of a directory under llama.cpp's names."""
    blocks = int(config["num_hidden_layers"])
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, architecture.name.upper()), blocks)
    tied = bool(config.get("tie_word_embeddings"))
    heads = int(config["num_attention_heads"])
    keys = int(config.get("num_key_value_heads") or heads)
    seen = set()
    for file in sorted(folder.glob("*.safetensors")):
        for name, kind, shape in tensors_in(file):
            if (tied and name == "lm_head.weight") or name.endswith("rotary_emb.inv_freq"):
                continue
            theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
            if theirs is None or kind not in _STORED:
                raise ValueError(
                    f"the tensor {name} ({kind}) of {folder} has no place in a GGUF file of {architecture.name}"
                )
            if theirs in seen:
                raise ValueError(f"{folder} holds the tensor {name} twice; keep one set of safetensors files")
            seen.add(theirs)
            split = heads if ".q_proj." in name else keys if ".k_proj." in name else 0
            yield StoredTensor(theirs, tuple(shape), kind, _reader(file, name, split if architecture.permutes else 0))
    if (scaled := rope_factors(config)) is not None:
        yield StoredTensor("rope_freqs.weight", tuple(scaled.shape), "F32", lambda: scaled)


def _reader(file: Path, name: str, heads: int) -> Callable[[], Tensor]:
    def read() -> Tensor:
        with safe_open(file, framework="pt") as opened:
            tensor: Tensor = opened.get_tensor(name)
        return interleaved(tensor, heads) if heads else tensor

    return read


def interleaved(rows: Tensor, heads: int) -> Tensor:
    """Rows of a projection in the order of llama.cpp's Llama: it rotates neighbours (2i, 2i+1) of a head of width d,
    transformers rotates (i, i + d/2). Row h d + s d/2 + i moves to row h d + 2i + s.
    """
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
    return halves.transpose(1, 2).reshape(rows.shape)


def rope_factors(config: dict[str, Any]) -> Tensor | None:
    """What Llama 3.1's scaling divides each rotary frequency by; None where the frequencies are not scaled so.

    For the wavelength w = 2 pi / f of a frequency f, trained context c: 1 where w < c / high, factor where w > c / low,
    and between them 1 / ((1 - s) / factor + s) with s = (c / w - low) / (high - low).
    """
    scaling = _scaling(config)
    if scaling.get("rope_type") != "llama3":
        return None
    factor, low, high = (float(scaling[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    trained = float(scaling["original_max_position_embeddings"])
    width = _head_width(config)
    waves = 2 * math.pi * _theta(config) ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    smooth = (trained / waves - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    scaled = torch.where(waves > trained / low, factor, between)
    return torch.where(waves < trained / high, 1.0, scaled).float()


def _describe(writer: Any, config: dict[str, Any], name: str, licence: str) -> None:
    """The numbers of the model, which llama.cpp reads in place of config.json."""
    context = int(config["max_position_embeddings"])
    window = config.get("sliding_window")
    if isinstance(window, int) and config.get("use_sliding_window", config["model_type"] == "mistral"):
        context = min(context, window)  # llama.cpp's Llama attends to everything: within the window that is the same
    heads = int(config["num_attention_heads"])
    writer.add_name(name or "model")
    if licence:
        writer.add_license(licence)
    writer.add_context_length(context)
    writer.add_embedding_length(int(config["hidden_size"]))
    writer.add_block_count(int(config["num_hidden_layers"]))
    writer.add_feed_forward_length(int(config["intermediate_size"]))
    writer.add_head_count(heads)
    writer.add_head_count_kv(int(config.get("num_key_value_heads") or heads))
    writer.add_key_length(_head_width(config))
    writer.add_value_length(_head_width(config))
    writer.add_layer_norm_rms_eps(float(config["rms_norm_eps"]))
    writer.add_rope_dimension_count(_head_width(config))
    writer.add_rope_freq_base(_theta(config))
    writer.add_vocab_size(int(config["vocab_size"]))
    scaling = _scaling(config)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "linear":
        writer.add_rope_scaling_type(_gguf().RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(float(scaling["factor"]))
    elif kind not in ("default", "llama3"):
        raise ValueError(
            f"the model's rotary scaling is {kind!r}, and burnish writes default, linear and llama3 into GGUF files; "
            "convert the directory with llama.cpp's convert_hf_to_gguf.py"
        )


def _scaling(config: dict[str, Any]) -> dict[str, Any]:
    return dict(config.get("rope_parameters") or config.get("rope_scaling") or {})


def _theta(config: dict[str, Any]) -> float:
    return float(_scaling(config).get("rope_theta") or config.get("rope_theta") or 10000.0)


def _head_width(config: dict[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _format(gguf: ModuleType, tensor: StoredTensor, quantize: str) -> Any:
    """Vectors (norms, biases) are fp32. A matrix whose rows are not whole blocks of the format is fp16."""
    kinds = gguf.GGMLQuantizationType
    if len(tensor.shape) < 2:
        return kinds.F32
    wanted = getattr(kinds, PLAIN[quantize])
    return wanted if tensor.shape[-1] % gguf.GGML_QUANT_SIZES[wanted][0] == 0 else kinds.F16


def _quantise(llama_cpp: ModuleType, whole: Path, file: Path, number: int) -> None:
    silent = llama_cpp.llama_log_callback(lambda level, text, data: None)  # it prints a line for every tensor
    llama_cpp.llama_log_set(silent, None)
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype = number
    failed = llama_cpp.llama_model_quantize(str(whole).encode(), str(file).encode(), options)
    if failed:
        raise ValueError(f"llama.cpp could not quantise {whole.name} (code {failed}); use --quantize q8_0")


def _gguf() -> ModuleType:
    try:
        import gguf
    except ImportError:
        raise ValueError("writing a GGUF file needs gguf: pip install 'burnish[gguf]'") from None
    return gguf


def _llama_cpp() -> ModuleType:
    try:
        return import_module("llama_cpp")
    except ImportError:
        raise ValueError(
            f"--quantize {', '.join(BY_LLAMA_CPP)} are made by llama.cpp: pip install 'burnish[llama-cpp]'; q8_0 needs "
            "no other package"
        ) from None
