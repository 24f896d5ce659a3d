"""The GPU kernels, run by Triton's interpreter on the CPU: the same source, the same numbers as plain torch."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from guards import guards

pytestmark = guards("kernels", "engine", "forward")

pytest.importorskip("triton", reason="the GPU kernels need triton (burnish[test], on Linux with x86-64)")

DECODE = """
from burnish.kernels.triton import decode_attention
from burnish.kernels.triton import kv_write
from burnish.forward.packing import KEYS
# of 1024 rows and 3 heads, 12 pairs at a time find room in each of 132 multiprocessors (228 KiB for 19): two turns of
# 12, three blocks each;
# of 256 rows 6 (38 KiB: five blocks), of 64 rows 2 (as many as are of use); spans take no turns
for pairs, spans, turns, stages in ((3072, 1, 2, 3), (1920, 1, 2, 4), (768, 1, 1, 5), (192, 1, 1, 7), (3072, 4, 1, 3)):
    found = decode_attention._walk(pairs, spans, 2 * KEYS * 128, 16 * 128, torch.device("cpu"))
    assert found == (turns, {"num_warps": 1, "num_stages": stages}), (pairs, spans, found)
# four rows of 1024 to a program leave 768 programs for 132 multiprocessors, two of 640 leave 960; more than 16 queries
# do not fit a tile
for pairs, group, d, mates, takes in (
    (3072, 3, 64, 4, 4), (3072, 3, 64, 2, 2), (3072, 3, 64, 1, 1), (1920, 3, 64, 4, 2), (960, 3, 64, 4, 1), (3072, 6, 64, 4, 2), (3072, 12, 64, 4, 1), (3072, 3, 128, 4, 1)
):
    assert decode_attention._takes(pairs, group, d, mates, torch.device("cpu")) == takes, (pairs, group, d, mates)
rows, shared, group, d, capacity = 7, 2, 3, 16, 40 + KEYS
count, root = torch.tensor([1, 7, 33, 2, 39, 1, 20]), torch.tensor([0, 100, 100, 0, 0, 100, 0])
length, slot = torch.where(root == 0, 90, 64), torch.tensor([2, 0, 1, 3, 6, 5, 4])
angle = torch.arange(200)[:, None] / 30 + torch.arange(d // 2)[None]
turn, newest = kv_write.Turn(angle.cos(), angle.sin()), kv_write.Newest(count, length, slot)

def rotated(x, positions):
    c, s = (y[positions][:, None, None].repeat(1, 1, 1, 2) for y in (turn.cos, turn.sin))
    return x * c + torch.cat([-x[..., d // 2 :], x[..., : d // 2]], -1) * s

def check(out, q, k, v, own_k, own_v):
    for i in range(rows):
        j, rest, n = slot[i], length[i] % KEYS, count[i] - 1
        assert torch.allclose(own_k[j, :, rest + n], k[i, :, 0], atol=1e-6) and torch.equal(own_v[j, :, rest + n], v[i, :, 0])
        end = root[i] + length[i]
        for kept, pool, was in zip((own_k, own_v), (pool_k, pool_v), own):
            assert torch.equal(kept[j, :, :rest], pool[end - rest : end].transpose(0, 1))
            assert torch.equal(kept[j, :, rest : rest + n], was[j, :, rest : rest + n])
            assert torch.equal(kept[j, :, rest + n + 1 :], was[j, :, rest + n + 1 :])  # nothing else is written
        keys, values = (
            torch.cat([pool[root[i] : end].transpose(0, 1), kept[j, :, rest : rest + n + 1]], 1)[:, -window:]
            for pool, kept in ((pool_k, own_k), (pool_v, own_v))
        )
        keys, values = (x.repeat_interleave(group, 0) for x in (keys, values))
        wanted = torch.nn.functional.scaled_dot_product_attention(q[i], keys, values, scale=0.25)
        assert torch.allclose(out[i, 0], wanted[:, 0], atol=1e-5)

for window in (1 << 30, 20, 60) if FULL else (1 << 30, 20):
    q, k, v = torch.randn(rows, shared * group, 1, d), torch.randn(rows, shared, 1, d), torch.randn(rows, shared, 1, d)
    pool_k, pool_v = torch.randn(2, 200, shared, d)
    own = torch.randn(2, rows, shared, capacity, d)
    for i in range(rows):
        rest = length[i] % KEYS
        own[:, slot[i], :, rest + count[i] :] = torch.inf  # what was there before must not matter
    kv_write.bring(*own, pool_k, pool_v, root, length, slot)
    where = count, root, length, slot, 0.25, window
    held = *own.clone(), pool_k, pool_v
    assert kv_write.place(q, k, v, *held[:2], newest) is q
    check(decode_attention.attend_one(q, *held, *where), q, k, v, *held[:2])
    held = *own.clone(), pool_k, pool_v
    check(torch.ops.burnish.decode(q, k, v, *held, *where), q, k, v, *held[:2])
    at = length + count - 1
    widths = ((512, 1), (KEYS, 8), (2 * KEYS, 4)) if FULL else ((512, 1), (2 * KEYS, 4))
    for decode_attention.SPAN, spans in widths:  # spans side by side; some of them are nobody's
        for together in (False, True):  # rows 0, 3, 4 and 6 share a root, and so do 1, 2 and 5: alone, first of four, led, or not
            held = *own.clone(), pool_k, pool_v
            turned = kv_write.place(q, k, v, *held[:2], newest, turn)
            assert torch.allclose(turned, rotated(q, at), atol=1e-6)
            for turns in (1, 3):  # all pairs of a row and a head at once; some after others
                decode_attention._walk = lambda *a: (turns, {"num_warps": 1})
                check(decode_attention.attend_one(turned, *held, *where, spans, together), turned, rotated(k, at), v, *held[:2])
    for takes in (2, 4) if window > 100 else ():  # several rows a program: neighbours with one root, or not
        for order in (torch.arange(rows), root.argsort(stable=True), root.argsort(stable=True, descending=True)):
            state = [x[order] for x in (count, root, length, slot)]
            decode_attention._takes, kept = (lambda *a: takes), decode_attention._takes
            out = decode_attention.attend_one(turned[order], *held, *state, 0.25, window)
            decode_attention._takes = kept
            check(out[order.argsort()], turned, rotated(k, at), v, *held[:2])
"""

PLACE = """
from burnish.kernels.triton import late_stream
from burnish.kernels.triton import kv_write
rows, queries, shared, d, width = 70, 3, 1, 32, 48
angle = torch.arange(90)[:, None] / 30 + torch.arange(d // 2)[None]
count, length, slot = torch.randint(1, 8, (rows,)), torch.randint(1, 80, (rows,)), torch.randperm(rows)
turn, newest = kv_write.Turn(angle.cos(), angle.sin()), kv_write.Newest(count, length, slot)
weight, table = torch.randn((queries + 2 * shared) * d, width), torch.randn(99, width)
stream = late_stream.LateStream(torch.randint(0, 99, (rows,)), table, torch.randn(width), 1e-5)
for late_stream._BLOCKS[1] in (((64, 16, 32, 4),), ((64, 32, 32, 4),), ((64, 64, 32, 4),)):  # part of a head, a whole one, and more
    late_stream._blocks.cache_clear()
    for bias in (None,) if late_stream._BLOCKS[1][0][1] != 32 else (torch.randn(len(weight)),):
        apart, one = torch.randn(2, 2, rows, shared, 40, d)
        one.copy_(apart)
        made = stream.normed(weight, bias)[0].view(rows, -1, 1, d).split([queries, shared, shared], 1)
        wanted = kv_write.place(*made, *apart, newest, turn)
        assert torch.allclose(stream.heads(weight, bias, (one[0], one[1]), newest, turn), wanted, atol=1e-5)
        assert torch.allclose(one, apart, atol=1e-5)
"""

SAMPLE = """
from burnish.kernels.triton import sample as choice
from burnish.engine.batch import RunningBatch
ours, plain = (RunningBatch(4, 10, (5, 9), torch.device("cpu")) for _ in range(2))
state = {"limit": [10, 10, 2, 10], "key": [1, -2, 3, 4], "root_length": [3, 0, 5, 6], "base": [0, 4, 0, 0]}
state |= {"factor": [1.0, 2.0, 1.0, 1.0], "greedy": [0, 0, 0, 1], "slot": [3, 1, 0, 2]}
for rows in (ours, plain):
    rows.put(slice(0, 4), state)
for size in (9000, 300, 9000, 12):
    logits = torch.randn(4, size) * 2
    choice.sample(ours, slice(0, 4), logits)
    plain.sample(logits, slice(0, 4), False)
for name in ("tokens", "count", "last", "done", "ended"):
    assert torch.equal(getattr(ours, name), getattr(plain, name)), name
assert torch.allclose(ours.logp, plain.logp, atol=1e-5) and ours.done.tolist()[2]
"""

HEAD = """
from burnish.kernels.triton import logprob
logits, chosen, factor = torch.randn(5, 5000) * 2, torch.randint(0, 5000, (5,)), 0.7
lse, logp, entropy = torch.zeros(3, 5)
logprob.from_logits(logits, chosen, factor, lse, logp, entropy, True)
live = logits.clone().requires_grad_()
logs = torch.log_softmax(live * factor, -1)
wanted, spread = logs.gather(-1, chosen[:, None])[:, 0], -(logs.exp() * logs).sum(-1)
assert torch.allclose(logp, wanted, atol=1e-5) and torch.allclose(entropy, spread, atol=1e-5)
g, h = torch.randn(2, 5)
both = torch.autograd.grad((wanted * g + spread * h).sum(), live, retain_graph=True)[0]
alone = torch.autograd.grad((wanted * g).sum(), live)[0]
assert torch.allclose(logprob.d_logits(logits, chosen, factor, lse, entropy, g, h, torch.float32), both, atol=1e-6)
assert torch.allclose(logprob.d_logits(logits, chosen, factor, lse, entropy, g, None, torch.float32), alone, atol=1e-6)
"""

ATTEND = """
from burnish.forward import packing
from burnish.kernels.triton import packed_attention
from burnish.forward import cpu_attention
starts = [torch.randint(0, 99, (n,)) for n in (70, 5)]
rows = [torch.cat([starts[i % 2], torch.randint(0, 99, (n,))]) for i, n in enumerate((3, 80, 64, 1))]
asked = [len(starts[i % 2]) for i in range(4)]
for shared, window, size, apart in ((asked, None, None, 512), (None, 20, None, 512), (asked, None, 512, 16)):
    packed_attention.KIDS["FROM"] = apart  # roots; windows; a fixed size, and what kids give looked at apart
    found = []
    for gpu in (True, False):
        packing.on_gpu = lambda device: gpu
        pack = packing.pack([row.numpy() for row in rows], shared, torch.device("cpu"), size if gpu else None)
        if gpu:
            there, m = pack, len(pack.tokens)
            q, k, v, grad = (torch.randn(m, heads, 24) for heads in (4, 2, 2, 4))
            at = torch.arange(m)
            asked_about = torch.zeros(m, dtype=torch.bool)
            asked_about[torch.from_numpy(pack.lines)] = True
            grad[~asked_about] = 0  # nobody asks about what fills a pack up
        else:  # a CPU lays rows out in another order
            at = torch.zeros(len(pack.tokens), dtype=torch.long)
            at[torch.from_numpy(pack.lines)] = torch.from_numpy(there.lines)
        live = [x[at].clone().requires_grad_() for x in (q, k, v)]
        out = cpu_attention.attend(*live, pack, 0.2, window)
        out.backward(grad[at])
        lines = torch.from_numpy(pack.lines)
        found.append([x[lines] for x in (out.detach(), *(x.grad for x in live))])
    for a, b in zip(*found):
        assert torch.allclose(a, b, atol=1e-5)
"""

LAYERS = """
import os, transformers
from dataclasses import replace
from burnish.forward import attention
from burnish.kernels.triton import decoder as fused
from burnish.kernels.triton import norm, rotate
from burnish.forward import packing
from burnish.kernels.triton import late_stream
from burnish.kernels.triton import packed_attention
from burnish.engine import kv_cache
from burnish.kernels.cuda_graphs.prefill import GpuDecoder
from burnish.forward.runner import TransformersRunner
from burnish.kernels.triton.runner import TritonRunner
from burnish.kernels.triton.verify import difference, trouble
from burnish.engine.batch import RunningBatch
from burnish.engine.kv_cache import Plan
from burnish.forward.outputs import outputs
from burnish.kernels.triton.fused_qkv import join_projections
norm.PROGRAMS = rotate.PROGRAMS = 7  # of a backward norm: several rows each, and fewer for the last
sizes = dict(vocab_size=99, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=2)
sizes |= dict(num_key_value_heads=1, head_dim=32, max_position_embeddings=128, pad_token_id=0)

def learn(model, leaves, rows, masks, ours):  # log-probs, and the gradient of a mixture of them
    packing.on_gpu = lambda device: ours
    runner = TritonRunner(model) if ours else TransformersRunner(model)
    assert runner.accelerated == ours
    logp = outputs(runner, rows, masks, {"logp"})["logp"]
    return [logp.detach(), *torch.autograd.grad((logp * torch.linspace(-1, 1, len(logp))).sum(), leaves)]

@torch.no_grad()
def decode(model, ours):  # logits of two steps after two prompts
    packing.on_gpu = kv_cache.on_gpu = lambda device: True
    decoder = GpuDecoder(TransformersRunner(model), Plan(3, 12, 20))
    assert decoder.fused is not None
    if not ours:
        decoder.fused = None
    decoder.prefill([torch.arange(6), torch.arange(11)], torch.arange(17).numpy())
    state = RunningBatch(3, 12, (1,), torch.device("cpu"))
    state.put(slice(0, 3), dict(root=[0, 6, 6], root_length=[6, 11, 11], slot=[2, 0, 1], limit=[9] * 3))
    decoder.bring(state, slice(0, 3))
    found = []
    for step in range(2):
        state.count[:], state.last[:] = step + 1, torch.tensor([5, 6, 7]) + step
        found.append(decoder.step(state, slice(0, 3), None))
    decoder.cache.release()
    return torch.stack(found)

def check(kind, more, how, long, wrong_specs):
    starts = [torch.randint(0, 99, (n,)) for n in (34 if long else 8, 5)]
    starts[0][1] = 0  # the padding token, whose embedding gets no gradient
    rows = [torch.cat([starts[i % 2], torch.randint(0, 99, (n,))]) for i, n in enumerate((3, 5, 1))]
    masks = [torch.arange(len(row)) >= len(starts[i % 2]) for i, row in enumerate(rows)]
    packing.SPAN = packed_attention.SPAN = 32 if long else 512  # rows of more than one span, or not
    config = getattr(transformers, kind + "Config")(**sizes, **more)
    config._attn_implementation = attention.register()
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for p in model.parameters():
        p.data.add_(torch.randn_like(p) * 0.2)
    joined = [leaf for joint in join_projections(model) for leaf in joint.leaves()]
    views = {id(part) for _, parts in joined for part in parts}
    leaves = {f"joined {i}": leaf for i, (leaf, _) in enumerate(joined)}
    leaves |= {name: p for name, p in model.named_parameters() if id(p) not in views and ".joint." not in name}
    for fused.OURS, late_stream.OWN_GATE in how:  # our products, all or some of them; a library's
        both = [learn(model, list(leaves.values()), rows, masks, ours) for ours in (True, False)]
        for name, a, b in zip(["logp", *leaves], *both, strict=True):
            assert (a - b).norm() <= 2e-5 * b.norm(), (kind, name, float((a - b).norm() / b.norm()))
        assert torch.allclose(decode(model, True), decode(model, False), atol=2e-5), kind
    runner = TritonRunner(model)
    assert difference(runner.fused, runner) < 1e-5 and trouble(runner.fused, runner) == "", kind
    for wrong in wrong_specs:  # a spec that says something else than the modules do is found out at load
        layers = [replace(layer, spec=replace(layer.spec, **wrong)) for layer in runner.fused.layers]
        spec = replace(runner.fused.spec, layers=tuple(layer.spec for layer in layers))
        assert "off" in trouble(fused.FusedDecoder(runner.fused.inner, spec, layers), runner), wrong

for case in CASES:
    check(*case)
"""

SLIDING = ["sliding_attention", "full_attention"]
GEMMA = {"layer_types": SLIDING, "sliding_window": 7, "query_pre_attn_scalar": 20}
MIXTURE = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}
OURS, SOME, LIBRARY = (1024, 1024), (1024, 0), (0, 0)
Case = tuple[str, dict[str, Any], list[tuple[int, int]], bool, list[dict[str, Any]]]
CASES: list[
    Case
] = [  # a type, what is special about it, the products, whether rows are longer than a span, wrong specs
    ("Llama", {}, [OURS], False, [{"activation": "gelu_tanh"}]),
    ("Qwen3", {}, [OURS], False, [{"scale": 0.3}]),
    ("Gemma3Text", GEMMA, [OURS], False, [{"offset": 0.0}]),
    ("Qwen3Moe", MIXTURE, [OURS], False, []),
]
WINDOW = {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}
SLOW: list[Case] = [
    ("Llama", {}, [SOME, LIBRARY], True, []),
    ("Qwen2", WINDOW, [OURS, SOME, LIBRARY], True, []),
    ("Qwen3", {}, [SOME, LIBRARY], True, []),
    ("Mistral", {"sliding_window": 7}, [OURS, LIBRARY], True, []),
    ("Gemma3Text", GEMMA | {"sliding_window": 40}, [OURS], True, [{"activation": "silu"}]),
    ("Qwen3Moe", MIXTURE | {"norm_topk_prob": False, "mlp_only_layers": [0]}, [LIBRARY], True, []),
]

EXPERTS = """
from burnish.kernels.architectures.spec import Experts
from burnish.kernels.triton import experts
for tokens, count, k, normalised in ((7, 5, 2, True), (1, 4, 4, False), (40, 3, 1, True)):
    mixture, n, h = Experts(count, k, 24, normalised), 20, 16
    logits = torch.randn(tokens, count)
    chosen, weights, offsets, order, where = experts.route(logits, mixture)
    top, wanted = torch.softmax(logits, -1).topk(k)
    assert torch.equal(chosen.view(-1, k).long(), wanted)
    assert torch.allclose(weights.view(-1, k), top / top.sum(-1, keepdim=True) if normalised else top, atol=1e-6)
    assert torch.equal(order.long(), chosen.long().argsort(stable=True)) and torch.equal(order[where].long(), torch.arange(tokens * k))
    assert offsets.tolist() == [int((chosen < e).sum()) for e in range(count)] + [tokens * k]
    x, weight = torch.randn(tokens, h), torch.randn(count, n, h)
    expert, token = chosen[order].long(), order.long() // k
    made = torch.einsum("ek,enk->en", x[token], weight[expert])
    assert torch.allclose(experts.grouped(x, weight, offsets, order, k, gather=True), made, atol=1e-5)
    back = torch.einsum("en,enk->ek", made, weight[expert])
    assert torch.allclose(experts.grouped(made, weight, offsets, order, k, gather=False, back=True), back, atol=1e-4)
    d = torch.stack([made[expert == e].t() @ x[token][expert == e] for e in range(count)])
    assert torch.allclose(experts._d_weight(made, x, weight, offsets, order, k, (False, True)), d, atol=1e-4)
logits = torch.full((3, 4), float("nan"))  # a model that has diverged: every entry still has a place of its own
chosen, _, offsets, order, where = experts.route(logits, Experts(4, 2, 8, True))
assert 0 <= int(chosen.min()) and int(chosen.max()) < 4 and sorted(where.tolist()) == list(range(6))
"""

ENGINE = """
import sys, tempfile
from pathlib import Path
sys.path.insert(0, "tests")
from conftest import SMALL, make_model
from burnish.engine import local
from burnish.forward import packing
from burnish.kernels.cuda_graphs import decoding as graphs
from burnish.kernels.triton import decode_attention
from burnish.kernels.registry import Registry
from burnish.engine import kv_cache
from burnish.kernels.triton.fused_qkv import join_projections
from burnish.engine.local import Request
from burnish.core.roles import roles
from burnish.models.build import build
Registry.load = lambda self, path: None  # on a GPU every model is transformers' own
shape = dict(hidden_size=64, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=2 if FULL else 1)
policy = build(roles(), make_model(Path(tempfile.mkdtemp()), **shape), SMALL, device="cpu")["policy"]
prompts = [torch.randint(4, 200, (n,), generator=torch.Generator().manual_seed(n)) for n in (3, 70, 9)]
asked = [Request(prompts[k % 3], k, 20 if k == 1 else 3) for k in range(7)] + [Request(prompts[0], 99, 12)]  # enters alone
alone = [policy.generate([request])[0] for request in asked]
kv_cache.on_gpu = lambda device: True  # slots that rows point to, sizes beyond the living rows, news one step late
graphs.SIZES = (7,)
decode_attention.SPAN = packing.SPAN = 32
for rows in (7, 7, 5) if FULL else (7,):  # the workplace is kept from call to call where it serves
    local.MAX_ROWS = {"cpu": rows}
    for mine, other in zip(policy.generate(asked), alone, strict=True):
        assert torch.equal(mine.tokens, other.tokens) and mine.stopped == other.stopped
        assert torch.allclose(mine.logp, other.logp, atol=1e-4)
    assert policy.engine.workspace.batch.spans == 4  # the last row had 70 + 20 keys
    assert policy.engine.workspace.batch.together  # two requests share the 70 of them
policy.generate([Request(prompts[1], 5, 25)])  # longer than before: new slots, which serve calls of both kinds
both = policy.engine.workspace
policy.generate(asked)
assert policy.engine.workspace is both
decode_attention.SPAN = packing.SPAN = 512
for parameter in policy.engine.model.parameters():  # a working copy, whose layers run in our kernels
    parameter.data = parameter.data.clone()
join_projections(policy.engine.model)
policy.engine.workspace.release()
policy.engine.workspace = None
took = set()  # rows of one program: four of a group, until some of them have ended
decode_attention._takes = lambda pairs, group, d, mates, device: took.add(mates) or mates
asked = [Request(prompts[k // 4 % 2], k, 9 - k) for k in range(8)]
alone = [policy.generate([request])[0] for request in asked]
for mine, other in zip(policy.generate(asked), alone, strict=True):
    assert torch.equal(mine.tokens, other.tokens) and torch.allclose(mine.logp, other.logp, atol=1e-4)
assert took == {1, 4}, took
kv_cache.kept = lambda device: 0  # a KV cache that is too large to be kept: its memory is free after the call, and the next makes it again
few = [Request(prompts[0], k, 3) for k in range(2)]
for mine, other in zip(policy.generate(few), policy.generate(few), strict=True):
    assert torch.equal(mine.tokens, other.tokens) and policy.engine.workspace is None
"""


def interpreted(source: str, **given: str) -> None:
    """Run a script with Triton's interpreter, which triton asks for when it is imported."""
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    before = "import torch\ntorch.manual_seed(0)\n" + "".join(f"{name} = {value}\n" for name, value in given.items())
    done = subprocess.run([sys.executable, "-c", before + source], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    "what", [PLACE, SAMPLE, HEAD, ATTEND, EXPERTS], ids=["place", "sample", "head", "attend", "experts"]
)
def test_a_kernel_equals_plain_torch(what: str) -> None:
    interpreted(what)


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["small", "full"])
@pytest.mark.parametrize("what", [DECODE, ENGINE], ids=["decode", "the engine as on a GPU"])
def test_decoding_equals_plain_torch(what: str, full: bool) -> None:
    """Full: every window, span and number of rows, and two layers; small: some of each."""
    interpreted(what, FULL=repr(full))


def test_layers_equal_the_modules_of_transformers() -> None:
    interpreted(LAYERS, CASES=repr(CASES))


@pytest.mark.slow
@pytest.mark.parametrize("case", SLOW, ids=[case[0] for case in SLOW])
def test_more_layers_equal_the_modules_of_transformers(case: Case) -> None:
    interpreted(LAYERS, CASES=repr([case]))


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from burnish.kernels.triton import logprob
from burnish.kernels.triton import matmul
from burnish.kernels.triton import packed_attention
from burnish.kernels.triton import experts
from burnish.kernels.triton import gate
from burnish.kernels.triton import norm
from burnish.kernels.triton import rotate
from burnish.kernels.triton import sample as choice
from burnish.kernels.triton import decode_attention
from burnish.kernels.triton import kv_write

def made(kernel, numbers, pointers, known, capability):
    kinds = {name: numbers.get(name, pointers.get(name, "i32")) for name in kernel.arg_names}
    kinds |= dict.fromkeys(known, "constexpr")
    source = ASTSource(kernel, kinds, {(kernel.arg_names.index(name),): value for name, value in known.items()})
    options = {"num_warps": 4, "num_stages": 3} | ({"launch_pdl": True} if known.get("PDL") else {})
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).asm["ptx"]

half = dict.fromkeys("x y z a b weight weights bias norm post out both grad d_both table total_ptr more d_x cos sin raw parts gated".split(), "*bf16")
half |= dict.fromkeys("chosen order offsets where".split(), "*i32") | dict.fromkeys(["d_weights", "d_norms"], "*fp32")
half |= dict.fromkeys("squares divisors d_norm lse_ptr tops sums factor_ptr logits logp_ptr entropy_ptr grad_ptr grad_entropy_ptr".split(), "*fp32")
half |= dict.fromkeys("q_ptr k_ptr v_ptr out_ptr own_k own_v pool_k pool_v cos_ptr sin_ptr q_norm k_norm".split(), "*bf16")
half |= dict.fromkeys("tokens positions chosen_ptr token_ptr key_ptr last_ptr stops_ptr limit_ptr base_ptr".split(), "*i64")
half |= dict.fromkeys(["count_ptr", "root_ptr", "root_length_ptr", "slot_ptr"], "*i64")
half |= dict.fromkeys(["greedy_ptr", "done_ptr", "ended_ptr"], "*i1")
half |= dict.fromkeys(["m_ptr", "total_ptr", "acc_ptr"], "*fp32")
numbers = {"eps": "fp32", "offset": "fp32", "scale": "fp32", "factor": "fp32"}
turned = dict(D=64, HP=16, LEVELS=5)
half |= dict.fromkeys("fetched wide inner narrow".split(), "*bf16")
alone, lora = dict(LORA=False, RANKS=16, RP=16), dict(LORA=True, RANKS=48, RP=64)
ranks = {16: "tensordesc<bf16[16,64]>", 64: "tensordesc<bf16[64,64]>"}
rows, columns, gate_and_up = ("tensordesc<bf16[%s64,64]>" % parts for parts in ("", "1,", "2,"))
halves = "tensordesc<bf16[2,32,64]>"
block = dict(BM=64, BN=64, BK=64, K=576, P=36)
decode = dict(HEADS=9, G=3, GP=16, D=64, BLOCK=32, NEARER=True, TURNS=1, SPAN=512, SPANS=4, MATES=1)
neighbours = dict(HEADS=9, G=3, GP=16, D=64, BLOCK=32)
placed = dict(HEADS=9, SHARED=3, HP=16, SP=4, D=64, LEVELS=5, BLOCK=32, TURN=True, HEAD_NORM=True)
heads = dict(BM=64, BN=32, BK=64, K=576, P=36, PP=64, LEVELS=6, QUERIES=9, SHARED=3, HALF=32, BLOCK=32)
joined = dict(HEADS=9, G=3, GP=16, D=64, SPAN=512, SPANS=4)
summed = dict(BLOCK=4096, BLOCKS=16)
for capability, ahead in ((90, True), (80, False)):
    for kernel, known, read in (
        *(
            (kernel, known | its, read | {"a": ranks[its["RP"]]})
            for its in (alone, lora)
            for kernel, known, read in (
                (matmul.normed_kernel, block | dict(PP=64, LEVELS=6, BIAS=True), dict(z=rows, weight=columns)),
                (matmul.heads_kernel, heads | dict(BIAS=True), dict(z=rows, weight=halves)),
                (matmul.gated_kernel, block | dict(PP=64, LEVELS=6), dict(z=rows, weight=gate_and_up)),
                (matmul.added_kernel, block, dict(y=rows, weight=columns)),
            )
        ),
        (decode_attention._decode_kernel, decode, {}),
        (decode_attention._decode_kernel, decode | dict(SPANS=1), {}),
        (decode_attention._decode_kernel, decode | dict(SPANS=1, TURNS=2), {}),
        (decode_attention._decode_kernel, decode | dict(MATES=4), {}),
        (decode_attention._neighbours_kernel, neighbours | dict(TAKES=4), {}),
        (decode_attention._neighbours_kernel, neighbours | dict(TAKES=2), {}),
    ):
        code = made(kernel, numbers, half | read, known | {"PDL": ahead}, capability)
        assert ("griddepcontrol.wait" in code) == ahead and "mma" in code
    made(kv_write._bring_kernel, numbers, half, dict(D=64, BLOCK=32), capability)
    for of_adapters in (0, 16):
        made(kv_write._place_kernel, numbers, half, placed | {"PDL": ahead, "RANKS": of_adapters}, capability)
    made(decode_attention._join_kernel, numbers, half, joined | {"PDL": ahead}, capability)
    for kernel, known in (
        (matmul.begin_kernel, dict(BK=1024)),
        (norm._add_kernel, dict(K=576, BK=1024, LEVELS=10, ROWS=4)),
        (norm._add_norm_kernel, dict(K=576, BK=1024, ADD=True, POST=False, RANKS=0)),
        (norm._add_norm_kernel, dict(K=576, BK=1024, ADD=True, POST=False, RANKS=16)),
        (norm._add_norm_kernel, dict(K=640, BK=1024, ADD=True, POST=True, RANKS=0)),
        (norm._norm_backward_kernel, dict(K=576, BK=1024, MORE=True, AGAIN=True, LEARNS=True)),
        (norm._norm_backward_kernel, dict(K=640, BK=1024, MORE=False, AGAIN=False, LEARNS=False)),
        (gate._gate_kernel, dict(DIVIDE=True, GELU=False, BLOCK=1024)),
        (gate._gate_kernel, dict(DIVIDE=False, GELU=True, BLOCK=1024, divisors=None)),
        (gate._gate_rows_kernel, dict(K=1536, P=96, PP=128, LEVELS=7, BLOCK=512)),
        (gate._gate_backward_kernel, dict(DIVIDE=True, GELU=False, BLOCK=1024)),
        (gate._gate_backward_kernel, dict(DIVIDE=False, GELU=True, BLOCK=1024, divisors=None)),
        (rotate._rotate_kernel, turned | dict(BACK=False, DIVIDE=True, BIAS=True, HEAD_NORM=False)),
        (rotate._rotate_kernel, turned | dict(BACK=True, DIVIDE=False, BIAS=True, HEAD_NORM=False, divisors=None)),
        (rotate._rotate_kernel, turned | dict(BACK=False, DIVIDE=True, BIAS=False, HEAD_NORM=True)),
        (rotate._head_norms_backward_kernel, dict(D=256, HB=8, LEVELS=7)),
        (experts._choose_kernel, dict(CHOSEN=4, EP=16, NORMALISED=True)),
        (experts._group_kernel, dict(BLOCK=1024)),
        (experts._matmul_kernel, dict(K=1024, EP=16, GATHER=True, BM=16, BN=64, BK=64, w_k=1)),
        (experts._matmul_kernel, dict(K=768, EP=16, GATHER=False, BM=128, BN=128, BK=64, w_n=1)),
        (experts._d_weight_kernel, dict(GATHER_A=True, GATHER_B=False, BM=64, BN=128, BK=128)),
        (experts._gather_kernel, dict(CHOSEN=4, WEIGHTED=True, BLOCK=1024)),
        (experts._gate_backward_kernel, dict(GELU=False, BLOCK=1024)),
        (choice._sums_kernel, dict(BLOCK=4096)),
        (choice._choose_kernel, summed | dict(STOPS=1)),
        (choice._choose_kernel, summed | dict(STOPS=1500)),
        (logprob._forward_kernel, summed | dict(ENTROPY=True)),
        (logprob._backward_kernel, dict(ENTROPY=True, BLOCK=4096)),
    ):
        made(kernel, numbers, half, known, capability)
    pointers = half | {"table": "*i32", "part_ptr": "*fp32", "delta_ptr": "*fp32", "lse_ptr": "*fp32"}
    pointers |= dict.fromkeys(["grad_ptr", "dk_ptr", "dv_ptr", "dq_ptr"], "*bf16")
    sizes = dict(GROUP=3, D=64, DP=64, BM=64, BLOCK=64, SPLIT=4, FROM=512)
    for kernel in (packed_attention.d_kids_kernel, packed_attention.d_keys_kernel):
        made(kernel, numbers, pointers, sizes, capability)
    for long in (False, True):
        ahead = dict(D=64, DP=64, BM=64, BLOCK=32, SPAN=512, LONG=long)
        made(packed_attention.forward_kernel, numbers, half | {"table": "*i32"}, ahead, capability)
"""


@pytest.mark.slow
def test_kernels_are_compiled_for_gpus_that_are_not_here() -> None:
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", COMPILE], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


ARRIVING = """
kv_cache.on_gpu = lambda device: False
asked = [Request(prompts[k % 3], k, 3) for k in range(5)]
alone = [policy.generate([request])[0] for request in asked]
kv_cache.on_gpu = lambda device: True
class Arriving:  # one at a time, at every second step; the second prompt is longer than what was planned for
    rows, left, calls = 4, asked[:], 0
    def take(self, wait):
        self.calls += 1
        new, self.left = self.left[: max(wait, self.calls % 2)], self.left[max(wait, self.calls % 2) :]
        return new
for mine, other in zip(policy.generate([], feed=Arriving()), alone, strict=True):
    assert torch.equal(mine.tokens, other.tokens) and mine.stopped == other.stopped
    assert torch.allclose(mine.logp, other.logp, atol=1e-4)
assert type(policy.engine.workspace).__name__ == "DecodeGraphs"
"""


@pytest.mark.slow
def test_requests_that_arrive_are_decoded_as_on_a_gpu() -> None:
    interpreted(ENGINE.partition("for rows in")[0] + ARRIVING, FULL="False")
