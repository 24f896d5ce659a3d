"""Our kernels for a CPU: right numbers, the same bits however the work is cut, and a way out where they cannot be
built.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from conftest import make_model, numbers
from guards import guards
from torch import Tensor

from burnish.core.randomness import generator
from burnish.engine.sampling import choose, logp_of
from burnish.forward import cpu_attention
from burnish.forward.logprob import logp_entropy
from burnish.forward.outputs import outputs
from burnish.forward.packing import Packed, pack
from burnish.forward.runner import runner_of
from burnish.kernels.cpu import build
from burnish.kernels.cpu.c_attention import suits
from burnish.kernels.cpu.c_layer import normed
from burnish.kernels.cpu.weight_layout import WeightLayout
from burnish.models.known_models import TINY
from burnish.models.load import load_model

pytestmark = guards("kernels")

CPU = torch.device("cpu")
needs_kernels = pytest.mark.skipif(build.kernels() is None, reason=f"no kernels here: {build.why_not()}")
FAMILIES = [(1, 1), (3, 4), (40, 3), (130, 2), (200, 1), (33, 5)]  # a beginning's length, and how many rows share it
HEADS = [(8, 4, 32), (9, 3, 64), (4, 4, 32), (16, 1, 128)]


def normal(*shape: int, what: str = "") -> Tensor:
    return torch.from_numpy(generator("compiled", what, *map(str, shape)).standard_normal(shape)).float()


def a_pack(shared: bool = True) -> tuple[Packed, list[Tensor]]:
    """Families of all sizes: shorter and longer than what is computed at once."""
    rows, asked = [], []
    for number, (beginning, replies) in enumerate(FAMILIES):
        for i in range(replies):
            rows.append(torch.cat([torch.arange(beginning) + 7 * number, torch.arange(1 + i * 37 % 90)]))
            asked.append(beginning)
    return pack(numbers(rows), asked if shared else None, CPU), rows


@needs_kernels
@pytest.mark.parametrize("rows", [1, 2, 13, 14, 15, 70, 300])
@pytest.mark.parametrize("inputs, outputs", [(64, 96), (100, 32), (257, 438), (7, 5)])
def test_a_product_is_right_and_no_row_depends_on_another(rows: int, inputs: int, outputs: int) -> None:
    weight, x = normal(outputs, inputs, what="w"), normal(rows, inputs, what="x")
    laid = WeightLayout().of(weight)
    assert laid.panels
    y = laid.times(x)
    assert torch.allclose(y.double(), x.double() @ weight.double().t(), atol=1e-4)
    assert torch.equal(laid.times(x[rows // 2 :]), y[rows // 2 :]) and torch.equal(laid.times(x[:1]), y[:1])


@needs_kernels
def test_a_norm_is_right_and_no_row_depends_on_another() -> None:
    x, weight = normal(40, 100), normal(100, what="w")
    y = normed(x, weight, 1e-6)
    wanted = x.double() * (x.double().square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight
    assert torch.allclose(y.double(), wanted, atol=1e-5) and torch.equal(normed(x[7:9].clone(), weight, 1e-6), y[7:9])


def attended(packed: Packed, heads: int, kv_heads: int, width: int, wide: bool) -> list[Tensor]:
    """What attention makes of a pack, and the gradients, through our kernels (in fp32) or torch (in fp64)."""
    n = len(packed.tokens)
    # as transformers makes them: the tokens of a head side by side
    q, k, v = (
        normal(h, n, width, what=what).transpose(0, 1) for h, what in ((heads, "q"), (kv_heads, "k"), (kv_heads, "v"))
    )
    d = normal(n, heads, width, what="d")
    if wide:
        q, k, v, d = q.double(), k.double(), v.double(), d.double()
    given = [x.requires_grad_() for x in (q, k, v)]
    assert suits(q, v, None) is not wide
    out = cpu_attention.attend(*given, packed, width**-0.5, None)
    return [out.detach(), *torch.autograd.grad(out, given, d)]


@needs_kernels
@pytest.mark.parametrize("heads, kv_heads, width", HEADS)
@pytest.mark.parametrize("shared", [True, False])
def test_attention_over_a_pack_is_that_of_torch(heads: int, kv_heads: int, width: int, shared: bool) -> None:
    packed, _ = a_pack(shared)
    for found, wanted in zip(*(attended(packed, heads, kv_heads, width, wide) for wide in (False, True)), strict=True):
        assert float((found - wanted).norm() / wanted.norm()) < 2e-6


@needs_kernels
def test_attention_gives_the_same_bits_with_any_number_of_threads() -> None:
    threads, packed, found = torch.get_num_threads(), a_pack()[0], []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            found.append(attended(packed, 9, 3, 64, wide=False))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def learned(
    model: torch.nn.Module, rows: list[Tensor], asked: list[int], packed: bool = True, silent: Sequence[int] = ()
) -> tuple[Tensor, dict[str, Tensor]]:
    """Log-probs of the replies and the gradient of a weighted sum of them; silent: rows whose weights are 0."""
    model.zero_grad()
    masks = [torch.arange(len(row)) >= first for row, first in zip(rows, asked, strict=True)]
    logp = outputs(runner_of(model), rows, masks, {"logp"}, packed=packed)["logp"]
    row = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor([int(mask.sum()) for mask in masks]))
    weights = normal(len(logp)).to(logp) * ~torch.isin(row, torch.tensor(silent, dtype=torch.long))
    (logp * weights).sum().backward()
    return logp.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.fixture(scope="module", params=["Llama", "Qwen2", "Qwen3"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tiny`, and others that read what it reads."""
    shape = {"head_dim": 32, "max_position_embeddings": 512, "vocab_size": 438}
    others = request.param != "Llama"
    return make_model(tmp_path_factory.mktemp("model"), kind=request.param, **shape) if others else TINY


@needs_kernels
@pytest.mark.parametrize("packed", [True, False])
def test_layers_and_their_gradients_are_those_of_fp64(packed: bool, directory: Path) -> None:
    model, rows = load_model(directory, 0, CPU), a_pack()[1]
    asked = [max(1, len(row) // 2) for row in rows]
    assert model.model.kernels is not None
    logp, gradient = learned(model, rows, asked, packed)
    wanted, exact = learned(copy.deepcopy(model).double(), rows, asked, packed)
    assert float((logp - wanted).abs().max()) < 1e-4
    assert gradient.keys() == exact.keys()
    for name, g in gradient.items():
        assert float((g - exact[name]).norm() / exact[name].norm()) < 1e-5, name


@needs_kernels
@pytest.mark.parametrize("silent", [(0, 1, 5, 6, 7), (2, 8, 11, 12), tuple(range(15)), tuple(range(16))])
@pytest.mark.parametrize("shared", [True, False])
def test_rows_without_gradient_may_be_left_out(silent: tuple[int, ...], shared: bool, directory: Path) -> None:
    """Whole families, some of a family's replies, all but one row, all of them."""
    model, rows = load_model(directory, 0, CPU), a_pack()[1]
    beginnings = [n for n, replies in FAMILIES for _ in range(replies)]
    asked = beginnings if shared else [max(1, n // 2) + i % 2 for i, n in enumerate(beginnings)]
    gradient = learned(model, rows, asked, silent=silent)[1]
    exact = learned(copy.deepcopy(model).double(), rows, asked, silent=silent)[1]
    for name, g in gradient.items():
        assert float((g - exact[name]).norm()) <= 1e-5 * float(exact[name].norm()), name


@needs_kernels
def test_frozen_weights_get_no_gradient_and_change_no_other() -> None:
    model, rows = load_model(TINY, 0, CPU), a_pack()[1]
    asked = [max(1, len(row) // 2) for row in rows]
    whole = learned(model, rows, asked)[1]
    frozen = [name for name in whole if "k_proj" in name or "down" in name or "post" in name or "layers.0" in name]
    for name, p in model.named_parameters():
        p.requires_grad_(name not in frozen)
    part = learned(model, rows, asked)[1]
    assert part.keys() == whole.keys() - set(frozen)
    assert all(torch.equal(part[name], whole[name]) for name in part)


def torches(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, as without kernels."""
    monkeypatch.setattr(build, "_found", lambda: "not here")


@needs_kernels
@pytest.mark.parametrize("words", [5, 438, 1000])
def test_tokens_are_chosen_as_torch_chooses_them(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = 3 * normal(64, words)
    logits[3, 1:] = -torch.inf
    factor = torch.where(torch.arange(64) % 2 == 0, 1.0, 1 / 0.7)
    keys, positions, greedy = torch.arange(64) * 7919 - 99, torch.arange(64), torch.arange(64) % 5 == 0
    token, logp = choose(logits, factor, keys, positions, greedy)
    again = logp_of(logits, factor, token)
    torches(monkeypatch)
    wanted, wanted_logp = choose(logits, factor, keys, positions, greedy)
    assert torch.equal(token, wanted) and torch.allclose(logp, wanted_logp, atol=2e-6)
    assert token[3] == 0 and torch.equal(again, logp)


@needs_kernels
def test_chosen_tokens_follow_their_probabilities() -> None:
    logits = torch.tensor([0.0, 1.0, -torch.inf, 2.0]).expand(40_000, -1).contiguous()
    keys, ones = torch.arange(40_000) * 104_729, torch.ones(40_000)
    token, _ = choose(logits, ones, keys, torch.zeros(40_000, dtype=torch.long), torch.zeros(40_000, dtype=torch.bool))
    share = torch.bincount(token, minlength=4) / len(token)
    assert torch.allclose(share, torch.softmax(logits[0], -1), atol=0.01) and share[2] == 0


@needs_kernels
@pytest.mark.parametrize("factor, entropy", [(1.0, False), (1.0, True), (1.4, True)])
def test_log_probs_and_entropies_are_those_of_torch(
    factor: float, entropy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    states, weight, chosen = normal(50, 64), normal(301, 64, what="w"), torch.arange(50) * 5
    g, h = normal(50, what="g"), normal(50, what="h")
    g[10:30] = 0
    found = []
    for plainly in (False, True):
        if plainly:
            torches(monkeypatch)
        x, w = states.clone().requires_grad_(), weight.clone().requires_grad_()
        logp, spread = logp_entropy(x, w, chosen, factor, entropy)
        (logp * g + (spread * h if entropy else 0)).sum().backward()
        found.append((logp.detach(), spread.detach(), x.grad, w.grad))
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, atol=5e-5, rtol=1e-4)
