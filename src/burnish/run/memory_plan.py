"""What a run will hold in a GPU's memory, predicted before anything is loaded; and choices that make it fit.

The peak is where the backward pass begins: weights, gradients, moments, the KV cache, which stays for its CUDA graphs,
and the activations of one micro-batch. Against twelve runs of 135M to 8B weights on an H200 the sum is within 10% of
torch's peak in all but one, which is 16% higher (tests/run/test_memory_plan.py). What the allocator reserves beyond
that, for fragments and CUDA graphs, is not in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from burnish.core.method import Method
from burnish.core.roles import Role
from burnish.engine.kv_cache import KEPT
from burnish.forward.packing import KEYS
from burnish.models.decoder_shape import HALF, DecoderShape
from burnish.models.known_models import resolve
from burnish.models.lora import Lora
from burnish.models.sharded_states import BUCKET, IN_FLIGHT
from burnish.models.token_budget import LEAST, busy
from burnish.run.lengths import Needs

GIB = 2**30
UNITS = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9, "g": 2**30}
PROMPT = 256  # tokens that a prompt is taken to have
MOMENTS = {"adamw": 8.0, "adamw16bit": 4.0, "adamw8bit": 2 + 8 / 256}  # bytes a weight
HELD = {"float32": 4 + HALF, "split": 4, "bfloat16": HALF}  # bytes of a trained weight and of its compute copy
OFFLOADED = 3  # layers whose activations are on the GPU at once: one computes, one leaves, one comes back


@dataclass(frozen=True)
class Choices:
    """What decides how much memory a run takes, apart from its models."""

    token_budget: int
    activations: str = "off"
    optimiser: str = "adamw"
    quantised: bool = False
    master_weights: str = "float32"
    shard: str = "off"  # what the ranks divide
    ranks: int = 1
    kv: int | None = None  # bytes of the KV cache; None: as many as all replies of a step take together


@dataclass(frozen=True)
class Batch:
    """What a step samples: replies, their longest length, prompts and theirs. Zeros where it samples nothing."""

    replies: int = 0
    reply: int = 0
    prompts: int = 0
    prompt: int = 0


def read_memory(text: str) -> int:
    """Bytes from a size such as 24GiB."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    unit = UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None or float(match[1]) <= 0:
        raise ValueError(f"--memory is {text!r}; it is a size such as 24GiB, with its unit")
    return int(float(match[1]) * unit)


def parts_of(
    shapes: Mapping[str, DecoderShape], roles: Mapping[str, Role], lora: Lora | None, batch: Batch, how: Choices
) -> dict[str, float]:
    """Bytes by what they are for, at the peak."""
    parts = {"weights": 0.0, "gradients": 0.0, "optimiser": 0.0}
    shared: set[str] = set()
    if how.shard == "full":
        parts |= _divided(shapes, roles, lora, how)
    for name, role in roles.items() if how.shard != "full" else ():
        shape = shapes[name]
        adapted = lora is not None and not (role.outputs and role.liveness == "frozen")
        if adapted and (role.liveness != "frozen" or role.source in shared):
            if role.source not in shared:
                parts["weights"] += shape.frozen_bytes(how.quantised)
                shared.add(role.source)
            trained = shape.lora_weights(lora.rank) if lora is not None and role.liveness != "frozen" else 0
        else:
            trained = shape.weights if role.liveness == "trained" else 0
            parts["weights"] += 0 if trained else HALF * shape.weights
        if role.liveness == "trained":
            parts["weights"] += (4 + HALF if adapted else held_bytes(how)) * trained
            parts["gradients"] += 4 * trained / (how.ranks if how.shard == "states" else 1)
            parts["gradients"] += min(4 * trained, IN_FLIGHT * BUCKET * 4) if how.shard == "states" else 0
            parts["optimiser"] += MOMENTS[how.optimiser] * trained / (how.ranks if how.shard != "off" else 1)
    learns = [shapes[name] for name, role in roles.items() if role.liveness == "trained"]
    widest = max(learns, key=lambda shape: shape.activation_bytes(), default=next(iter(shapes.values())))
    cache = float(kv_bytes(widest, batch, how.kv))
    tokens = max(how.token_budget, batch.reply + batch.prompt if batch.replies else 0)  # a row is not cut
    parts["activations"] = tokens * widest.activation_bytes(how.activations == "recompute")
    if how.activations == "recompute":
        parts["activations"] += tokens * widest.layer_bytes()
    if how.activations == "offload":
        parts["activations"] *= min(1.0, OFFLOADED / widest.layers)
    if cache <= KEPT:
        return {**parts, "KV cache": cache}
    return {**parts, "KV cache, beyond what the learner takes": max(0.0, cache - parts["activations"])}


def _divided(
    shapes: Mapping[str, DecoderShape], roles: Mapping[str, Role], lora: Lora | None, how: Choices
) -> dict[str, float]:
    """Bytes of models whose layers the ranks divide (--shard full). What is outside the layers is whole, in bf16."""
    parts = {"weights": 0.0, "gradients": 0.0, "optimiser": 0.0}
    for name, role in roles.items():
        shape = shapes[name]
        moves, adapted = role.liveness == "trained", lora is not None and role.liveness != "frozen"
        outside = shape.weights - shape.linear
        trained = 0 if not moves else shape.lora_weights(lora.rank) if adapted and lora is not None else shape.weights
        layers = 4 * shape.linear if moves and not adapted else HALF * shape.linear
        parts["weights"] += layers / how.ranks + HALF * outside
        parts["weights"] += 4 * (trained if adapted else outside if moves else 0) / how.ranks
        parts["gradients"] += 4 * trained / how.ranks + (4 * outside if moves and not adapted else 0)
        parts["optimiser"] += MOMENTS[how.optimiser] * trained / how.ranks
    widest = max(shape.linear / shape.layers for shape in shapes.values())
    return {**parts, "gathered layers": 2 * HALF * widest + 4 * widest}  # one computes, one arrives, one leaves


def kv_bytes(shape: DecoderShape, batch: Batch, most: int | None) -> int:
    """The KV cache of a step. most: its limit, beyond which replies wait until others have ended."""
    whole = kv_tokens(batch) * shape.kv_bytes()
    return whole if most is None else min(whole, most)


def least_kv(shape: DecoderShape, batch: Batch) -> int:
    """Bytes of the KV cache for one reply after one prompt: less serves no reply at all."""
    return (batch.reply + KEYS + batch.prompt) * shape.kv_bytes() if batch.replies else 0


def held_bytes(how: Choices) -> float:
    """Bytes of a trained weight, of its compute copy, and of what bf16 lacks of it."""
    if how.shard != "states" and not (how.shard == "optimiser" and how.master_weights == "split"):
        return HELD[how.master_weights]
    divided = {"float32": 4, "split": HALF, "bfloat16": 0}[how.master_weights]
    return HALF + divided / how.ranks


def kv_tokens(batch: Batch) -> int:
    """Tokens that the KV cache holds: a slot has room for what a prompt has beyond whole blocks of keys, too."""
    return batch.replies * (batch.reply + KEYS) + batch.prompts * batch.prompt


def fitted(
    shapes: Mapping[str, DecoderShape],
    roles: Mapping[str, Role],
    lora: Lora | None,
    batch: Batch,
    start: Choices,
    memory: int,
) -> Choices:
    """The choices with which a run fits, tried from the fastest on; ValueError if none does.

    Smaller micro-batches first, then recomputed activations, then a smaller KV cache, in which replies wait for each
    other; then moments in 8 bits, then weights in two halves; never weights in bf16 alone or in four bits, which change
    what is trained.
    """
    largest = min(start.token_budget, max(busy(shape) for shape in shapes.values()))
    budgets = [largest >> k for k in range(12) if largest >> k >= min(LEAST, largest)] or [largest]
    same = [start]  # what these choices compute is the same
    if start.activations == "off":
        same.append(replace(start, activations="recompute"))
    rounds = [same]
    if start.optimiser == "adamw":
        rounds.append([replace(one, optimiser="adamw8bit") for one in same])
    if start.master_weights == "float32" and lora is None:
        rounds.append([replace(rounds[-1][-1], master_weights="split")])
    tried = [
        replace(one, token_budget=budget, kv=cache)
        for group in rounds
        for cache in _caches(shapes, batch, start.kv)
        for one in group
        for budget in budgets
    ]
    for one in tried:
        if sum(parts_of(shapes, roles, lora, batch, one).values()) <= memory:
            return one
    least = min(sum(parts_of(shapes, roles, lora, batch, one).values()) for one in tried)
    hint = "--quantization nf4" if lora is not None and not start.quantised else "--lora 16, a smaller batch or model"
    raise ValueError(
        f"the run needs at least {_gib(least)}, and --memory gives it {_gib(memory)}; use {hint}"
        + (", or a smaller --kv-gib" if start.kv is not None else "")
    )


def _caches(shapes: Mapping[str, DecoderShape], batch: Batch, given: int | None) -> list[int | None]:
    """Sizes of the KV cache, the largest first; only the one that was asked for, if one was."""
    if given is not None or not batch.replies:
        return [given]
    widest = max(shapes.values(), key=lambda shape: shape.kv_bytes())
    whole, least = kv_tokens(batch) * widest.kv_bytes(), least_kv(widest, batch)
    return [None, *(whole >> k for k in range(1, 40) if whole >> k > least), least]


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / 2**20:.0f} MiB"


def shapes_of(roles: Mapping[str, Role], base: Path) -> dict[str, DecoderShape]:
    """The shapes of a method's models by name, from their directories."""
    return {
        name: DecoderShape.of(base if role.source == "base" else resolve(role.source)) for name, role in roles.items()
    }


def batch_of(method: Method, prompts: int, reply: int, max_length: int | None, ranks: int = 1) -> Batch:
    """What a step of a method samples on one GPU: ranks divide its prompts. Prompts that are not known yet are taken to
    be 256 tokens long.
    """
    prompts = -(-prompts // max(1, ranks))
    plain = [phase.rollout.plain for phase in method.phases if phase.rollout.plain is not None]
    samples = Needs.of(method).samples
    prompt = max(1, max_length - reply) if max_length is not None and samples else PROMPT
    replies = prompts * max(plain, default=1) if samples else 0
    return Batch(replies, reply if samples else 0, prompts if samples else 0, prompt)
