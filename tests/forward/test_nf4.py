"""Frozen weights in four bits (QLoRA): the numbers, the gradient, the GPU kernels, and whole runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_model
from guards import guards
from runs import halted_after
from test_gpu_kernels import interpreted
from torch import nn

import burnish
from burnish.api.train import resume
from burnish.checkpoint.diff import differences
from burnish.forward.nf4 import CODES, Nf4, Nf4Linear, make_dense, quantise_linears
from burnish.models.loader import Loader, share_parameters
from burnish.models.lora import Lora, add_lora, merged

pytestmark = guards("kernels", "forward", "models/load.py", "models/loader.py")


def test_a_block_by_hand() -> None:
    """The largest weight of the block is 2, so 2 is code 15; 0 is code 7; -2 is code 0; 1.1 / 2 = 0.55 is nearest to
    code 13 (0.5626), which gives 1.1252; 0.04 is nearest to code 8 below the midpoint 0.0398 x 2 = 0.0796: code 7.
    """
    weight = torch.zeros(1, 64)
    weight[0, :5] = torch.tensor([2.0, 0.0, -2.0, 1.1, 0.04])
    held = Nf4.of(weight)
    assert held.packed[0, :3].tolist() == [15 << 4 | 7, 0 << 4 | 13, 7 << 4 | 7]
    assert held.scales.view(torch.float16).tolist() == [[2.0]]
    found = held.dense(torch.float32)[0, :5]
    assert torch.equal(found, torch.tensor([2.0, 0.0, -2.0, 2 * CODES[13], 0.0]))


def test_every_code_comes_back_and_the_error_is_bounded() -> None:
    table = torch.tensor(CODES)
    weight = table.repeat(4)[None] * 0.5
    assert torch.equal(Nf4.of(weight).dense(torch.float32), weight)
    torch.manual_seed(0)
    drawn = torch.randn(32, 256)
    error = (Nf4.of(drawn).dense(torch.float32) - drawn).view(32, 4, 64).abs().amax(-1)
    largest = drawn.view(32, 4, 64).abs().amax(-1)
    half = float((table[1:] - table[:-1]).max() / 2)
    assert bool((error <= largest * (half + 1e-3)).all())
    assert float((Nf4.of(drawn).dense(torch.float32) - drawn).pow(2).mean()) < 0.01  # NF4 of normal weights: 0.0093
    assert torch.equal(Nf4.of(torch.zeros(2, 64)).dense(torch.float32), torch.zeros(2, 64))


def test_a_linear_map_and_its_gradient_are_those_of_the_dense_weights() -> None:
    torch.manual_seed(0)
    plain = nn.Linear(128, 24)
    owner = nn.Module()
    owner.proj, owner.gate, owner.odd = plain, nn.Linear(64, 8), nn.Linear(30, 8)
    assert quantise_linears(owner, torch.device("cpu")) == 1  # not a router, not rows of 30
    four: Any = owner.proj
    assert isinstance(four, Nf4Linear) and four.weight.dtype == torch.uint8
    x = torch.randn(5, 128, requires_grad=True)
    dense = four.held.dense(torch.float32)
    want = nn.functional.linear(x, dense, plain.bias)
    (of_dense,) = torch.autograd.grad(want.square().sum(), x)
    (found,) = torch.autograd.grad(four(x).square().sum(), x)
    assert torch.equal(four(x), want) and torch.allclose(found, of_dense, rtol=1e-5)
    make_dense(owner, torch.float32)
    assert type(owner.proj) is nn.Linear and torch.equal(owner.proj.weight, dense)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("wide"), hidden_size=64, intermediate_size=128)


def test_policy_and_reference_share_the_codes_and_adapters_merge(model: Path) -> None:
    pytest.importorskip("peft", reason="LoRA needs peft")
    lora = Lora(4, quantization="nf4")
    base = Loader(torch.device("cpu"), lora)._shared(model)
    again = share_parameters(base)
    assert [id(p) for p in base.parameters()] == [id(p) for p in again.parameters()]
    adapted = add_lora(base, lora)
    for name, p in adapted.named_parameters():
        assert p.requires_grad == ("lora_" in name)
        if "lora_B" in name:
            p.data.normal_(std=0.1)
    tokens = torch.arange(4, 20)[None]
    with torch.no_grad():
        both = merged(adapted)(tokens).logits, adapted(tokens).logits
    assert torch.allclose(*both, atol=1e-4)
    with pytest.raises(ValueError, match="DoRA reads the norms"):
        Lora(4, variant="dora", quantization="nf4")


def test_a_run_in_four_bits_learns_resumes_and_saves(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft", reason="LoRA needs peft")
    options = {"model": str(model), "task": "sort", "prompts": 2, "max_new_tokens": 6, "eval_tasks": 0, "lr": 1e-2}
    options |= {"lora": 4, "quantization": "nf4", "device": "cpu", "steps": 4, "save_every": 2, "n": 2}
    burnish.train("grpo", out=str(tmp_path / "whole"), **options)
    resume(halted_after(2, tmp_path / "whole", tmp_path / "halted"))
    assert not differences(tmp_path / "whole", tmp_path / "halted")
    found = json.loads((tmp_path / "whole" / "model" / "adapter_config.json").read_text())
    assert found["r"] == 4
    wide = burnish.train("sft", out=str(tmp_path / "merged"), **_without(options, "n"), merge=True)
    loaded, _ = wide.load()
    assert loaded.model.layers[0].mlp.down_proj.weight.shape == (64, 128)
    with pytest.raises(ValueError, match=r"--quantization nf4 is for frozen weights under LoRA adapters; add --lora"):
        burnish.train("sft", out=str(tmp_path / "no"), model=str(model), task="sort", steps=1, quantization="nf4")


def _without(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in names}


KERNELS = """
import transformers
from burnish.engine import kv_cache
from burnish.forward import attention, packing
from burnish.forward.nf4 import Nf4, quantise_linears
from burnish.forward.outputs import outputs
from burnish.forward.runner import TransformersRunner
from burnish.kernels.triton import nf4
from burnish.kernels.triton.fused_qkv import join_projections
from burnish.kernels.triton.runner import TritonRunner
from burnish.kernels.cuda_graphs.prefill import GpuDecoder
from burnish.engine.batch import RunningBatch
from burnish.engine.kv_cache import Plan
from peft import LoraConfig, get_peft_model

for rows, columns in ((3, 64), (70, 128), (33, 192)):
    held = Nf4.of(torch.randn(rows, columns))
    out = torch.empty(rows, columns)
    nf4.dense(held.packed, held.scales.view(torch.float16), out)
    assert torch.equal(out, held.dense(torch.float32))

sizes = dict(vocab_size=99, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=2)
sizes |= dict(num_key_value_heads=1, head_dim=32, max_position_embeddings=128, pad_token_id=0)
rows = [torch.randint(0, 99, (n,)) for n in (9, 13, 6)]
masks = [torch.arange(len(row)) >= 4 for row in rows]
config = transformers.Qwen2Config(**sizes)
config._attn_implementation = attention.register()
model = transformers.AutoModelForCausalLM.from_config(config)
for p in model.parameters():
    p.data.add_(torch.randn_like(p) * 0.2)
assert quantise_linears(model, torch.device("cpu")) == 21
model.requires_grad_(False)
model = get_peft_model(model, LoraConfig(r=4, lora_alpha=12, task_type="CAUSAL_LM", target_modules="all-linear")).eval()
for name, p in model.named_parameters():
    if "lora_B" in name:
        p.data.normal_(std=0.2)
join_projections(model)

def learn(ours, recomputes=False):
    packing.on_gpu = lambda device: ours
    runner = TritonRunner(model, recomputes=recomputes) if ours else TransformersRunner(model)
    assert runner.accelerated == ours
    trained = [p for p in model.parameters() if p.requires_grad]
    logp = outputs(runner, rows, masks, {"logp"})["logp"]
    return [logp.detach(), *torch.autograd.grad((logp * torch.linspace(-1, 1, len(logp))).sum(), trained)]

theirs = learn(False)
for mine in (learn(True), learn(True, recomputes=True)):
    for a, b in zip(mine, theirs, strict=True):
        assert (a - b).norm() <= 2e-5 * b.norm(), float((a - b).norm() / b.norm())

@torch.no_grad()
def decode(ours):
    packing.on_gpu = kv_cache.on_gpu = lambda device: True
    decoder = GpuDecoder(TransformersRunner(model), Plan(3, 12, 20))
    assert decoder.fused is not None and decoder.fused.room is not None and not decoder.fused.late
    if not ours:
        decoder.fused = None
    decoder.prefill([torch.arange(6), torch.arange(11)], torch.arange(17).numpy())
    state = RunningBatch(3, 12, (1,), torch.device("cpu"))
    state.put(slice(0, 3), dict(root=[0, 6, 6], root_length=[6, 11, 11], slot=[2, 0, 1], limit=[9] * 3))
    decoder.bring(state, slice(0, 3))
    state.count[:], state.last[:] = 1, torch.tensor([5, 6, 7])
    found = decoder.step(state, slice(0, 3), None)
    decoder.cache.release()
    return found

assert torch.allclose(decode(True), decode(False), atol=2e-5)
"""


def test_the_gpu_kernels_compute_with_four_bits() -> None:
    pytest.importorskip("triton", reason="the GPU kernels need triton (burnish[test], on Linux with x86-64)")
    pytest.importorskip("peft", reason="LoRA needs peft")
    interpreted(KERNELS)
