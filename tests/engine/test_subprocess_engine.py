"""An engine in another process: the same samples, weights that are proved, workers that die or hang, and what is
refused.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_method
from guards import guards
from runs import refused

from burnish import train
from burnish.core.roles import roles
from burnish.core.types import Task
from burnish.engine.local import Request
from burnish.engine.subprocess.engine import VLLM_SAMPLER, EngineSpec, SubprocessEngine, _written
from burnish.engine.subprocess.probe import NAME, WrongWeights, difference
from burnish.engine.subprocess.vllm_python import vllm_python
from burnish.models.build import PROCESS_SAMPLER, Models, build
from burnish.models.lora import Lora
from burnish.models.model import Model
from burnish.models.process_sampler import Sampler
from burnish.run.pipeline import loop_as_set

pytestmark = guards("engine/subprocess")

APART = replace(SMALL, engine="process")


@pytest.fixture(scope="module")
def apart(small_model: Path) -> Iterator[Model]:
    models = build(roles(), small_model, APART, device="cpu")
    yield models["policy"]
    models.end()


def requests_of(model: Model, **more: object) -> list[Request]:
    """A few prompts, each asked four times."""
    texts = ["ab", "a longer prompt here", "mid one"]
    prompts = [model.chat.prompt(Task("question", text, {}, text)) for text in texts]
    return [Request(prompt, 10 * i + k, 12, **more) for i, prompt in enumerate(prompts) for k in range(4)]  # type: ignore[arg-type]


def engine_of(model: Model) -> SubprocessEngine:
    assert isinstance(model.engine, SubprocessEngine)
    return model.engine


def same(one: list, other: list) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a.tokens, b.tokens) and torch.equal(a.logp, b.logp) and a.stopped == b.stopped
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("how", [{}, {"temperature": 0.7, "top_k": 20}, {"temperature": 0.0}, {"stop": ("a", "b")}])
def test_it_samples_what_the_local_engine_samples(apart: Model, small_model: Path, how: dict) -> None:
    local = build(roles(), small_model, SMALL, device="cpu")["policy"]
    assert same(apart.generate(requests_of(apart, **how)), local.generate(requests_of(local, **how)))


def test_a_worker_that_was_killed_is_replaced_and_nothing_is_lost(apart: Model) -> None:
    undisturbed, before = apart.generate(requests_of(apart)), engine_of(apart).restarts
    process = engine_of(apart).process
    assert process is not None
    os.kill(process.popen.pid, signal.SIGKILL)
    assert same(apart.generate(requests_of(apart)), undisturbed)
    assert engine_of(apart).restarts == before + 1
    assert "killed by SIGKILL" in apart.warnings[-1] or "had ended before sampling" in apart.warnings[-1]


def test_a_worker_that_was_replaced_by_one_with_other_weights_stops_the_run(
    small_model: Path, other_model: Path
) -> None:
    """The weights of the second worker are proved as those of the first were, before its samples are used."""
    policy = build(roles(), small_model, APART, device="cpu")["policy"]
    try:
        policy.generate(requests_of(policy))
        engine = engine_of(policy)
        assert engine.process is not None
        shutil.copyfile(other_model / "model.safetensors", engine._folder / "model.safetensors")
        os.kill(engine.process.popen.pid, signal.SIGKILL)
        with pytest.raises(WrongWeights, match="does not run the trained weights"):
            policy.generate(requests_of(policy))
    finally:
        engine_of(policy).end()


def test_a_worker_that_hangs_is_noticed_within_five_seconds(apart: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed, engine = apart.generate(requests_of(apart)), engine_of(apart)
    assert engine.process is not None
    noticed: list[float] = []
    launch = engine._launch
    monkeypatch.setattr(engine, "_launch", lambda: (noticed.append(time.monotonic()), launch()))
    start = time.monotonic()
    os.kill(engine.process.popen.pid, signal.SIGSTOP)
    assert same(apart.generate(requests_of(apart)), undisturbed)
    assert len(noticed) == 1 and noticed[0] - start < 6.0
    assert "no sign of life for 5 s during sampling" in apart.warnings[-1]


def test_what_the_worker_cannot_do_is_said_and_it_lives_on(apart: Model) -> None:
    engine = engine_of(apart)
    engine.start()
    with pytest.raises(ValueError, match=r"failed at scoring: \w*Error"):
        engine._ask("scoring", lambda: {"do": "score", "rows": [[1, 10**6]]})
    assert engine.prove().mean < 1e-6


def test_every_token_is_progress(small_model: Path) -> None:
    """A long reply must not look like a worker that is stuck."""
    passes: list[int] = []
    settings = {"threads": 1, "kv_gib": None, "context": 256}
    sampler = Sampler(str(small_model), settings, lambda: passes.append(1))
    request = {
        "id": 0,
        "key": 1,
        "prompt": [5, 6],
        "max_new": 40,
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "as_drawn": False,
    }
    found: list[dict] = []
    sampler.sample([{**request, "stop": []}], found.append)
    assert len(passes) >= len(found[0]["tokens"]) > 1


def test_a_worker_that_cannot_start_says_why(apart: Model, tmp_path: Path) -> None:
    broken = SubprocessEngine(
        EngineSpec("process", sys.executable, PROCESS_SAMPLER),
        apart.module,
        apart.chat,
        apart.context,
        lambda rows: [],
        apart._save,
    )
    broken.place, broken.close = tmp_path, lambda: None  # type: ignore[assignment]
    with pytest.raises(
        ValueError,
        match="did not start: its process ended during its start .exit status 1.; its last words: .*weights-0",
    ):
        broken._launch()


@pytest.mark.parametrize("lora", [None, pytest.param(Lora(4), marks=pytest.mark.slow)], ids=["full", "lora"])
def test_stale_weights_stop_the_run(small_model: Path, lora: Lora | None) -> None:
    """A step trains and publishes; then one publish is kept from sending, and the probe tells."""
    if lora is not None:
        pytest.importorskip("peft")
    method = build_method("grpo", small_model)
    models = build(method.models, small_model, APART, lora=lora, device="cpu")
    try:
        stale_weights_are_caught(method, models, APART)
    finally:
        models.end()


def stale_weights_are_caught(method, models: Models, settings) -> None:
    """Of any engine that holds a copy: two publishes arrive; the third is not sent, and stops the run
    with the numbers.
    """
    engine = engine_of(models["policy"])
    steps = loop_as_set(method, models, settings, steps=3)
    for _ in range(2):
        assert next(steps).metrics[NAME] < 2e-5
    place, engine.send = engine.place, lambda: None  # type: ignore[method-assign]
    with pytest.raises(
        WrongWeights, match=r"does not run the trained weights: .* differ by [\d.e-]+ on average"
    ) as caught:
        next(steps)
    assert "\n" not in str(caught.value) and "--on-mismatch warn" in str(caught.value)
    engine.how = replace(engine.how, on_mismatch="warn")
    assert engine.prove().mean > 1e-4 and "does not run" in models["policy"].warnings[-1]
    del engine.send
    found = engine.publish()
    assert found is not None and found.mean < 2e-5
    assert len(list(place.glob("weights-*"))) == 1


@pytest.mark.slow
def test_the_worker_and_its_weights_go_with_a_parent_that_is_killed(small_model: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from dataclasses import replace
from burnish.core.roles import roles
from burnish.models.build import build
from burnish.core.step import Settings
models = build(roles(), Path(sys.argv[1]), Settings(engine="process"), device="cpu")
engine = models["policy"].engine
engine.start()
print(engine.place, engine.process.popen.pid, flush=True)
time.sleep(60)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(small_model)], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert parent.stdout is not None
    place, worker = parent.stdout.readline().split()
    assert Path(place).is_dir() and Path(place).stat().st_mode & 0o77 == 0
    parent.kill()
    parent.wait(10)
    assert eventually(lambda: not Path(place).exists() and not alive(int(worker)))


def eventually(what: Callable[[], bool], seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        threading.Event().wait(0.05)
    return what()


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def test_the_difference_of_log_probs() -> None:
    found = difference([[-1.0, -2.0], [-3.0]], [[-1.0, -2.5], [-2.0]])
    assert (found.mean, found.most, found.tokens) == (0.5, 1.0, 3)
    assert difference([[-1.0]], [[float("nan")]]).mean == float("inf")
    assert difference([[-1.0]], [[-1.0, -2.0]]).mean == float("inf")


def test_what_an_engine_cannot_do_is_refused_at_build(small_model: Path, tmp_path: Path) -> None:
    out, shared = tmp_path / "run", {"model": str(small_model), "out": str(tmp_path / "run"), "steps": 1}
    with refused("'engine' is 'sglang'; it must be local, process or vllm", out):
        train("grpo", engine="sglang", **shared)
    with refused("'on_mismatch' is 'ignore'; it must be stop or warn", out):
        train("grpo", on_mismatch="ignore", **shared)
    with refused("--vllm-python is for --engine vllm", out):
        train("grpo", vllm_python="/usr/bin/python3", **shared)
    with refused("is not a Python with vLLM; install it: python -m venv", out):
        train("grpo", engine="vllm", vllm_python=str(tmp_path / "python"), **shared)
    with refused("samples from a mixture of models, which the engine 'process' cannot do", out):
        train("minillm", engine="process", teacher=str(small_model), **shared)


def test_a_reply_that_goes_on_has_noise_of_its_own() -> None:
    """burnish's noise is by position, so the key stays; vLLM's begins anew with each request, so its seed does not."""
    first = Request(torch.tensor([1, 2]), 7, 4)
    then = Request(torch.tensor([1, 2, 3]), 7, 4, said=1)
    assert _written(0, first)["key"] == _written(0, then)["key"] == 7 == _written(0, first)["seed"]
    assert _written(0, then)["seed"] not in (7, _written(0, replace(then, said=2))["seed"])
    assert 0 <= _written(0, then)["seed"] < 2**63


def test_what_an_engine_cannot_do_is_refused_when_asked(apart: Model) -> None:
    with pytest.raises(ValueError, match="can neither mix models nor stop early"):
        apart.generate(requests_of(apart), stop_rule=lambda found: True)
    with pytest.raises(ValueError, match="the model's context holds"):
        apart.generate([Request(torch.zeros(300, dtype=torch.long), 0, 4)])
    vllm = SubprocessEngine(
        EngineSpec("vllm", "python", VLLM_SAMPLER),
        apart.module,
        apart.chat,
        apart.context,
        lambda rows: [],
        apart._save,
    )
    with pytest.raises(ValueError, match="top_k, top_p or min_p cut it at temperature 0.7"):
        vllm.generate(requests_of(apart, temperature=0.7, top_p=0.9))


def test_no_python_with_vllm_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BURNISH_VLLM_PYTHON", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    with pytest.raises(ValueError, match="no Python with vLLM was found, neither .*/vllm/bin/python nor this one"):
        vllm_python(None)
