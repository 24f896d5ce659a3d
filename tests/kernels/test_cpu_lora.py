"""LoRA and scoring heads in the C kernels: the numbers and gradients of peft's and transformers' own modules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, make_model
from torch import Tensor, nn

from burnish.core.roles import frozen, roles
from burnish.core.roles import trained as learns
from burnish.engine.request import Request
from burnish.forward.outputs import outputs
from burnish.forward.runner import ModelRunner, TransformersRunner, runner_of
from burnish.kernels.cpu.c_adapters import Adapter, back_, grads
from burnish.kernels.cpu.c_layer import panel_width
from burnish.kernels.cpu.runner import LlamaRunner, ScorerRunner
from burnish.models.build import Models, build
from burnish.models.lora import Lora

pytest.importorskip("peft", reason="LoRA needs peft")
pytestmark = pytest.mark.skipif(not panel_width(), reason="there is no C compiler")

KINDS = {
    "Llama": Lora(4),
    "Qwen2": Lora(3, alpha=10.0, targets=("q_proj", "v_proj", "down_proj")),
    "Qwen3": Lora(4, variant="rslora", targets=("k_proj", "o_proj", "up_proj")),
}
ROWS = [torch.randint(4, 200, (n,), generator=torch.Generator().manual_seed(n)) for n in (9, 13, 6)]
MASKS = [torch.arange(len(row)) >= 4 for row in ROWS]


def model_of(folder: Path, kind: str = "Llama") -> Path:
    return make_model(folder, kind=kind, head_dim=32)


def built(path: Path, lora: Lora, **settings: Any) -> Models:
    """Policy and reference; the adapters moved from where they begin, where B is 0."""
    models = build(roles(reference=frozen()), path, replace(SMALL, **settings), device="cpu", lora=lora)
    torch.manual_seed(7)
    for p in trained(models["policy"].module):
        p.data.add_(torch.randn_like(p) * 0.1)
    models["policy"].weights_moved()
    return models


def trained(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]


def learned(runner: ModelRunner, of: nn.Module) -> list[Tensor]:
    """Log-probs, and the gradients of the adapters for a mixture of them."""
    logp = outputs(runner, ROWS, MASKS, {"logp"})["logp"]
    return [logp.detach(), *torch.autograd.grad((logp * torch.linspace(-1, 1, len(logp))).sum(), trained(of))]


def close(mine: list[Tensor], theirs: list[Tensor]) -> None:
    for a, b in zip(mine, theirs, strict=True):
        assert (a - b).norm() <= 2e-5 * b.norm()


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_and_gradients_are_pefts(kind: str, tmp_path: Path) -> None:
    policy = built(model_of(tmp_path, kind), KINDS[kind])["policy"]
    runner, module = policy.working.runner, policy.module
    assert isinstance(runner, LlamaRunner)
    close(learned(runner, module), learned(TransformersRunner(module), module))
    for p in trained(module):
        p.data.mul_(1.5)
    before = learned(runner, module)
    policy.weights_moved()  # the weights laid out for the kernels follow the adapters
    after = learned(runner, module)
    assert not torch.allclose(before[0], after[0], atol=1e-4)
    close(after, learned(TransformersRunner(module), module))


def test_gradients_by_hand() -> None:
    """W 1 x 2, A = [1, 2], B = [3], scale 0.5, x = [1, 1], d = 2: t = 6, d x += 0.5 6 [1, 2], d A = 0.5 6 [1, 1],
    d B = 0.5 2 (1 + 2)."""
    adapter = Adapter(nn.Parameter(torch.tensor([[1.0, 2.0]])), nn.Parameter(torch.tensor([[3.0]])), 0.5)
    d, d_x, x = torch.tensor([[2.0]]), torch.tensor([[10.0, 20.0]]), torch.ones(1, 2)
    assert torch.equal(adapter.merged(torch.tensor([[1.0, 1.0]])), torch.tensor([[2.5, 4.0]]))
    with torch.no_grad():
        inner = back_((adapter,), d, [1], d_x)
        d_a, d_b = grads((adapter,), d, [1], inner, x)
    assert d_x.tolist() == [[13.0, 26.0]] and inner[0] is not None and inner[0].tolist() == [[6.0]]
    assert d_a is not None and d_a.tolist() == [[3.0, 3.0]] and d_b is not None and d_b.tolist() == [[3.0]]


def test_a_policy_that_has_not_moved_has_its_references_bits(tmp_path: Path) -> None:
    models = build(roles(reference=frozen()), model_of(tmp_path), SMALL, device="cpu", lora=Lora(4))
    assert all(isinstance(model.working.runner, LlamaRunner) for model in models)
    with torch.no_grad():
        mine, theirs = (outputs(model.working.runner, ROWS, MASKS, {"logp"})["logp"] for model in models)
    assert torch.equal(mine, theirs)
    held = {p.data_ptr() for p in models["reference"].module.parameters()}
    assert all(p.data_ptr() in held for p in models["policy"].module.parameters() if not p.requires_grad)


def test_sampled_activations_serve_the_trainer(tmp_path: Path) -> None:
    """Replies are those of peft's modules; a training pass over them takes what the sampler has computed."""
    policy = built(model_of(tmp_path), Lora(4))["policy"]
    module, native = policy.module, policy.working.runner
    assert isinstance(native, LlamaRunner) and native.llama.model.trained
    requests = [Request(ROWS[k % 3], k, 5) for k in range(6)]
    sampled = policy.generate(requests)
    rows = [torch.cat([r.prompt, s.tokens]) for r, s in zip(requests, sampled, strict=True)]
    masks = [torch.arange(len(row)) >= len(r.prompt) for row, r in zip(rows, requests, strict=True)]
    found = []
    assert native.llama.model.remembered.valid
    for runner in (native, runner_of(module), TransformersRunner(module)):
        logp = outputs(runner, rows, masks, {"logp"})["logp"]
        found.append([logp.detach(), *torch.autograd.grad(logp.square().sum(), trained(module))])
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][0], torch.cat([sample.logp for sample in sampled]))
    close(found[0], found[2])
    close(found[1], found[2])


def test_recomputed_layers_have_the_same_gradients(tmp_path: Path) -> None:
    path = model_of(tmp_path)
    plain, recomputed = (built(path, Lora(4), checkpoint_activations=how)["policy"] for how in ("off", "recompute"))
    runner = recomputed.working.runner
    assert isinstance(runner, LlamaRunner) and runner.llama.model.checkpointing and runner.llama.training
    close(learned(runner, recomputed.module), learned(plain.working.runner, plain.module))


@pytest.mark.parametrize(
    "lora",
    [Lora(4, dropout=0.1), Lora(4, variant="dora"), Lora(4, whole=("lm_head",)), Lora(4, whole=("embed_tokens",))],
    ids=["dropout", "dora", "a head", "a table"],
)
def test_what_the_kernels_do_not_compute_is_left_to_peft(lora: Lora, tmp_path: Path) -> None:
    path = make_model(tmp_path, head_dim=32, tie_word_embeddings=False)
    assert not isinstance(built(path, lora)["policy"].working.runner, LlamaRunner)


def test_a_model_too_large_to_be_held_twice_is_left_to_peft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("burnish.kernels.cpu.adopted.host_memory", lambda: 1000)
    assert not isinstance(built(model_of(tmp_path), Lora(4))["policy"].working.runner, LlamaRunner)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lora", [None, Lora(4)], ids=["all weights", "LoRA"])
def test_a_critic_has_the_numbers_and_gradients_of_transformers(kind: str, lora: Lora | None, tmp_path: Path) -> None:
    model = build(roles(critic=learns(outputs=1)), model_of(tmp_path, kind), SMALL, device="cpu", lora=lora)["critic"]
    runner, module = model.working.runner, model.module
    torch.manual_seed(7)
    for p in trained(module):
        p.data.add_(torch.randn_like(p) * 0.1)
    model.weights_moved()
    assert isinstance(runner, ScorerRunner)
    found = []
    for one in (runner, TransformersRunner(module)):
        value = outputs(one, ROWS, MASKS, {"value"})["value"]
        mixed = (value * torch.linspace(-1, 1, len(value))).sum()
        some = torch.autograd.grad(mixed, trained(module), allow_unused=True)
        found.append([value.detach(), *(grad for grad in some if grad is not None)])
    assert len(found[0]) > 10
    close(*found)


def test_a_model_whose_weights_are_all_trained_is_not_adopted(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    assert type(runner_of(AutoModelForCausalLM.from_pretrained(model_of(tmp_path)))) is TransformersRunner
