"""Decoders of transformers, saved, loaded, trained and sampled like any model: the numbers are transformers' own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SMALL
from decoders import DECODERS, fast_in_docs, save_decoder, slower_in_docs
from torch import Tensor, nn

from burnish.core.roles import trained
from burnish.engine.local import Request
from burnish.forward.paths import paths_of
from burnish.models.build import build
from burnish.models.model import Model

FAST = [
    "bloom",
    "deepseek_v3",
    "gemma2",
    "gpt_oss",
    "lfm2",
    "llama4_text",
    "mamba",
    "nemotron",
    "qwen3_moe",
    "stablelm",
]
EVERY = [pytest.param(name, marks=[] if name in FAST else pytest.mark.slow) for name in DECODERS]
DOCS = Path(__file__).parents[2] / "docs" / "models.md"


@pytest.fixture
def directory(name: str, tmp_path: Path, small_model: Path) -> Path:
    return save_decoder(name, tmp_path / "model", small_model)


@pytest.fixture
def policy(directory: Path) -> Model:
    return build({"policy": trained()}, directory, SMALL, device="cpu")["policy"]


@pytest.fixture
def reference(directory: Path) -> nn.Module:
    """The same model with nothing of burnish's."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager", dtype=torch.float32)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model.eval()  # type: ignore[no-any-return]


def plain(model: nn.Module, row: Tensor) -> Tensor:
    """[T - 1]: log-probs of all tokens of a row but its first, by the model's own forward of it alone."""
    logp = torch.log_softmax(model(row[None], use_cache=False).logits[0].float(), -1)
    return logp[:-1].gather(-1, row[1:, None])[:, 0]


def rows_of() -> tuple[list[Tensor], list[Tensor]]:
    """Rows of many lengths, some of which begin alike, and the tokens that are asked about."""

    def draw(n: int, seed: int) -> Tensor:
        return torch.randint(3, 260, (n,), generator=torch.Generator().manual_seed(seed))

    starts = [draw(7, 0), draw(3, 1)]
    rows = [torch.cat([starts[i % 2], draw(n, n)]) for i, n in enumerate((9, 2, 5, 4, 6))]
    return rows, [torch.arange(len(row)) >= len(starts[i % 2]) for i, row in enumerate(rows)]


@pytest.mark.parametrize("name", EVERY)
def test_log_probs_gradients_and_samples_are_transformers_own(policy: Model, reference: nn.Module, name: str) -> None:
    paths = paths_of(policy.module)
    assert (paths.training, paths.sampling) == (DECODERS[name].training, DECODERS[name].sampling)
    assert bool(policy.warnings) == bool(DECODERS[name].why)

    rows, masks = rows_of()
    wanted = torch.cat([plain(reference, row)[mask[1:]] for row, mask in zip(rows, masks, strict=True)])
    found = policy.outputs(rows, masks, {"logp"})["logp"]
    assert torch.allclose(found, wanted, atol=1e-4)

    weights = torch.linspace(-1, 2, len(wanted))
    for logp in (found, wanted):
        (weights * logp).sum().backward()
    theirs = {key: p.grad for key, p in reference.named_parameters() if p.grad is not None}
    ours = {key: p.grad for key, p in policy.module.named_parameters() if p.grad is not None}
    assert theirs.keys() == ours.keys()
    apart = sum(float((ours[key] - theirs[key]).square().sum()) for key in ours) ** 0.5
    assert apart < 1e-4 * sum(float(grad.square().sum()) for grad in theirs.values()) ** 0.5

    requests = [Request(rows[0], 0, 6, 0.0), Request(rows[1], 1, 9), Request(rows[0], 2, 5, 0.7, top_p=0.9)]
    samples = policy.generate(requests)
    for request, sample in zip(requests, samples, strict=True):
        assert 0 < len(sample.tokens) <= request.max_new
        whole = torch.cat([request.prompt, sample.tokens])
        said, heat = torch.arange(len(whole)) >= len(request.prompt), request.temperature or 1.0
        with torch.no_grad():
            mine = policy.outputs([whole], [said], {"logp"}, heat)["logp"]
            logits = reference(whole[None], use_cache=False).logits[0, len(request.prompt) - 1 : -1] / heat
        logp = torch.log_softmax(logits.float(), -1).gather(-1, sample.tokens[:, None])[:, 0]
        assert torch.allclose(sample.logp, mine, atol=1e-4) and torch.allclose(sample.logp, logp, atol=1e-4)
        if not request.temperature:
            assert torch.equal(logits.argmax(-1), sample.tokens)


def test_the_docs_name_the_paths_that_are_tested() -> None:
    """Where this fails, put what decoders.py writes into docs/models.md."""
    text = DOCS.read_text()
    assert f"\n{fast_in_docs()}\n" in text and f"\n{slower_in_docs()}\n" in text
