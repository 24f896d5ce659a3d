"""Any decoder of transformers, by one registered attention: packed rows and sampled tokens equal the plain forward."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from burnish.engine.local import LocalEngine, Request
from burnish.forward import attention
from burnish.forward.outputs import decoder, head, outputs
from burnish.forward.runner import runner_of

SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 60,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}
OWN: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "granite": {"logits_scaling": 4.0},
    "cohere": {},
    "olmo2": {},
    "mistral": {"sliding_window": None},
    "mistral, every layer in a window": {"sliding_window": 6},
    "gemma3_text": {"final_logit_softcapping": 5.0, "sliding_window": 4, "num_hidden_layers": 7},
    "qwen2, later layers in a window": {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
}


def make(name: str) -> nn.Module:
    kind = name.split(",")[0]
    shape = {key: value for key, value in SHAPE.items() if kind != "gpt2" or "token_id" in key or key == "vocab_size"}
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**shape, "initializer_range": 0.3, **OWN[name]})
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention.register()).eval()


class Stops:
    stops = (1,)

    def text(self, tokens: torch.Tensor) -> str:
        return "".join(chr(64 + int(t)) for t in tokens)


@pytest.fixture(params=OWN)
def model(request: pytest.FixtureRequest) -> nn.Module:
    return make(request.param)


def rows_of() -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Rows of many lengths, some of which begin alike."""
    start = [torch.randint(3, 60, (n,), generator=torch.Generator().manual_seed(n)) for n in (7, 3)]
    ends = [torch.randint(3, 60, (n,), generator=torch.Generator().manual_seed(40 + n)) for n in (9, 2, 5, 1, 6)]
    rows = [torch.cat([start[i % 2], end]) for i, end in enumerate(ends)]
    return rows, [torch.arange(len(row)) >= len(start[i % 2]) for i, row in enumerate(rows)]


def plain(model: nn.Module, row: torch.Tensor) -> torch.Tensor:
    """[T]: log-probs by the model's own forward, without a word from us; entry 0 means nothing."""
    logp = torch.log_softmax(model(row[None]).logits[0].float(), -1)
    return torch.cat([torch.zeros(1), logp[:-1].gather(-1, row[1:, None])[:, 0]])


def test_outputs_equal_the_plain_forward(model: nn.Module) -> None:
    rows, masks = rows_of()
    with torch.no_grad():
        wanted = torch.cat([plain(model, row)[mask] for row, mask in zip(rows, masks, strict=True)])
        for packed in (True, False):
            found = outputs(runner_of(model), rows, masks, {"logp"}, packed=packed)["logp"]
            assert torch.allclose(found, wanted, atol=2e-5), f"packed={packed}"
        states = decoder(model)(rows[0][None]).last_hidden_state
        assert torch.allclose(head(model, states), model(rows[0][None]).logits, atol=1e-5)


def test_gradients_are_those_of_padded_rows(model: nn.Module) -> None:
    rows, masks = rows_of()

    def gradient(packed: bool) -> torch.Tensor:
        model.zero_grad()
        found = outputs(runner_of(model), rows, masks, {"logp", "entropy"}, packed=packed)
        weights = torch.linspace(-1, 2, len(found["logp"]))
        (weights * found["logp"] + found["entropy"]).sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    packed, padded = gradient(True), gradient(False)
    assert float((packed - padded).norm() / padded.norm()) < 1e-5


@pytest.mark.parametrize("length", [5, 20], ids=["short prompts", "prompts beyond the window"])
@pytest.mark.parametrize("share_from", [1, 64], ids=["shared in place", "copied"])
def test_the_engine_samples_what_the_plain_forward_says(
    model: nn.Module, length: int, share_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log-probs of sampled tokens are those of the plain forward, and greedy tokens are its likeliest."""
    monkeypatch.setattr("burnish.engine.strategy.SHARE_FROM", share_from)
    prompts = [torch.randint(3, 60, (length + k,), generator=torch.Generator().manual_seed(k)) for k in range(2)]
    requests = [Request(prompts[k % 2], k, 8 + k, temperature=float(k > 1)) for k in range(6)]
    for request, sample in zip(requests, LocalEngine(runner_of(model), Stops(), 64).generate(requests), strict=True):  # type: ignore[arg-type]
        whole = torch.cat([request.prompt, sample.tokens])
        with torch.no_grad():
            assert torch.allclose(plain(model, whole)[len(request.prompt) :], sample.logp, atol=2e-5)
            if not request.temperature:
                logits = model(whole[None]).logits[0, len(request.prompt) - 1 : -1]
                assert torch.equal(logits.argmax(-1), sample.tokens)


def test_projections_done_together_change_nothing() -> None:
    fused_qkv = pytest.importorskip("burnish.kernels.triton.fused_qkv")
    for name in ("llama", "qwen2", "qwen3", "gemma3_text"):
        model = make(name)
        before = list(model.parameters())
        rows, masks = rows_of()
        with torch.no_grad():
            wanted = outputs(runner_of(model), rows, masks, {"logp"})["logp"]
        joints = fused_qkv.join_projections(model)
        assert sum(isinstance(m, fused_qkv.First) for m in model.modules()) == 2 * model.config.num_hidden_layers  # type: ignore[union-attr, operator]
        with torch.no_grad():
            assert torch.allclose(outputs(runner_of(model), rows, masks, {"logp"})["logp"], wanted, atol=1e-6)
            before[0].mul_(1.0)
            for p in before:  # the joint weights follow the parameters: they are the same memory
                p.mul_(1.1)
            moved = outputs(runner_of(model), rows, masks, {"logp"})["logp"]
        outputs(runner_of(model), rows, masks, {"logp"})["logp"].sum().backward()
        assert not torch.allclose(moved, wanted, atol=1e-3)
        together = [leaf for joint in joints for leaf in joint.leaves()]  # gradients are those of the whole
        assert all(whole.grad is not None and sum(map(len, parts)) == len(whole) for whole, parts in together)
        inside = {id(part) for _, parts in together for part in parts}
        assert all(p.grad is not None for p in before if id(p) not in inside)
        with torch.no_grad():  # with gradients they are done apart, with the same result
            assert torch.allclose(moved, outputs(runner_of(model), rows, masks, {"logp"})["logp"], atol=1e-6)
