"""What a model costs per token: weights, weights that a token passes, keys and values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from burnish.models.decoder_shape import HALF, DecoderShape
from burnish.models.known_models import adapted_model
from burnish.util.files import read_json


@dataclass(frozen=True)
class Costs:
    """A decoder's sizes as the cost model needs them.

    weights    all of them;  active: those that one token passes
    kv_bytes   keys and values of one token, in bf16
    experts    of a layer, and how many a token passes; 0 for a dense model
    expert_weights  the weights that stand in experts
    """

    name: str
    weights: float
    active: float
    layers: int
    kv_bytes: float
    experts: int = 0
    per_token: int = 0
    expert_weights: float = 0.0

    @classmethod
    def of(cls, path: Path) -> Costs:
        """The costs of the model in a directory, a mixture of experts or dense."""
        shape = DecoderShape.of(path)
        told = read_json(adapted_model(path) / "config.json") or {}
        told = {**told, **(told.get("text_config") or {})}
        experts = next((told[k] for k in ("num_experts", "n_routed_experts", "num_local_experts") if told.get(k)), 0)
        per_token = told.get("num_experts_per_tok") or 0
        inner = told.get("moe_intermediate_size") or told.get("intermediate_size") or 0
        sparse = shape.layers - (told.get("first_k_dense_replace") or 0)
        routed = 3.0 * sparse * experts * shape.hidden * inner if experts and per_token else 0.0
        latent = told.get("kv_lora_rank")  # multi-head latent attention keeps one compressed vector and a rotary key
        kv = shape.kv_bytes()
        if latent:
            kv = HALF * shape.layers * (latent + (told.get("qk_rope_head_dim") or 0))
        active = shape.weights - routed * (1 - per_token / experts) if routed else shape.weights
        return cls(path.name, shape.weights, active, shape.layers, kv, experts, per_token, routed)

    def touched(self, tokens: float) -> float:
        """Weights that a pass over so many tokens reads: with experts, those that at least one token is routed to, for
        routes that are independent and even."""
        if not self.experts:
            return self.weights
        read = 1 - (1 - self.per_token / self.experts) ** tokens
        return float(self.weights - self.expert_weights * (1 - read))
