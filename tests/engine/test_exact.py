"""On a CPU sampler and trainer agree bit for bit, and a reply depends on nobody beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, build_method, make_model, trainers_logp

from burnish.core.loop import loop
from burnish.core.roles import roles
from burnish.core.step import Settings
from burnish.engine.local import Request, Sample
from burnish.kernels.cpu.c_layer import panel_width
from burnish.kernels.cpu.weight_layout import steady
from burnish.learn.mismatch import NAME
from burnish.models.build import build
from burnish.models.known_models import TINY
from burnish.models.lora import Lora
from burnish.models.model import Model

EXACT = replace(SMALL, exact=True)
NO_KERNELS = (
    "tiny without kernels",
    "a head for each query",
    "Qwen3 without kernels",
)  # the second's heads are too narrow


@pytest.fixture(
    scope="module",
    params=[
        "tiny",
        "tiny without kernels",
        "a head for each query",
        "heads of 64",
        "Qwen2",
        "Qwen3",
        "Qwen3 without kernels",
        "LoRA",
    ],
)
def policy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    shapes = {
        "a head for each query": {"num_attention_heads": 4, "num_key_value_heads": 4, "hidden_size": 64},
        "heads of 64": {"num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 192, "head_dim": 64},
        "Qwen2": {"kind": "Qwen2", "head_dim": 32},
        "Qwen3": {"kind": "Qwen3", "head_dim": 32},
        "Qwen3 without kernels": {"kind": "Qwen3", "head_dim": 32},
        "LoRA": {"head_dim": 32},
    }
    if not steady() and (request.param in NO_KERNELS or not panel_width()):
        pytest.skip("torch's products depend on how many rows there are here")
    path = TINY
    if request.param in shapes:
        path = make_model(tmp_path_factory.mktemp("exact") / "model", **shapes[request.param])
    with pytest.MonkeyPatch.context() as change:
        if request.param.endswith("without kernels"):
            change.setattr("burnish.kernels.cpu.build._found", lambda: "not here")
        lora = Lora(4) if request.param == "LoRA" else None
        made = build(roles(), path, Settings(exact=True), device="cpu", lora=lora)["policy"]
        if lora is not None:
            for p in made.optimiser.named.values():  # B begins as 0
                p.data.normal_(std=0.1, generator=torch.Generator().manual_seed(1))
            made.weights_moved()
        yield made


def asked(policy: Model) -> list[Request]:
    """Prompts short and long, groups, and uneven lengths."""
    dice = torch.Generator().manual_seed(0)
    words = policy.module.get_input_embeddings().weight.shape[0]
    prompts = [torch.randint(4, words, (n,), generator=dice) for n in (1, 2, 9, 40, 70, 130)]
    return [Request(prompts[k % 6], k, 1 + (k * 7) % 30, temperature=1.0 if k % 4 else 0.7) for k in range(30)]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("at_once", [1, 4, 30])
def test_the_trainer_finds_the_bits_of_the_sampler(policy: Model, at_once: int, temperature: float) -> None:
    requests = [request for request in asked(policy) if request.temperature == temperature]
    samples = policy.generate(asked(policy))
    samples = [s for s, request in zip(samples, asked(policy), strict=True) if request.temperature == temperature]
    for sample, logp in zip(samples, trainers_logp(policy.module, requests, samples, at_once), strict=True):
        assert torch.equal(sample.logp, logp)


@pytest.mark.parametrize("rows", [1, 3, 30])
def test_a_reply_depends_on_nobody_beside_it(policy: Model, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    together = policy.generate(asked(policy))
    monkeypatch.setattr("burnish.engine.local.MAX_ROWS", {"cpu": rows})
    for one, other in zip(together, policy.generate(asked(policy)[::-1])[::-1], strict=True):
        assert torch.equal(one.tokens, other.tokens) and torch.equal(one.logp, other.logp)


@pytest.fixture(scope="module")
def in_kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model whose heads are wide enough for our kernels."""
    if not steady() and not panel_width():
        pytest.skip("torch's products depend on how many rows there are here")
    return make_model(tmp_path_factory.mktemp("kernels") / "model", head_dim=32)


@pytest.mark.parametrize("method", ["grpo", "ppo", "reinforce"])
def test_a_run_notes_that_nothing_differs(method: str, in_kernels: Path, other_model: Path) -> None:
    made = build_method(method, other_model)
    reports = list(loop(made, build_cast(made, in_kernels, EXACT), EXACT, steps=2))
    assert [report.metrics[NAME] for report in reports] == [0.0, 0.0]


def test_a_difference_stops_a_run_that_must_be_exact(in_kernels: Path, other_model: Path) -> None:
    made = build_method("grpo", other_model)
    models = build_cast(made, in_kernels, EXACT)
    policy = models["policy"]
    generate = policy.engine.generate

    def worn(*args: object, **more: object) -> list[Sample]:
        return [Sample(s.tokens, s.logp + 1e-6, s.stopped) for s in generate(*args, **more)]  # type: ignore[arg-type]

    policy.engine.generate = worn  # type: ignore[method-assign, assignment]
    with pytest.raises(ValueError, match="--exact was asked for, but sampler and trainer differ by"):
        list(loop(made, models, EXACT, steps=1))


def test_what_cannot_be_exact_is_refused(small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="--exact needs a plain Llama, Qwen2 or Qwen3 on a CPU"):
        build(roles(), make_model(tmp_path, kind="Mistral"), EXACT, device="cpu")
    with pytest.raises(ValueError, match="--exact needs --engine local and --packed"):
        build(roles(), small_model, replace(EXACT, packed=False), device="cpu")
    monkeypatch.setattr("burnish.kernels.cpu.runner.steady", lambda: False)  # as on many processors
    with pytest.raises(ValueError, match="--exact needs burnish's own kernels here"):
        build(roles(), small_model, EXACT, device="cpu")
