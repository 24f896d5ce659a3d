"""transformers: generate as it comes, with a static cache and compilation, continuous batching, and a plain training
pass.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig, StoppingCriteria
from worker import Turns

from burnish.core.randomness import rng


def _model(work: dict[str, Any]) -> Any:
    dtype = torch.bfloat16 if work["device"] == "cuda" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(work["model"], dtype=dtype, attn_implementation="sdpa")
    model.generation_config.eos_token_id = None  # generate asks it for what its own configuration leaves open
    return model.to(work["device"]).eval()


def _rows(work: dict[str, Any]) -> list[list[int]]:
    """The prompt of every row: every prompt as often as its group is large."""
    return [ids for ids in work["prompts"] for _ in range(work["group"])]


def _plain(work: dict[str, Any], **more: Any) -> GenerationConfig:
    """Sampling from the whole distribution to the longest length; no token ends a reply."""
    return GenerationConfig(
        max_new_tokens=max(work["lengths"]),
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        eos_token_id=None,
        pad_token_id=work.get("pad", 0),
        **more,
    )


class OwnLength(StoppingCriteria):
    """Ends every row at its own length, as an end token would: the batch runs on until the longest row is done."""

    def __init__(self, start: int, lengths: list[int], device: str) -> None:
        self.ends = start + torch.tensor(lengths, device=device)

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        return input_ids.shape[1] >= self.ends


def _generate(work: dict[str, Any], turns: Turns, **more: Any) -> None:
    model, config = _model(work), _plain(work, **more)
    rows, pad = _rows(work), work.get("pad", 0)
    width = max(map(len, rows))
    ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows], device=work["device"])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=work["device"])
    uneven = len(set(work["lengths"])) > 1
    ends = [OwnLength(width, work["lengths"], work["device"])] if uneven else None
    if work.get("short_warm_up"):
        model.generate(input_ids=ids, attention_mask=mask, generation_config=config, max_new_tokens=8)
    while turns.begin():
        with torch.no_grad():
            out = model.generate(input_ids=ids, attention_mask=mask, generation_config=config, stopping_criteria=ends)
        assert out.shape[1] - width == max(work["lengths"]), out.shape
        turns.end(samples=len(rows), sampled_tokens=sum(work["lengths"]))


def generate(work: dict[str, Any], turns: Turns) -> None:
    """model.generate with its dynamic cache, as TRL calls it."""
    _generate(work, turns)


def generate_static(work: dict[str, Any], turns: Turns) -> None:
    """model.generate with a static cache; on a GPU transformers then compiles the decoding step by itself."""
    _generate(work, turns, cache_implementation="static")


def generate_batch(work: dict[str, Any], turns: Turns) -> None:
    """Continuous batching, its pool sized to the work; every request ends at its own length."""
    model, rows = _model(work), _rows(work)
    batching = ContinuousBatchingConfig(**work["continuous_batching"])
    if work.get("short_warm_up"):
        _batched(model, rows, [min(8, length) for length in work["lengths"]], _plain(work), batching)
    while turns.begin():
        done = _batched(model, rows, work["lengths"], _plain(work), batching)
        turns.end(samples=len(done), sampled_tokens=sum(len(found.generated_tokens) for found in done))


@torch.no_grad()
def _batched(model: Any, rows: list[list[int]], lengths: list[int], config: Any, batching: Any) -> list[Any]:
    """What generate_batch does, with a length for every request."""
    done: list[Any] = []
    with model.continuous_batching_context_manager(
        generation_config=config, continuous_batching_config=copy.deepcopy(batching), block=True, timeout=60
    ) as manager:
        for row, length in zip(rows, lengths, strict=True):
            manager.add_request(input_ids=row, max_new_tokens=length, eos_token_id=-1)
        while len(done) < len(rows):
            found = manager.get_result(timeout=5)
            if found is not None and found.is_finished():
                done.append(found)
            elif found is None and not manager.is_running():
                raise RuntimeError("the continuous batching thread ended before all requests were done")
    errors = [found.error for found in done if found.error]
    if errors:
        raise RuntimeError(f"{len(errors)} requests failed, the first with: {errors[0]}")
    return done


def training(work: dict[str, Any], turns: Turns) -> None:
    """Forward, backward and AdamW on one padded batch: fp32 weights, bf16 autocast on a GPU, the loss of the model."""
    device = work["device"]
    model = AutoModelForCausalLM.from_pretrained(work["model"], dtype=torch.float32, attn_implementation="sdpa")
    model.to(device).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    dice = rng("benchmark", "replies")
    rows = [
        torch.tensor(ids + [dice.randrange(2, work["vocabulary"]) for _ in range(length)])
        for ids, length in zip(_rows(work), work["lengths"], strict=True)
    ]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=work.get("pad", 0)).to(device)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(r) for r in rows], batch_first=True).to(device)
    full = bool(mask.all())
    labels = ids.masked_fill(mask == 0, -100)
    for row, prompt in enumerate(_rows(work)):
        labels[row, : len(prompt)] = -100
    size = work.get("micro", len(rows))
    while turns.begin():
        for start in range(0, len(rows), size):
            some = slice(start, start + size)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                out = model(input_ids=ids[some], attention_mask=None if full else mask[some], labels=labels[some])
            (out.loss * len(ids[some]) / len(rows)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        turns.end(samples=len(rows), processed_tokens=sum(map(len, rows)))
