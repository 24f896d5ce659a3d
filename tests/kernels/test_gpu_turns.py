"""Turns of episodes on a GPU: a reply that follows another goes on in its slot (kernels: Triton's interpreter)."""

from __future__ import annotations

import pytest
from guards import guards

pytest.importorskip("triton", reason="the GPU kernels need triton (burnish[test], on Linux with x86-64)")
from test_gpu_kernels import interpreted  # noqa: E402

pytestmark = guards("kernels", "engine", "forward")

TURNS = """
import sys, tempfile
from pathlib import Path
sys.path.insert(0, "tests")
from burnish.engine import kept_rows, kv_cache, local, scheduler
from burnish.engine.request import Request
from burnish.kernels.cuda_graphs import decoding, extension, prefill
from burnish.kernels.registry import Registry
from burnish.kernels.triton.fused_qkv import join_projections
from burnish.models.build import build
from burnish.core.roles import roles
from conftest import SMALL, make_model

Registry.load = lambda self, path: None  # on a GPU every model is transformers' own
shape = dict(hidden_size=64, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=1)
policy = build(roles(), make_model(Path(tempfile.mkdtemp()), **shape), SMALL, device="cpu")["policy"]
policy.chat.stops = (-1,)
kv_cache.on_gpu = lambda device: True
decoding.SIZES, extension.SIZES = (4, 8), (4, 16)
if FUSED:
    for parameter in policy.engine.model.parameters():
        parameter.data = parameter.data.clone()
    join_projections(policy.engine.model)
drawn = torch.Generator().manual_seed(1)
words = lambda n: torch.randint(4, 200, (n,), generator=drawn)
first = [words(n) for n in (3, 40, 9)]
said = [[words(n) for n in row] for row in ((1, 5), (7, 1), (30, 2))]
prefilled = []
before = prefill.GpuDecoder._prefill


def counted(self, prompts, *given):
    prefilled.append([len(prompt) for prompt in prompts])
    return before(self, prompts, *given)


prefill.GpuDecoder._prefill = counted

class Talk:
    '''Three episodes of three turns; the next turn of each is asked for when its reply has come.'''

    rows = 3

    def __init__(self, linked):
        self.linked, self.number, self.of, self.replies = linked, 0, {}, [[] for _ in first]
        self.new = [self.ask(k, first[k], None) for k in range(3)]

    def ask(self, k, prompt, after):
        turn = len(self.replies[k])
        return k, Request(prompt, 100 * k + turn, 2 + (k + turn) % 3, after=after if self.linked else None)

    def take(self, wait):
        new, self.new = self.new, []
        for k, request in new:
            self.of[self.number] = k, request
            self.number += 1
        return [request for _, request in new]

    def sampled(self, i, sample):
        k, request = self.of.pop(i)
        self.replies[k].append(sample)
        if len(self.replies[k]) < 3:
            more = said[k][len(self.replies[k]) - 1]
            self.new.append(self.ask(k, torch.cat([request.prompt, sample.tokens, more]), i))

def talk(linked):
    prefilled.clear()
    its = Talk(linked)
    policy.generate([], on_sample=its.sampled, feed=its)
    return [[(x.tokens.tolist(), x.logp) for x in row] for row in its.replies], sum(map(sum, prefilled))

def same(a, b):
    for row, other in zip(a, b, strict=True):
        for (tokens, logp), (wanted, theirs) in zip(row, other, strict=True):
            assert tokens == wanted, (tokens, wanted)
            assert torch.allclose(logp, theirs, atol=1e-4), (logp, theirs)

alone, whole = talk(False)
assert policy.engine.known == 0
for _ in range(2):
    linked, part = talk(True)
    same(linked, alone)
sizes = [[*map(len, (first[k], *said[k])), *(len(tokens) for tokens, _ in alone[k][:2])] for k in range(3)]
assert policy.engine.known == max(map(sum, sizes))
# in the second call every episode has room from the beginning: nothing but the first prompts is prefilled
assert part == 3 + 40 + 9 < whole, (part, whole)
if not FUSED:
    kept_rows.MOST_NEW = 6  # what 7 and 30 words follow is prefilled whole
    linked, part = talk(True)
    same(linked, alone)
    assert part > 3 + 40 + 9
    kept_rows.MOST_NEW = 256
    local.MAX_ROWS = {"cpu": 2}  # an episode waits for a slot: kept rows give theirs up
    same(talk(True)[0], alone)
    local.MAX_ROWS = {"cpu": 256}
    pool = scheduler.Pool
    scheduler.Pool = lambda size: pool(60)  # room for the first prompts, and for little else
    kept_rows.MOST_NEW = 6
    same(talk(True)[0], alone)
"""


@pytest.mark.parametrize("fused", [False, True])
def test_a_reply_that_follows_another_goes_on_in_its_slot(fused: bool) -> None:
    interpreted(TURNS, FUSED=str(fused))
