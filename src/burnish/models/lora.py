"""LoRA through peft: which adapters, and how they are made, loaded and merged."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from torch import nn

from burnish.forward.module import bare, decoder
from burnish.forward.nf4 import Nf4Linear, make_dense
from burnish.forward.sight import sight_of
from burnish.models.lora_dropout import UpdateDropout
from burnish.models.precision import tensors_in
from burnish.util.failures import out_of_memory
from burnish.util.files import read_json

if TYPE_CHECKING:
    from peft import PeftModel

    from burnish.forward.module import TransformersModel

ALL_LINEAR = "all-linear"  # every linear layer of the decoder
VARIANTS = ("lora", "rslora", "dora")
QUANTIZATIONS = ("nf4",)


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters: W x + scale B A x on the target layers; A [rank, in] and B [out, rank] are trained.

    alpha    scale = alpha / rank; by default alpha is twice the rank
    dropout  share of the inputs of A that an update leaves out (models/lora_dropout.py)
    targets  names of layers ("q_proj"), or all-linear
    variant  lora; rslora: scale = alpha / sqrt(rank) (arXiv 2312.03732); dora: m (W + scale B A) / |W + scale B A| by
             column, and m is trained as well (arXiv 2402.09353)
    whole    names of modules that are trained and saved whole beside the adapters (embed_tokens, lm_head)
    quantization  of the frozen weights: None, or nf4, which is QLoRA (forward/nf4.py)
    """

    rank: int = 16
    alpha: float | None = None
    dropout: float = 0.0
    targets: tuple[str, ...] = (ALL_LINEAR,)
    variant: str = "lora"
    whole: tuple[str, ...] = ()
    quantization: str | None = None

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"a LoRA rank of {self.rank} trains nothing; pass --lora 8 or more")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"a LoRA dropout of {self.dropout} is not a share; give a number from 0 up to 1")
        if self.variant not in VARIANTS:
            raise ValueError(f"the LoRA variant {self.variant!r} is unknown; the variants are {', '.join(VARIANTS)}")
        if self.quantization not in (None, *QUANTIZATIONS):
            raise ValueError(f"--quantization is {self.quantization!r}; it takes {', '.join(QUANTIZATIONS)}")
        if self.quantization is not None and self.variant == "dora":
            raise ValueError("DoRA reads the norms of the weights, which are in four bits; use --lora-variant lora")


def add_lora(model: nn.Module, lora: Lora, stored: Path | None = None) -> PeftModel:
    """The model with adapters, fresh or from a directory: only they are trained. A scoring head is trained whole.

    The dropout is that of `lora`, whatever stored adapters were trained with before. What is trained is fp32, also
    where the frozen weights are bf16: peft leaves modules that are trained whole as they are, and these are master
    weights.
    """
    peft = _peft()
    if stored is not None:
        adapted = _stored(peft, model, stored)
    else:
        torch.manual_seed(0)  # peft draws the adapters from the global generator; the same ones every time
        adapted = _fresh(peft, model, lora)
    for p in adapted.parameters():
        if p.requires_grad and p.dtype in (torch.bfloat16, torch.float16):
            p.data = p.data.float()
    configs: dict[str, Any] = adapted.peft_config
    for config in configs.values():
        config.lora_dropout = lora.dropout
    for layer in adapted.modules():
        dropouts = getattr(layer, "lora_dropout", None)
        for name in dict(dropouts or {}):
            dropouts[name] = UpdateDropout(lora.dropout) if lora.dropout else nn.Identity()  # type: ignore[index]
    return adapted.eval()


def scores(model: nn.Module) -> bool:
    """Whether a model has a scoring head in place of logits."""
    return "SequenceClassification" in type(model).__name__


def stored_scores(path: Path) -> int:
    """How many outputs the scoring head has that a directory of adapters holds; 0 where there is none."""
    told = read_json(path / "adapter_config.json") or {}
    if told.get("task_type") != "SEQ_CLS":
        return 0
    tensors = tensors_in(path / "adapter_model.safetensors")
    return next((int(shape[0]) for name, _, shape in tensors if name.endswith("score.weight")), 0)


class WrongAdapters(ValueError):
    """Adapters that are damaged, or of another model."""


def _stored(peft: ModuleType, model: nn.Module, stored: Path) -> PeftModel:
    """The model with the adapters of a directory; ValueError if they are damaged, or those of another model."""
    try:
        language = scores(model) and not stored_scores(stored)
        adapted: PeftModel = (
            _of_language(peft, model, stored)
            if language
            else peft.PeftModel.from_pretrained(model, stored, is_trainable=True)
        )
        names = {name for name, _, _ in tensors_in(stored / "adapter_model.safetensors")}
        wanted = [name for name in peft.get_peft_model_state_dict(adapted) if ".lora_A" in name]
        if wanted and not names.intersection(wanted):  # peft would train adapters that do nothing
            raise ValueError(f"no tensor is called {wanted[0]}")
        return adapted
    except (SafetensorError, RuntimeError, ValueError, KeyError, TypeError) as error:
        if out_of_memory(error):
            raise
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        why = next((line for line in lines if "mismatch" in line), lines[0] if lines else type(error).__name__)
        why = why.partition(": copying")[0].rstrip(". ")[:200]
        raise WrongAdapters(
            f"the adapters in {stored} cannot be added to the model ({why}); they are damaged, or "
            "were trained on another model: correct base_model_name_or_path in adapter_config.json"
        ) from None


def _of_language(peft: ModuleType, model: nn.Module, stored: Path) -> PeftModel:
    """A scoring model with the adapters of a language model, and a head of its own."""
    config = peft.PeftConfig.from_pretrained(stored, trust_remote_code=False)
    config.task_type, config.inference_mode = "SEQ_CLS", False
    names = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    config.modules_to_save = [name for name in config.modules_to_save or () if name in names] or None
    head = {"base_model.model.score.weight": bare(model).score.weight.detach()}  # peft looks for all that it trains
    adapted: PeftModel = peft.get_peft_model(model, config)
    peft.set_peft_model_state_dict(adapted, {**peft.load_peft_weights(stored, device="cpu"), **head})
    return adapted


def _fresh(peft: ModuleType, model: nn.Module, lora: Lora) -> PeftModel:
    ties = bool(getattr(getattr(model, "config", None), "tie_word_embeddings", False))
    names = {name.rpartition(".")[2] for name, _ in model.named_modules() if name}
    missing = [name for name in lora.whole if name not in names]
    if missing and not scores(model):  # which has no lm_head
        raise ValueError(f"--lora-save names {missing[0]!r}, which the model does not have; it has {_layers(model)}")
    whole = [name for name in lora.whole if name in names]
    config = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha if lora.alpha is not None else 2 * lora.rank,
        target_modules=_targets(model, lora),
        lora_dropout=lora.dropout,
        use_rslora=lora.variant == "rslora",
        use_dora=lora.variant == "dora",
        modules_to_save=whole or None,
        ensure_weight_tying=ties and bool(whole) and not scores(model),
        task_type="SEQ_CLS" if scores(model) else "CAUSAL_LM",
    )
    try:
        adapted: PeftModel = peft.get_peft_model(model, config)
        return adapted
    except ValueError as error:
        why = str(error).strip().partition("\n")[0].rstrip(". ")
        raise ValueError(
            f"--lora-targets {','.join(lora.targets)} cannot be adapted ({why}); the linear layers are "
            f"{_layers(model)}, or all of them with {ALL_LINEAR}"
        ) from None


def _targets(model: nn.Module, lora: Lora) -> str | list[str]:
    """The layers that get adapters: of a model that sees, those of the language model inside alone."""
    if sight_of(model) is None:
        return ALL_LINEAR if ALL_LINEAR in lora.targets else list(lora.targets)
    inside = {id(layer) for layer in decoder(model).modules()}
    every = ALL_LINEAR in lora.targets
    return [
        name
        for name, layer in model.named_modules()
        if id(layer) in inside and (isinstance(layer, nn.Linear) if every else name.rpartition(".")[2] in lora.targets)
    ] or list(lora.targets)


def _layers(model: nn.Module) -> str:
    kinds = (nn.Linear, nn.Embedding)
    named = [name.rpartition(".")[2] for name, layer in model.named_modules() if isinstance(layer, kinds)]
    return ", ".join(dict.fromkeys(named))


def check_rank(path: Path, lora: Lora) -> None:
    """Raise ValueError for a rank that no layer of a model has: its adapters would be larger than the weights."""
    told = read_json(path / "config.json") or {}
    told = {**told, **(told.get("text_config") or {})}
    sizes = [told[key] for key in ("hidden_size", "intermediate_size", "vocab_size") if isinstance(told.get(key), int)]
    if sizes and lora.rank > max(sizes):
        raise ValueError(
            f"a LoRA rank of {lora.rank} is more than the widest layer of {path} has ({max(sizes)}), so the adapters "
            "would be larger than what they adapt; pass --lora 16, or leave it out to train all weights"
        )


def check_stored(path: Path, lora: Lora) -> None:
    """Raise ValueError where adapters of a directory are to be trained on and are others than `lora` asks for.

    What was left at its default is taken from the directory, apart from the rank.
    """
    rank, told = stored_rank(path), read_json(path / "adapter_config.json") or {}
    if rank != lora.rank:
        raise ValueError(
            f"{path} holds LoRA adapters of rank {rank}; --lora {rank} goes on training them, and without --lora they "
            "are added into the weights, which are then all trained"
        )
    variant = "dora" if told.get("use_dora") else "rslora" if told.get("use_rslora") else "lora"
    targets, whole = told.get("target_modules"), told.get("modules_to_save")
    differing = {
        "alpha": (lora.alpha, told.get("lora_alpha"), lora.alpha is None),
        "variant": (lora.variant, variant, lora.variant == Lora.variant),
        "targets": (_joined(lora.targets), _joined(targets), lora.targets == Lora.targets),
        "save": (_joined(lora.whole), _joined(whole), not lora.whole),
    }
    for flag, (wanted, stored, unsaid) in differing.items():
        if not unsaid and wanted != stored:
            raise ValueError(
                f"{path} holds LoRA adapters with {flag} {stored or 'none'}, and --lora-{flag} {wanted} cannot change "
                f"them; leave --lora-{flag} out"
            )


def _joined(names: str | Iterable[str] | None) -> str:
    """Names of layers as one text, in order."""
    return names if isinstance(names, str) else ",".join(sorted(names or ()))


def stored_rank(path: Path) -> int:
    """The rank of the adapters in a directory; ValueError for adapters of another kind."""
    told = read_json(path / "adapter_config.json") or {}
    if told.get("peft_type") != "LORA" or not isinstance(told.get("r"), int):
        raise ValueError(
            f"{path} holds adapters of type {str(told.get('peft_type'))[:40]!r}, and burnish trains LoRA; merge them "
            "into their model with peft first"
        )
    return int(told["r"])


def _peft() -> ModuleType:
    try:
        import peft
    except ImportError:
        raise ValueError("LoRA needs peft: pip install 'burnish[lora]'") from None
    return peft


def merged(model: nn.Module) -> nn.Module:
    """A plain model with the adapters added into the weights, in the host's memory; the original is left as it is.

    A GPU that is full with the model itself has no room for a second one.
    """
    on_host = {id(p): nn.Parameter(p.detach().cpu(), p.requires_grad) for p in model.parameters() if not p.is_cpu}
    adapted: Any = copy.deepcopy(model, on_host).cpu()
    if any(isinstance(part, Nf4Linear) for part in adapted.modules()):
        make_dense(adapted, next(p.dtype for n, p in adapted.named_parameters() if n.endswith("norm.weight")))
    _part_head_and_table(adapted)
    plain: TransformersModel = adapted.merge_and_unload()
    head: nn.Linear | None = plain.get_output_embeddings()
    table = plain.get_input_embeddings()
    if head is not None and head.weight is not table.weight and not torch.equal(head.weight, table.weight):
        config: Any = plain.config
        config.tie_word_embeddings = False  # one of them was trained by itself
    return plain


def _part_head_and_table(adapted: PeftModel) -> None:
    """Give the head weights of its own where it shares the table's and one of both is adapted: else the adapters of one
    would be added to the other as well."""
    base: Any = adapted.get_base_model()
    layers = [layer for layer in (base.get_output_embeddings(), base.get_input_embeddings()) if layer is not None]
    plain = [layer.get_base_layer() if hasattr(layer, "get_base_layer") else layer for layer in layers]
    if len(plain) == 2 and plain != layers and plain[0].weight is plain[1].weight:
        plain[0].weight = nn.Parameter(plain[0].weight.detach().clone())


def is_lora(model: nn.Module) -> bool:
    return "peft" in type(model).__module__


def is_adapter_weight(name: str) -> bool:
    """Whether a tensor of an adapted model belongs to its adapters: is trained and saved."""
    return "lora_" in name or ".modules_to_save." in name
