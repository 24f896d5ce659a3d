"""A real vLLM as the sampler: its log-probs, its weights, its deaths. Slow, and skipped where there is no Python with
vLLM.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_method, make_model
from runs import halted_after
from test_subprocess_engine import engine_of, requests_of, stale_weights_are_caught

from burnish import train
from burnish.api.train import resume
from burnish.checkpoint.diff import differences, log_rows
from burnish.core.roles import roles
from burnish.engine.subprocess.engine import SubprocessEngine
from burnish.engine.subprocess.vllm_python import vllm_python
from burnish.models.build import build
from burnish.models.lora import Lora
from burnish.models.model import Model

pytestmark = pytest.mark.extras
VLLM = replace(SMALL, engine="vllm")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """vLLM's attention on a CPU wants heads of 32 numbers or more."""
    try:
        vllm_python(None)
    except ValueError as error:
        pytest.skip(str(error))
    return make_model(tmp_path_factory.mktemp("wide"), num_attention_heads=1, num_key_value_heads=1)


@pytest.fixture(scope="module")
def policy(model: Path) -> Iterator[Model]:
    models = build(roles(), model, VLLM, device="cpu")
    yield models["policy"]
    models.end()


@pytest.mark.parametrize(
    "how", [{}, {"temperature": 0.7}, {"temperature": 0.0}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1}], ids=str
)
def test_its_log_probs_are_the_trainers(policy: Model, how: dict) -> None:
    requests = requests_of(policy, **how)
    for request, sample in zip(requests, policy.generate(requests), strict=True):
        tokens = torch.cat([request.prompt, sample.tokens])
        mask = torch.arange(len(tokens)) >= len(request.prompt)
        with torch.no_grad():
            ours = policy.outputs([tokens], [mask], {"logp"}, request.temperature or 1.0)["logp"]
        assert float((ours - sample.logp).abs().max()) < 1e-4
        ended = int(sample.tokens[-1]) in policy.chat.stops
        assert sample.stopped == ("stop" if ended else "length")
        assert len(sample.tokens) == 12 or ended


def test_greedy_is_what_the_local_engine_says(policy: Model, model: Path) -> None:
    local = build(roles(), model, SMALL, device="cpu")["policy"]
    requests = requests_of(policy, temperature=0.0)
    pairs = zip(policy.generate(requests), local.generate(requests), strict=True)
    assert all(torch.equal(a.tokens, b.tokens) for a, b in pairs)


def test_a_sample_depends_on_its_key_alone(policy: Model) -> None:
    requests = requests_of(policy)
    together = policy.generate(requests)
    assert len({tuple(sample.tokens.tolist()) for sample in together}) == len(together)
    for request, sample in zip(requests[::3], together[::3], strict=True):
        assert torch.equal(policy.generate([request])[0].tokens, sample.tokens)


def test_a_reply_keeps_the_token_that_completes_a_stop_string(policy: Model) -> None:
    first = policy.chat.text(policy.generate(requests_of(policy, temperature=0.0))[0].tokens)
    word = first[2]
    reply = policy.generate(requests_of(policy, temperature=0.0, stop=(word,)))[0]
    text = policy.chat.text(reply.tokens)
    assert reply.stopped == "stop" and text.endswith(word) and word not in text[:-1]


def test_a_worker_killed_while_it_samples_loses_and_doubles_nothing(
    policy: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [replace(request, max_new=5 + 15 * i) for i, request in enumerate(requests_of(policy))]
    undisturbed, engine = policy.generate(requests), engine_of(policy)
    asked, ask = [], SubprocessEngine._ask

    def watched(self, what, message, take=lambda _: None):  # type: ignore[no-untyped-def]
        def note():  # type: ignore[no-untyped-def]
            made = message()
            asked.append([request["id"] for request in made.get("requests", [])])
            return made

        def kill(line):  # type: ignore[no-untyped-def]
            take(line)
            if "sample" in line and engine.restarts == 0:
                os.kill(engine.process.popen.pid, signal.SIGKILL)  # type: ignore[union-attr]

        return ask(self, what, note, kill)

    monkeypatch.setattr(SubprocessEngine, "_ask", watched)
    again = policy.generate(requests)
    assert engine.restarts == 1
    assert 0 < len(asked[1]) < len(asked[0]) == len(requests)  # only what had not been answered was asked again
    assert all(torch.equal(a.tokens, b.tokens) for a, b in zip(again, undisturbed, strict=True))


@pytest.mark.parametrize("lora", [None, Lora(4)], ids=["full", "lora"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_stale_weights_stop_the_run(model: Path, tmp_path: Path, lora: Lora | None, tied: bool) -> None:
    base = (
        model if tied else make_model(tmp_path, num_attention_heads=1, num_key_value_heads=1, tie_word_embeddings=False)
    )
    method = build_method("grpo", base)
    models = build(method.models, base, VLLM, lora=lora, device="cpu")
    try:
        stale_weights_are_caught(method, models, VLLM)
    finally:
        models.end()


def test_a_run_learns_with_vllm(tmp_path: Path, model: Path) -> None:
    out = tmp_path / "run"
    result = train("grpo", task="add", steps=6, prompts=8, n=4, eval_tasks=32, engine="vllm", out=str(out))
    assert result.before is not None and result.after is not None
    rows = log_rows(out, "metrics")
    assert len(rows) == 6 and all(row["mismatch/probe"] < 2e-5 and row["mismatch/logp"] < 1e-5 for row in rows)
    assert result.after.as_sampled.mean > result.before.as_sampled.mean + 0.2


def test_a_run_ahead_and_in_chunks_learns_and_resumes(tmp_path: Path, model: Path) -> None:
    """Sampling ahead, half-written replies and newer weights at each chunk; every order of replies is proved."""
    straight, halted = tmp_path / "straight", tmp_path / "halted"
    told = {
        "task": "add",
        "steps": 6,
        "prompts": 8,
        "n": 4,
        "eval_tasks": 32,
        "eval_every": 0,
        "save_every": 2,
        "keep": 9,
    }
    result = train("grpo", engine="vllm", lag=1, chunk=10, out=str(straight), **told)
    assert result.before is not None and result.after is not None
    assert result.after.as_sampled.mean > result.before.as_sampled.mean + 0.1
    rows = log_rows(straight, "metrics")
    assert len(rows) == 6 and all(row["mismatch/probe"] < 2e-5 for row in rows)
    assert rows[-1]["unfinished"] == 0 < rows[2]["unfinished"]
    resume(halted_after(2, straight, halted))
    assert not differences(straight, halted)


def test_samplers_on_ray_may_be_vllm(model: Path, tmp_path: Path) -> None:
    """Two samplers, each with a vLLM of its own, two graders, a trainer: every publish is proved, every sample learned
    once.
    """
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'burnish[ray]'")
    from burnish.distributed.ray.audit import audit

    train(
        "grpo",
        model=str(model),
        task="sort",
        steps=4,
        prompts=4,
        n=4,
        max_new_tokens=10,
        eval_tasks=4,
        lr=1e-3,
        lag=1,
        on="ray",
        samplers=2,
        graders=2,
        spares=0,
        unit=1,
        engine="vllm",
        recover_within=300.0,
        out=str(tmp_path / "run"),
    )
    found = audit(tmp_path / "run")
    assert not found.wrong and found.learned == found.samples == 4 * 4 * 4
    assert all(row.get("mismatch/probe", 0.0) < 1e-4 for row in log_rows(tmp_path / "run", "metrics"))
