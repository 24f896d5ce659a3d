"""NaN and Inf in weights, configs, options and logits: one-sentence errors, and no kernel reads beyond its arrays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import make_model
from safetensors.torch import load_file, save_file

from burnish.config.options import configure
from burnish.core.rejected import NotFinite
from burnish.engine.local import LocalEngine
from burnish.engine.request import Request
from burnish.engine.sampling import choose, logp_of
from burnish.forward.logprob import _at_once, logp_entropy
from burnish.forward.runner import runner_of
from burnish.kernels.cpu import build
from burnish.methods.table import find
from burnish.models.known_models import TINY
from burnish.models.load import load_chat, load_model

CPU = torch.device("cpu")
NAN, INF = float("nan"), float("inf")


@pytest.fixture(params=[True, False], ids=["kernels", "torch"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With our kernels, and as without."""
    if not request.param:
        monkeypatch.setattr(build, "_found", lambda: "not here")
    elif build.kernels() is None:
        pytest.skip(f"no kernels here: {build.why_not()}")


def spoilt(path: Path, model: Path, tensor: str, value: float) -> Path:
    """A copy of a model directory with one weight of a tensor changed."""
    shutil.copytree(model, path)
    weights = load_file(path / "model.safetensors")
    weights[tensor].view(-1)[3] = value
    save_file(weights, path / "model.safetensors", {"format": "pt"})
    return path


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("native", [True, False])
def test_weights_that_are_not_finite_are_refused(value: float, native: bool, small_model: Path, tmp_path: Path) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    path = spoilt(tmp_path / "model", small_model, name, value)
    with pytest.raises(ValueError, match=f"the weight {name} in .* is not finite"):
        load_model(path, 0, CPU, native=native)


def test_large_weights_whose_sum_overflows_are_finite(small_model: Path, tmp_path: Path) -> None:
    path = spoilt(tmp_path / "model", small_model, "model.norm.weight", 3e38)
    weights = load_file(path / "model.safetensors")
    weights["model.norm.weight"].fill_(3e38)
    save_file(weights, path / "model.safetensors", {"format": "pt"})
    load_model(path, 0, CPU)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"rms_norm_eps": NAN}, "rms_norm_eps is nan in .*config.json; it must be a finite number"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps is -1.0 in .*; it must be from 0 to 1"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": NAN}}, "rope_parameters.rope_theta is nan"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": -5.0}}, "rope_parameters.rope_theta is -5.0"),
        ({"rope_theta": INF}, "rope_theta is inf"),
        (
            {"num_hidden_layers": 10**9},
            "num_hidden_layers is 1000000000 in .*; it must be a whole number from 1 to 10000",
        ),
        ({"hidden_size": -32}, "hidden_size is -32"),
        ({"hidden_size": 10**400}, r"hidden_size is 1000\d*\.\.\. in"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"num_attention_heads": 2.5}, "num_attention_heads is 2.5"),
        ({"num_key_value_heads": 3}, "num_attention_heads is 4 in .*; it must be a multiple of num_key_value_heads, 3"),
        ({"initializer_range": INF}, "initializer_range is inf"),
        ({"hidden_size": 999_936}, "cannot be loaded .*has shape"),
    ],
)
def test_a_config_with_numbers_that_make_no_sense(
    change: dict[str, Any], match: str, small_model: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(small_model, tmp_path / "model"))
    stored = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**stored, **change}))
    with pytest.raises(ValueError, match=match):
        load_model(path, 0, CPU)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", NAN, INF, "1e999"])
@pytest.mark.parametrize("key", ["lr", "weight_decay", "clip", "temperature", "beta", "kv_gib"])
def test_options_are_finite(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"option '{key}' is -?(nan|inf); it must be a finite number"):
        configure(find("grpo"), "grpo", {key: value})


def test_a_clip_range_may_be_without_limit() -> None:
    assert configure(find("grpo"), "grpo", {"eps": "inf"}).arguments["eps"] == INF
    assert configure(find("luffy"), "luffy", {"eps": INF}).arguments["eps"] == INF
    with pytest.raises(ValueError, match="option 'eps' is nan"):
        configure(find("grpo"), "grpo", {"eps": "nan"})
    with pytest.raises(ValueError, match="option 'lr' takes a number or none, not 1000"):
        configure(find("grpo"), "grpo", {"lr": 10**400})


def chosen(logits: torch.Tensor, greedy: bool) -> tuple[torch.Tensor, torch.Tensor]:
    n = len(logits)
    keys = torch.arange(n)
    return choose(logits, torch.ones(n), keys, keys, torch.full((n,), greedy))


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("words", [5, 438, 2048])
@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_no_token_is_chosen_from_logits_that_are_not_finite(words: int, greedy: bool, value: float) -> None:
    logits = torch.zeros(6, words)
    assert chosen(logits, greedy)[0].max() < words
    logits[4] = value
    with pytest.raises(NotFinite, match="logits are NaN or infinite"):
        chosen(logits, greedy)
    logits[4] = 0
    logits[4, 2] = value  # -inf: a token that cannot be sampled
    if value == -INF:
        assert chosen(logits, greedy)[0][4] != 2
    else:
        with pytest.raises(NotFinite):
            chosen(logits, greedy)


@pytest.mark.skipif(build.kernels() is None, reason="no kernels here")
@pytest.mark.parametrize("token", [-1, 301, -(2**62), 2**62])
def test_tokens_beyond_the_vocabulary_are_refused(token: int) -> None:
    logits, tokens = torch.zeros(4, 301), torch.tensor([1, 2, token, 3])
    with pytest.raises(ValueError, match="1 token ids are not in the vocabulary of 301"):
        logp_of(logits, torch.ones(4), tokens)
    states, weight = torch.zeros(4, 64, requires_grad=True), torch.zeros(301, 64, requires_grad=True)
    with pytest.raises(ValueError, match="1 token ids are not in the vocabulary of 301"):
        logp_entropy(states, weight, tokens, 1.0, True)


def engine_of(path: Path, **changed: float) -> LocalEngine:
    """An engine on a model some of whose weights are changed after it was loaded, as a bad update would."""
    model = load_model(path, 0, CPU)
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in changed.items():
            parameters[name.replace("__", ".")].view(-1)[0] = value
    return LocalEngine(runner_of(model), load_chat(path), 256)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("path", ["tiny", "narrow"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("more", [{}, {"top_k": 3}])
@pytest.mark.parametrize("value", [NAN, 3e38])
def test_sampling_with_broken_weights_is_an_error(
    path: str, temperature: float, more: dict[str, Any], value: float, tmp_path: Path
) -> None:
    place = TINY if path == "tiny" else make_model(tmp_path / "model")
    engine = engine_of(place, model__norm__weight=value, model__layers__0__input_layernorm__weight=value)
    prompts = [torch.arange(5, 5 + n % 4 + 2) for n in range(6)]
    asked = [Request(p, i, 8, temperature=temperature, **more) for i, p in enumerate(prompts)]
    with pytest.raises(NotFinite, match="logits are NaN or infinite"):
        engine.generate(asked)


@pytest.mark.parametrize(
    ("gpu", "logits", "learns", "chunk"),
    [
        (True, 1 << 28, True, 1 << 27),  # small training passes: the smallest chunks
        (True, 3 << 28, True, 3 << 26),  # a quarter of the pass
        (True, 1 << 32, True, 1 << 28),  # but no more than this
        (True, 1 << 32, False, 1 << 27),
        (False, 1 << 32, True, 1 << 25),
    ],
)
def test_chunks_of_logits_grow_with_large_training_passes(gpu: bool, logits: int, learns: bool, chunk: int) -> None:
    states: Any = SimpleNamespace(is_cuda=gpu, device=torch.device("cuda" if gpu else "cpu"))
    assert _at_once(states, logits, learns) == chunk
