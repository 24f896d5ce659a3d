"""The GPU kernels, run by Triton's interpreter on the CPU: the same source, the same numbers as plain torch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="the GPU kernels need triton, which comes with torch's CUDA builds")

DECODE = """
from burnish.cast.engine import kernels
for window in (1 << 30, 20, 60):
    rows, shared, group, d, capacity = 3, 2, 3, 16, 40
    q, k, v = torch.randn(rows, shared * group, 1, d), torch.randn(rows, shared, 1, d), torch.randn(rows, shared, 1, d)
    own_k, own_v = torch.randn(2, rows, shared, capacity, d)
    pool_k, pool_v = torch.randn(2, 200, shared, d)
    count, root, length = torch.tensor([1, 7, 33]), torch.tensor([0, 100, 100]), torch.tensor([90, 70, 70])
    slot = torch.tensor([2, 0, 1])
    out = kernels._decode(q, k, v, own_k, own_v, pool_k, pool_v, count, root, length, slot, 0.25, window)
    for i in range(rows):
        j, n = slot[i], count[i] - 1
        assert torch.equal(own_k[j, :, n], k[i, :, 0]) and torch.equal(own_v[j, :, n], v[i, :, 0])
        keys, values = (
            torch.cat([pool[root[i] : root[i] + length[i]].transpose(0, 1), own[j, :, : n + 1]], 1)[:, -window:]
            for pool, own in ((pool_k, own_k), (pool_v, own_v))
        )
        keys, values = (x.repeat_interleave(group, 0) for x in (keys, values))
        wanted = torch.nn.functional.scaled_dot_product_attention(q[i], keys, values, scale=0.25)
        assert torch.allclose(out[i, 0], wanted[:, 0], atol=1e-5)
"""

SAMPLE = """
from burnish.cast.engine import kernels
from burnish.cast.engine.rows import Rows
ours, plain = (Rows(4, 10, (5, 9), torch.device("cpu")) for _ in range(2))
state = {"limit": [10, 10, 2, 10], "key": [1, -2, 3, 4], "root_length": [3, 0, 5, 6], "base": [0, 4, 0, 0]}
state |= {"factor": [1.0, 2.0, 1.0, 1.0], "greedy": [0, 0, 0, 1], "slot": [3, 1, 0, 2]}
for rows in (ours, plain):
    rows.put(slice(0, 4), state)
for size in (9000, 300, 9000, 12):
    logits = torch.randn(4, size) * 2
    kernels.sample(ours, slice(0, 4), logits)
    plain.sample(logits, slice(0, 4), False)
for name in ("tokens", "count", "last", "done", "ended"):
    assert torch.equal(getattr(ours, name), getattr(plain, name)), name
assert torch.allclose(ours.logp, plain.logp, atol=1e-5) and ours.done.tolist()[2]
"""

HEAD = """
from burnish.cast import gpu
logits, chosen, factor = torch.randn(5, 5000) * 2, torch.randint(0, 5000, (5,)), 0.7
lse, logp, entropy = torch.zeros(3, 5)
gpu.from_logits(logits, chosen, factor, lse, logp, entropy, True)
live = logits.clone().requires_grad_()
logs = torch.log_softmax(live * factor, -1)
wanted, spread = logs.gather(-1, chosen[:, None])[:, 0], -(logs.exp() * logs).sum(-1)
assert torch.allclose(logp, wanted, atol=1e-5) and torch.allclose(entropy, spread, atol=1e-5)
g, h = torch.randn(2, 5)
both = torch.autograd.grad((wanted * g + spread * h).sum(), live, retain_graph=True)[0]
alone = torch.autograd.grad((wanted * g).sum(), live)[0]
assert torch.allclose(gpu.d_logits(logits, chosen, factor, lse, entropy, g, h, torch.float32), both, atol=1e-6)
assert torch.allclose(gpu.d_logits(logits, chosen, factor, lse, entropy, g, None, torch.float32), alone, atol=1e-6)
"""

JOIN = """
from burnish.cast import gpu
out, seen = torch.randn(2, 40, 3, 16)
lse, weight = torch.randn(3, 60).t()[20:], torch.randn(3, 40).t()  # of different strides, as the kernels leave them
share, both = torch.sigmoid(weight - lse)[..., None], torch.logaddexp(lse, weight)
wanted = torch.lerp(out, seen, share)
gpu.join(out, lse, seen, weight)
assert torch.allclose(out, wanted, atol=1e-6) and torch.allclose(lse, both, atol=1e-6)
"""


ENGINE = """
import sys, tempfile
from pathlib import Path
sys.path.insert(0, "tests")
from conftest import SMALL, make_model
from burnish.cast import load, local
from burnish.cast.engine import graphs, store
from burnish.cast.local import Request
from burnish.cast.roles import stage
from burnish.cast.stage import build
load.shape_of = lambda path: None  # on a GPU every model is transformers' own
policy = build(stage(), make_model(Path(tempfile.mkdtemp()), hidden_size=64), SMALL, device="cpu")["policy"]
prompts = [torch.randint(4, 200, (n,), generator=torch.Generator().manual_seed(n)) for n in (3, 20, 9)]
asked = [Request(prompts[k % 3], k, 20 if k == 2 else 3) for k in range(7)] + [Request(prompts[0], 99, 12)]  # enters alone
alone = [policy.generate([request])[0] for request in asked]
store.on_gpu = lambda device: True  # slots that rows point to, sizes beyond the living rows, news one step late
graphs.SIZES = (7,)
for rows in (7, 7, 5):  # the workplace is kept from call to call where it serves
    local.MAX_ROWS = {"cpu": rows}
    for mine, other in zip(policy.generate(asked), alone, strict=True):
        assert torch.equal(mine.tokens, other.tokens) and mine.stopped == other.stopped
        assert torch.allclose(mine.logp, other.logp, atol=1e-4)
"""


@pytest.mark.parametrize(
    "what", [DECODE, SAMPLE, HEAD, JOIN, ENGINE], ids=["decode", "sample", "head", "join", "the engine as on a GPU"]
)
def test_a_kernel_equals_plain_torch(what: str) -> None:
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}  # read when triton is imported
    done = subprocess.run(
        [sys.executable, "-c", "import torch\ntorch.manual_seed(0)\n" + what], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
