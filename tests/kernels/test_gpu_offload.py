"""Activations of the GPU kernels on the host, by Triton's interpreter on the CPU: the same gradients bit for bit."""

from __future__ import annotations

import pytest
from test_gpu_kernels import interpreted

pytest.importorskip("triton", reason="the GPU kernels need triton (burnish[test], on Linux with x86-64)")


KERNELS = """
import transformers
from burnish.forward import attention, offload, packing
from burnish.forward.outputs import outputs
from burnish.kernels.triton.fused_qkv import join_projections
from burnish.kernels.triton.runner import TritonRunner

sizes = dict(vocab_size=99, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=2)
sizes |= dict(num_key_value_heads=1, head_dim=32, max_position_embeddings=128, pad_token_id=0)
rows = [torch.randint(0, 99, (n,)) for n in (9, 13, 6)]
masks = [torch.arange(len(row)) >= 4 for row in rows]
packing.on_gpu, offload.LEAST = (lambda device: True), 1
for kind in ("Llama", "Qwen3"):
    config = getattr(transformers, kind + "Config")(**sizes)
    config._attn_implementation = attention.register()
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    joined = [leaf for joint in join_projections(model) for leaf in joint.leaves()]
    runner = TritonRunner(model)
    assert runner.accelerated
    trained = list({id(p): p for p in [*(whole for whole, _ in joined), *model.parameters()]}.values())
    found = []
    for moved in (False, True):
        if moved:
            with offload.offloaded(model) as held:
                logp = outputs(runner, rows, masks, {"logp"})["logp"]
            assert len(held.saved) >= 2 * 5, len(held.saved)  # x1, x2, qkv, attention's output, gate and up of a layer
            sizes_held = {tuple(one.host.shape) for one in held.saved}
            assert not sizes_held & {tuple(p.shape) for p in model.parameters() if p.ndim == 2}, sizes_held
        else:
            logp = outputs(runner, rows, masks, {"logp"})["logp"]
        found.append(torch.autograd.grad(logp.sum(), trained, allow_unused=True))
    for a, b in zip(*found, strict=True):
        assert (a is None) == (b is None) and (a is None or torch.equal(a, b))
    assert sum(a is not None for a in found[0]) > 8
"""


@pytest.mark.slow
def test_what_the_gpu_kernels_save_comes_back() -> None:
    """Layers in the kernels: their weights stay, their activations go and come back."""
    interpreted(KERNELS)
