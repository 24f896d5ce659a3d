"""The GPU kernels, run by Triton's interpreter on the CPU: the same source, the same numbers as plain torch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton", reason="the GPU kernels need triton, which comes with torch's CUDA builds")

DECODE = """
from burnish.cast.engine import kernels, placing
from burnish.cast.packing import KEYS
# of 1024 rows and 3 heads, 12 pairs at a time find room in each of 132 multiprocessors (228 KiB for 19): two turns of 12, three blocks each;
# of 256 rows 6 (38 KiB: five blocks), of 64 rows 2 (as many as are of use); spans take no turns
for pairs, spans, turns, stages in ((3072, 1, 2, 3), (1920, 1, 2, 4), (768, 1, 1, 5), (192, 1, 1, 7), (3072, 4, 1, 3)):
    found = kernels._walk(pairs, spans, 2 * KEYS * 128, 16 * 128, torch.device("cpu"))
    assert found == (turns, {"num_warps": 1, "num_stages": stages}), (pairs, spans, found)
# four rows of 1024 to a program leave 768 programs for 132 multiprocessors, two of 640 leave 960; more than 16 queries do not fit a tile
for pairs, group, d, mates, takes in (
    (3072, 3, 64, 4, 4), (3072, 3, 64, 2, 2), (3072, 3, 64, 1, 1), (1920, 3, 64, 4, 2), (960, 3, 64, 4, 1), (3072, 6, 64, 4, 2), (3072, 12, 64, 4, 1), (3072, 3, 128, 4, 1)
):
    assert kernels._takes(pairs, group, d, mates, torch.device("cpu")) == takes, (pairs, group, d, mates)
rows, shared, group, d, capacity = 7, 2, 3, 16, 40 + KEYS
count, root = torch.tensor([1, 7, 33, 2, 39, 1, 20]), torch.tensor([0, 100, 100, 0, 0, 100, 0])
length, slot = torch.where(root == 0, 90, 64), torch.tensor([2, 0, 1, 3, 6, 5, 4])
angle = torch.arange(200)[:, None] / 30 + torch.arange(d // 2)[None]
turn, newest = placing.Turn(angle.cos(), angle.sin()), placing.Newest(count, length, slot)

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

for window in (1 << 30, 20, 60):
    q, k, v = torch.randn(rows, shared * group, 1, d), torch.randn(rows, shared, 1, d), torch.randn(rows, shared, 1, d)
    pool_k, pool_v = torch.randn(2, 200, shared, d)
    own = torch.randn(2, rows, shared, capacity, d)
    for i in range(rows):
        rest = length[i] % KEYS
        own[:, slot[i], :, rest + count[i] :] = torch.inf  # what was there before must not matter
    placing.bring(*own, pool_k, pool_v, root, length, slot)
    where = count, root, length, slot, 0.25, window
    held = *own.clone(), pool_k, pool_v
    assert placing.place(q, k, v, *held[:2], newest) is q
    check(kernels.attend_one(q, *held, *where), q, k, v, *held[:2])
    held = *own.clone(), pool_k, pool_v
    check(torch.ops.burnish.decode(q, k, v, *held, *where), q, k, v, *held[:2])
    at = length + count - 1
    for kernels.SPAN, spans in ((512, 1), (KEYS, 8), (2 * KEYS, 4)):  # spans side by side; some of them are nobody's
        for together in (False, True):  # rows 0, 3, 4 and 6 share a root, and so do 1, 2 and 5: alone, first of four, led, or not
            held = *own.clone(), pool_k, pool_v
            turned = placing.place(q, k, v, *held[:2], newest, turn)
            assert torch.allclose(turned, rotated(q, at), atol=1e-6)
            for turns in (1, 3):  # all pairs of a row and a head at once; some after others
                kernels._walk = lambda *a: (turns, {"num_warps": 1})
                check(kernels.attend_one(turned, *held, *where, spans, together), turned, rotated(k, at), v, *held[:2])
    for takes in (2, 4) if window > 100 else ():  # several rows a program: neighbours with one root, or not
        for order in (torch.arange(rows), root.argsort(stable=True), root.argsort(stable=True, descending=True)):
            state = [x[order] for x in (count, root, length, slot)]
            kernels._takes, kept = (lambda *a: takes), kernels._takes
            out = kernels.attend_one(turned[order], *held, *state, 0.25, window)
            kernels._takes = kept
            check(out[order.argsort()], turned, rotated(k, at), v, *held[:2])
"""

PLACE = """
from burnish.cast import products
from burnish.cast.engine import placing
rows, queries, shared, d, width = 70, 3, 1, 32, 48
angle = torch.arange(90)[:, None] / 30 + torch.arange(d // 2)[None]
count, length, slot = torch.randint(1, 8, (rows,)), torch.randint(1, 80, (rows,)), torch.randperm(rows)
turn, newest = placing.Turn(angle.cos(), angle.sin()), placing.Newest(count, length, slot)
weight, table = torch.randn((queries + 2 * shared) * d, width), torch.randn(99, width)
stream = products.Stream(torch.randint(0, 99, (rows,)), table, torch.randn(width), 1e-5)
for products._BLOCKS[1] in (((64, 16, 32, 4),), ((64, 32, 32, 4),), ((64, 64, 32, 4),)):  # part of a head, a whole one, and more
    products._blocks.cache_clear()
    for bias in (None, torch.randn(len(weight))):
        apart, one = torch.randn(2, 2, rows, shared, 40, d)
        one.copy_(apart)
        made = stream.normed(weight, bias).view(rows, -1, 1, d).split([queries, shared, shared], 1)
        wanted = placing.place(*made, *apart, newest, turn)
        assert torch.allclose(stream.heads(weight, bias, *one, newest, turn), wanted, atol=1e-5)
        assert torch.allclose(one, apart, atol=1e-5)
"""

SAMPLE = """
from burnish.cast.engine import choice
from burnish.cast.engine.rows import Rows
ours, plain = (Rows(4, 10, (5, 9), torch.device("cpu")) for _ in range(2))
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

ATTEND = """
from burnish.cast import packing, tiled, varlen
starts = [torch.randint(0, 99, (n,)) for n in (70, 5)]
rows = [torch.cat([starts[i % 2], torch.randint(0, 99, (n,))]) for i, n in enumerate((3, 80, 64, 1))]
asked = [len(starts[i % 2]) for i in range(4)]
for shared, window, size, apart in ((asked, None, None, 512), (None, 20, None, 512), (asked, None, 512, 16)):
    tiled.KIDS["FROM"] = apart  # roots; windows; a fixed size, and what kids give looked at apart
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
        out = varlen.attend(*live, pack, 0.2, window)
        out.backward(grad[at])
        lines = torch.from_numpy(pack.lines)
        found.append([x[lines] for x in (out.detach(), *(x.grad for x in live))])
    for a, b in zip(*found):
        assert torch.allclose(a, b, atol=1e-5)
"""

LAYERS = """
import transformers
from burnish.cast import attention, fused, layer_kernels, packing, products, tiled
from burnish.cast.engine import store
from burnish.cast.engine.reader import Reader
from burnish.cast.engine.rows import Rows
from burnish.cast.engine.store import Plan
from burnish.cast.forward import decoder, outputs
from burnish.cast.fused import Fused
from burnish.cast.joint import join_projections
layer_kernels.PROGRAMS = 7  # of a backward norm: several rows each, and fewer for the last
sizes = dict(vocab_size=99, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=2)
sizes |= dict(num_key_value_heads=1, head_dim=32, max_position_embeddings=128)
starts = [torch.randint(0, 99, (n,)) for n in (40, 5)]
rows = [torch.cat([starts[i % 2], torch.randint(0, 99, (n,))]) for i, n in enumerate((3, 30, 1))]
masks = [torch.arange(len(row)) >= len(starts[i % 2]) for i, row in enumerate(rows)]

def learn(model, leaves, ours):  # log-probs, and the gradient of a mixture of them
    packing.on_gpu = lambda device: ours
    model.fused = Fused.of(decoder(model)) if ours else None
    logp = outputs(model, rows, masks, {"logp"})["logp"]
    return [logp.detach(), *torch.autograd.grad((logp * torch.linspace(-1, 1, len(logp))).sum(), leaves)]

@torch.no_grad()
def decode(model, ours):  # logits of three steps after two prompts
    packing.on_gpu = store.on_gpu = lambda device: True
    model.fused = None
    reader = Reader(model, Plan(3, 12, 20))
    assert reader.fused is not None
    if not ours:
        reader.fused = None
    reader.read([torch.arange(6), torch.arange(11)], torch.arange(17).numpy())
    state = Rows(3, 12, (1,), torch.device("cpu"))
    state.put(slice(0, 3), dict(root=[0, 6, 6], root_length=[6, 11, 11], slot=[2, 0, 1], limit=[9] * 3))
    reader.bring(state, slice(0, 3))
    found = []
    for step in range(3):
        state.count[:], state.last[:] = step + 1, torch.tensor([5, 6, 7]) + step
        found.append(reader.next(state, slice(0, 3), None))
    reader.store.release()
    return [torch.stack(found)]

kinds = {"Llama": {}, "Qwen2": dict(use_sliding_window=True, sliding_window=9, max_window_layers=1), "Qwen3": {}}
for kind, more in (kinds | {"Mistral": dict(sliding_window=7)}).items():
    config = getattr(transformers, kind + "Config")(**sizes, **more)
    config._attn_implementation = attention.register()
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    for p in model.parameters():
        p.data.add_(torch.randn_like(p) * 0.2)
    joined = [leaf for joint in join_projections(model) for leaf, _ in joint.leaves()]
    leaves = joined + [model.model.norm.weight, model.model.layers[0].mlp.down_proj.weight, model.lm_head.weight]
    for fused.OURS, products.OWN_GATE in ((1024, 1024), (1024, 0), (0, 0)):  # our products, all or some of them; a library's
        packing.SPAN = tiled.SPAN = 512 if fused.OURS else 32  # rows of more than one span
        if kind != "Qwen3":  # whose heads are normalised one by one: it learns through its own modules
            for a, b in zip(learn(model, leaves, True), learn(model, leaves, False)):
                assert (a - b).norm() <= 1e-4 * b.norm(), kind
        for a, b in zip(decode(model, True), decode(model, False)):
            assert torch.allclose(a, b, atol=1e-4), kind
"""

ENGINE = """
import sys, tempfile
from pathlib import Path
sys.path.insert(0, "tests")
from conftest import SMALL, make_model
from burnish.cast import load, local, packing
from burnish.cast.engine import graphs, kernels, schedule, store
from burnish.cast.joint import join_projections
from burnish.cast.local import Request
from burnish.cast.roles import stage
from burnish.cast.stage import build
load.shape_of = lambda path: None  # on a GPU every model is transformers' own
policy = build(stage(), make_model(Path(tempfile.mkdtemp()), hidden_size=64, num_attention_heads=2, num_key_value_heads=1), SMALL, device="cpu")["policy"]
prompts = [torch.randint(4, 200, (n,), generator=torch.Generator().manual_seed(n)) for n in (3, 70, 9)]
asked = [Request(prompts[k % 3], k, 20 if k == 1 else 3) for k in range(7)] + [Request(prompts[0], 99, 12)]  # enters alone
alone = [policy.generate([request])[0] for request in asked]
store.on_gpu = lambda device: True  # slots that rows point to, sizes beyond the living rows, news one step late
graphs.SIZES = (7,)
kernels.SPAN = schedule.SPAN = packing.SPAN = 32
for rows in (7, 7, 5):  # the workplace is kept from call to call where it serves
    local.MAX_ROWS = {"cpu": rows}
    for mine, other in zip(policy.generate(asked), alone, strict=True):
        assert torch.equal(mine.tokens, other.tokens) and mine.stopped == other.stopped
        assert torch.allclose(mine.logp, other.logp, atol=1e-4)
    assert policy.engine.kept.rows.spans == 4  # the last row had 70 + 20 keys
    assert policy.engine.kept.rows.together  # two requests share the 70 of them
policy.generate([Request(prompts[1], 5, 25)])  # longer than before: new slots, which serve calls of both kinds
both = policy.engine.kept
policy.generate(asked)
assert policy.engine.kept is both
kernels.SPAN = schedule.SPAN = packing.SPAN = 512
for parameter in policy.engine.model.parameters():  # a working copy, whose layers run in our kernels
    parameter.data = parameter.data.clone()
join_projections(policy.engine.model)
policy.engine.kept.release()
policy.engine.kept = None
took = set()  # rows of one program: four of a group, until some of them have ended
kernels._takes = lambda pairs, group, d, mates, device: took.add(mates) or mates
asked = [Request(prompts[k // 4 % 2], k, 9 - k) for k in range(8)]
alone = [policy.generate([request])[0] for request in asked]
for mine, other in zip(policy.generate(asked), alone, strict=True):
    assert torch.equal(mine.tokens, other.tokens) and torch.allclose(mine.logp, other.logp, atol=1e-4)
assert took == {1, 4}, took
"""


@pytest.mark.parametrize(
    "what",
    [DECODE, PLACE, SAMPLE, HEAD, ATTEND, LAYERS, ENGINE],
    ids=["decode", "place", "sample", "head", "attend", "layers", "the engine as on a GPU"],
)
def test_a_kernel_equals_plain_torch(what: str) -> None:
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}  # read when triton is imported
    done = subprocess.run(
        [sys.executable, "-c", "import torch\ntorch.manual_seed(0)\n" + what], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from burnish.cast import gpu, products, tiled
from burnish.cast import layer_kernels as layers
from burnish.cast.engine import choice, kernels, placing

def made(kernel, numbers, pointers, known, capability):
    kinds = {name: numbers.get(name, pointers.get(name, "i32")) for name in kernel.arg_names}
    kinds |= dict.fromkeys(known, "constexpr")
    source = ASTSource(kernel, kinds, {(kernel.arg_names.index(name),): value for name, value in known.items()})
    options = {"num_warps": 4, "num_stages": 3} | ({"launch_pdl": True} if known.get("PDL") else {})
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).asm["ptx"]

half = dict.fromkeys("x y z weight bias norm out both grad d_both table total_ptr more d_x cos sin".split(), "*bf16")
half |= dict.fromkeys("squares divisors d_norm lse_ptr tops sums factor_ptr logits logp_ptr entropy_ptr grad_ptr grad_entropy_ptr".split(), "*fp32")
half |= dict.fromkeys("q_ptr k_ptr v_ptr out_ptr own_k own_v pool_k pool_v cos_ptr sin_ptr q_norm k_norm".split(), "*bf16")
half |= dict.fromkeys("tokens positions chosen_ptr token_ptr key_ptr last_ptr stops_ptr limit_ptr base_ptr".split(), "*i64")
half |= dict.fromkeys(["count_ptr", "root_ptr", "root_length_ptr", "slot_ptr"], "*i64")
half |= dict.fromkeys(["greedy_ptr", "done_ptr", "ended_ptr"], "*i1")
half |= dict.fromkeys(["m_ptr", "total_ptr", "acc_ptr"], "*fp32")
numbers = {"eps": "fp32", "scale": "fp32", "factor": "fp32"}
half["fetched"] = "*bf16"
rows, columns, gate_and_up = ("tensordesc<bf16[%s64,64]>" % parts for parts in ("", "1,", "2,"))
halves = "tensordesc<bf16[2,32,64]>"
block = dict(BM=64, BN=64, BK=64, K=576, P=36)
decode = dict(HEADS=9, G=3, GP=16, D=64, BLOCK=32, NEARER=True, TURNS=1, SPAN=512, SPANS=4, MATES=1)
neighbours = dict(HEADS=9, G=3, GP=16, D=64, BLOCK=32)
placed = dict(HEADS=9, SHARED=3, HP=16, SP=4, D=64, BLOCK=32, TURN=True, HEAD_NORM=True)
heads = dict(BM=64, BN=32, BK=64, K=576, P=36, PP=64, LEVELS=6, QUERIES=9, SHARED=3, HALF=32, BLOCK=32)
joined = dict(HEADS=9, G=3, GP=16, D=64, SPAN=512, SPANS=4)
summed = dict(BLOCK=4096, BLOCKS=16)
for capability, ahead in ((90, True), (80, False)):
    for kernel, known, read in (
        (products._normed_kernel, block | dict(PP=64, LEVELS=6, BIAS=True), dict(z=rows, weight=columns)),
        (products._heads_kernel, heads | dict(BIAS=True), dict(z=rows, weight=halves)),
        (products._gated_kernel, block | dict(PP=64, LEVELS=6), dict(z=rows, weight=gate_and_up)),
        (products._added_kernel, block, dict(y=rows, weight=columns)),
        (kernels._decode_kernel, decode, {}),
        (kernels._decode_kernel, decode | dict(SPANS=1), {}),
        (kernels._decode_kernel, decode | dict(SPANS=1, TURNS=2), {}),
        (kernels._decode_kernel, decode | dict(MATES=4), {}),
        (kernels._neighbours_kernel, neighbours | dict(TAKES=4), {}),
        (kernels._neighbours_kernel, neighbours | dict(TAKES=2), {}),
    ):
        code = made(kernel, numbers, half | read, known | {"PDL": ahead}, capability)
        assert ("griddepcontrol.wait" in code) == ahead and "mma" in code
    made(placing._bring_kernel, numbers, half, dict(D=64, BLOCK=32), capability)
    made(placing._place_kernel, numbers, half, placed | {"PDL": ahead}, capability)
    made(kernels._join_kernel, numbers, half, joined | {"PDL": ahead}, capability)
    for kernel, known in (
        (products._begin_kernel, dict(BK=1024)),
        (layers._add_kernel, dict(K=576, BK=1024, LEVELS=10, ROWS=4)),
        (layers._add_norm_kernel, dict(K=576, BK=1024, ADD=True)),
        (layers._norm_backward_kernel, dict(K=576, BK=1024)),
        (layers._gate_kernel, dict(DIVIDE=True, BLOCK=1024)),
        (layers._gate_kernel, dict(DIVIDE=False, BLOCK=1024, divisors=None)),
        (layers._gate_rows_kernel, dict(K=1536, P=96, PP=128, LEVELS=7, BLOCK=512)),
        (layers._gate_backward_kernel, dict(DIVIDE=True, BLOCK=1024)),
        (layers._gate_backward_kernel, dict(DIVIDE=False, BLOCK=1024, divisors=None)),
        (layers._rotate_kernel, dict(D=64, HP=16, BACK=False, DIVIDE=True, BIAS=True)),
        (layers._rotate_kernel, dict(D=64, HP=16, BACK=True, DIVIDE=False, BIAS=True, divisors=None)),
        (choice._sums_kernel, dict(BLOCK=4096)),
        (choice._choose_kernel, summed | dict(STOPS=1)),
        (gpu._forward_kernel, summed | dict(ENTROPY=True)),
        (gpu._backward_kernel, dict(ENTROPY=True, BLOCK=4096)),
    ):
        made(kernel, numbers, half, known, capability)
    pointers = half | {"table": "*i32", "part_ptr": "*fp32", "delta_ptr": "*fp32", "lse_ptr": "*fp32"}
    pointers |= dict.fromkeys(["grad_ptr", "dk_ptr", "dv_ptr", "dq_ptr"], "*bf16")
    sizes = dict(GROUP=3, D=64, DP=64, BM=64, BLOCK=64, SPLIT=4, FROM=512)
    for kernel in (tiled._d_kids_kernel, tiled._d_keys_kernel):
        made(kernel, numbers, pointers, sizes, capability)
    for long in (False, True):
        ahead = dict(D=64, DP=64, BM=64, BLOCK=32, SPAN=512, LONG=long)
        made(tiled._forward_kernel, numbers, half | {"table": "*i32"}, ahead, capability)
"""


def test_kernels_are_compiled_for_gpus_that_are_not_here() -> None:
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", COMPILE], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
