"""LoRA in the GPU kernels, run by Triton's interpreter on the CPU: the numbers and gradients of peft's own modules."""

from __future__ import annotations

import pytest
from guards import guards
from test_gpu_kernels import interpreted

pytestmark = guards("kernels", "engine", "forward")

pytest.importorskip("triton", reason="the GPU kernels need triton (burnish[test], on Linux with x86-64)")
pytest.importorskip("peft", reason="LoRA needs peft")

LORA = """
import copy
import transformers
from peft import LoraConfig, get_peft_model
from burnish.engine import kv_cache
from burnish.engine.batch import RunningBatch
from burnish.engine.kv_cache import Plan
from burnish.forward import attention, packing
from burnish.forward.module import decoder as decoder_of
from burnish.forward.outputs import outputs
from burnish.forward.runner import TransformersRunner
from burnish.kernels.cuda_graphs.prefill import GpuDecoder
from burnish.kernels.triton import decoder as fused
from burnish.kernels.triton import late_stream
from burnish.kernels.triton.fused_qkv import join_projections
from burnish.kernels.triton.runner import TritonRunner

sizes = dict(vocab_size=99, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=2)
sizes |= dict(num_key_value_heads=1, head_dim=32, max_position_embeddings=128, pad_token_id=0)
rows = [torch.randint(0, 99, (n,)) for n in (9, 13, 6)]
masks = [torch.arange(len(row)) >= 4 for row in rows]

def adapted(kind, joined=True, **how):
    config = getattr(transformers, kind + "Config")(**sizes)
    config._attn_implementation = attention.register()
    model = transformers.AutoModelForCausalLM.from_config(config)
    model = get_peft_model(model, LoraConfig(r=4, lora_alpha=12, task_type="CAUSAL_LM", **how)).eval()
    for p in model.parameters():
        p.data.add_(torch.randn_like(p) * 0.2)
    if joined:
        join_projections(model)
    return model

def learn(model, ours, recomputes=False, exact=False):
    packing.on_gpu = lambda device: ours
    runner = TritonRunner(model, exact, recomputes) if ours else TransformersRunner(model)
    assert runner.accelerated == ours
    trained = [p for p in model.parameters() if p.requires_grad]
    logp = outputs(runner, rows, masks, {"logp"})["logp"]
    return [logp.detach(), *torch.autograd.grad((logp * torch.linspace(-1, 1, len(logp))).sum(), trained)]

@torch.no_grad()
def decode(model, ours, exact=False):
    packing.on_gpu = kv_cache.on_gpu = lambda device: True
    decoder = GpuDecoder(TransformersRunner(model), Plan(3, 12, 20))
    if not ours:
        decoder.fused = None
    else:
        assert decoder.fused is not None and decoder.fused.adapters
        decoder.fused.exact = exact
        assert decoder.fused.late == (fused.OURS_ADAPTED > 0 and not exact)
    decoder.prefill([torch.arange(6), torch.arange(11)], torch.arange(17).numpy())
    state = RunningBatch(3, 12, (1,), torch.device("cpu"))
    state.put(slice(0, 3), dict(root=[0, 6, 6], root_length=[6, 11, 11], slot=[2, 0, 1], limit=[9] * 3))
    decoder.bring(state, slice(0, 3))
    state.count[:], state.last[:] = 1, torch.tensor([5, 6, 7])
    found = decoder.step(state, slice(0, 3), None)
    decoder.cache.release()
    return found

def same(mine, theirs):
    for a, b in zip(mine, theirs, strict=True):
        assert (a - b).norm() <= 2e-5 * b.norm(), float((a - b).norm() / b.norm())

PRODUCTS = ((0, 0), (1024, 1024), (1024, 0))  # a library's; ours; ours, but gate and up by a library
some = ("Qwen2", ["q_proj", "v_proj", "down_proj"]), ("Qwen3", ["k_proj", "up_proj"])
for kind, targets in (("Llama", "all-linear"), *some):
    model = adapted(kind, target_modules=targets)
    theirs = learn(model, False)
    for fused.OURS_ADAPTED, late_stream.OWN_GATE in PRODUCTS:
        same(learn(model, True), theirs)
        assert torch.allclose(decode(model, True), decode(model, False), atol=2e-5), kind
    same(learn(model, True, recomputes=True), theirs)
    if kind == "Llama":
        same(learn(model, True, exact=True), theirs)
        assert torch.allclose(decode(model, True, exact=True), decode(model, False), atol=2e-5)
    packing.on_gpu = lambda device: True
    runner = TritonRunner(model)
    with torch.no_grad():
        before = outputs(runner, rows, masks, {"logp"})["logp"]
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.mul_(1.5)
        runner.weights_moved()  # the matrices derived from the adapters follow them
        after = outputs(runner, rows, masks, {"logp"})["logp"]
        packing.on_gpu = lambda device: False
        wanted = outputs(TransformersRunner(model), rows, masks, {"logp"})["logp"]
    assert not torch.allclose(before, after, atol=1e-3) and torch.allclose(after, wanted, atol=2e-5)
    for adapter in runner.fused.adapters:
        outputs_of_all = len(adapter.wide)
        assert adapter.whole is not None and torch.equal(adapter.whole[outputs_of_all:], adapter.a)
        for part in adapter.parts:
            b = part.scale * part.b.detach()
            assert torch.equal(adapter.narrow[: len(part.a), part.outputs], b.t())

first = adapted("Qwen2", joined=False, target_modules="all-linear")  # two models on the same frozen weights
frozen = {id(p): p for p in first.parameters() if not p.requires_grad}
second = copy.deepcopy(first, frozen)
for model in (first, second):
    for name, p in model.named_parameters():
        if "lora_" in name:
            p.data.add_(torch.randn_like(p) * 0.2)
wanted = [decode(model, False) for model in (first, second)]
for model in (first, second):
    join_projections(model)
fused.OURS_ADAPTED = 0
for model, other in ((first, wanted[0]), (second, wanted[1]), (first, wanted[0])):
    assert torch.allclose(decode(model, True), other, atol=2e-5), "each has its own adapters"
spare = [a.whole is not None for model in (first, second) for a in fused.FusedDecoder.of(decoder_of(model)).adapters]
assert all(spare[:8]) and not any(spare[8:]), "the first one has the spare rows"

packing.on_gpu = lambda device: True
for how in (dict(use_dora=True), dict(lora_dropout=0.1)):  # what the kernels do not compute is left to the modules
    assert not TritonRunner(adapted("Llama", target_modules="all-linear", **how)).accelerated
"""


def test_adapters_in_the_kernels_are_pefts() -> None:
    interpreted(LORA)
