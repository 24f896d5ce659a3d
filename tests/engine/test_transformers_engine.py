"""Sampling by transformers' modules gives what burnish's engine gives: tokens, log-probs, stops, limits, early ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SMALL
from decoders import save_decoder

from burnish.core.roles import frozen, trained
from burnish.engine.local import LocalEngine, Request, Sample
from burnish.engine.mixture import arithmetic
from burnish.engine.protocol import GenerateOptions
from burnish.engine.transformers_engine import TransformersEngine
from burnish.forward.paths import Paths
from burnish.forward.runner import runner_of
from burnish.models.build import build
from burnish.models.load import load_chat, load_model

CPU = torch.device("cpu")
PATHS = {"cache": Paths(), "no cache": Paths(cached=False), "whole model": Paths(padded=False)}


@pytest.fixture
def engines(small_model: Path, request: pytest.FixtureRequest) -> tuple[LocalEngine, TransformersEngine]:
    model, chat = load_model(small_model, 0, CPU, native=False), load_chat(small_model)
    runner = runner_of(model)
    return LocalEngine(runner, chat, 64), TransformersEngine(runner, chat, 64, PATHS[request.param])


def prompt(length: int, seed: int) -> torch.Tensor:
    return torch.randint(4, 260, (length,), generator=torch.Generator().manual_seed(seed))


def same(found: list[Sample], wanted: list[Sample]) -> None:
    for ours, theirs in zip(found, wanted, strict=True):
        assert torch.equal(ours.tokens, theirs.tokens) and ours.stopped == theirs.stopped
        assert torch.allclose(ours.logp, theirs.logp, atol=1e-5)


@pytest.mark.parametrize("engines", PATHS, indirect=True)
def test_requests_of_every_kind_give_the_engine_s_samples(
    engines: tuple[LocalEngine, TransformersEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("burnish.engine.transformers_engine.ROWS", 3)  # several batches of one length
    local, slow = engines
    text = local.generate([Request(prompt(6, 0), 7, 30)])[0]
    stop = (local.chat.text(text.tokens[4:6]),)
    requests = [
        Request(prompt(6, 0), 7, 30, stop=stop),
        Request(prompt(6, 0), 8, 30, temperature=0.0),
        Request(prompt(6, 0), 9, 5, temperature=0.5),
        Request(prompt(6, 1), 10, 30, top_p=0.6),
        Request(prompt(6, 1), 11, 30, top_k=3),
        Request(prompt(11, 2), 12, 99, min_p=0.2),  # longer than the context has room for
        Request(prompt(3, 3), 13, 1),
        *[Request(prompt(3, 3), 20 + i, 40, temperature=2.0) for i in range(8)],
    ]
    wanted, heard = local.generate(requests), {}
    found = slow.generate(requests, GenerateOptions(on_sample=lambda i, sample: heard.update({i: sample})))
    same(found, wanted)
    same([heard[i] for i in range(len(requests))], wanted)
    assert {sample.stopped for sample in found} == {"stop", "length"} and len(found[0].tokens) < 30
    assert len(found[5].tokens) <= 64 - 11


@pytest.mark.parametrize("engines", ["cache"], indirect=True)
def test_a_group_that_has_enough_ends(engines: tuple[LocalEngine, TransformersEngine]) -> None:
    """The others of its prompt end where they are; another prompt goes on. Finished samples are those of a free run."""
    _, slow = engines
    requests = [Request(prompt(5, i % 2), i, 3 + 4 * (i // 2)) for i in range(6)]
    free = slow.generate(requests)
    found = slow.generate(requests, GenerateOptions(stop_rule=lambda done: torch.equal(done[0].tokens, free[0].tokens)))
    same([found[i] for i in (0, 1, 3, 5)], [free[i] for i in (0, 1, 3, 5)])
    for i in (2, 4):
        assert found[i].stopped == "enough" and torch.equal(found[i].tokens, free[i].tokens[: len(found[i].tokens)])


@pytest.mark.parametrize("engines", ["cache"], indirect=True)
def test_a_prompt_that_fills_the_context_is_refused(engines: tuple[LocalEngine, TransformersEngine]) -> None:
    with pytest.raises(ValueError, match="a prompt has 64 tokens, but the model's context holds 64"):
        engines[1].generate([Request(prompt(64, 0), 0, 5)])
    assert engines[1].generate([]) == []


def test_a_mixture_with_a_model_that_the_engine_does_not_know(tmp_path: Path, small_model: Path) -> None:
    """The policy alone is sampled by the engine, the mixture by transformers' modules; log-probs are the mixture's."""
    other = save_decoder("bloom", tmp_path, small_model)
    models = build({"policy": trained(), "other": frozen(str(other))}, small_model, SMALL, device="cpu")
    policy, bloom = models["policy"], models["other"]
    requests = [Request(prompt(5, 0), 0, 6), Request(prompt(8, 1), 1, 6)]
    samples = policy.generate(requests, [bloom], arithmetic("other", 0.3).mix)
    for request, sample in zip(requests, samples, strict=True):
        whole = torch.cat([request.prompt, sample.tokens])
        mask = torch.arange(len(whole)) >= len(request.prompt)
        with torch.no_grad():
            ours, theirs = (m.outputs([whole], [mask], {"logp"})["logp"].exp() for m in (policy, bloom))
        assert torch.allclose(sample.logp.exp(), 0.7 * ours + 0.3 * theirs, atol=1e-5)


@pytest.mark.parametrize("engines", ["cache"], indirect=True)
def test_a_configuration_without_a_cache_changes_nothing(engines: tuple[LocalEngine, TransformersEngine]) -> None:
    """`use_cache: false` in a config.json, as training with activation checkpoints leaves it: the call decides."""
    local, slow = engines
    requests = [Request(prompt(6, 0), 7, 12), Request(prompt(3, 1), 8, 12)]
    wanted = local.generate(requests)
    slow.runner.module.config.use_cache = False
    same(slow.generate(requests), wanted)
