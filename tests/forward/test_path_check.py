"""The check of a model's paths when it is loaded: what it finds, what it says, and what then happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL
from decoders import save_decoder
from torch import Tensor, nn

from burnish.commands.loaded import load_policy
from burnish.core.roles import frozen, trained
from burnish.core.step import Settings
from burnish.engine.local import Request
from burnish.forward import outputs as forward
from burnish.forward import runner
from burnish.forward.attention import by_transformers
from burnish.forward.module import decoder_states
from burnish.forward.packing import Packed
from burnish.forward.paths import Paths, noted, paths_of
from burnish.forward.runner import runner_of
from burnish.models import path_check
from burnish.models.build import build
from burnish.models.load import load_model
from burnish.models.model import Model
from burnish.models.process_sampler import Sampler
from burnish.models.ranks import Ranks
from burnish.models.snapshot import _twin

CPU = torch.device("cpu")
ROWS = [torch.arange(5, 5 + n) for n in (9, 4, 6)]
MASKS = [torch.arange(len(row)) > 1 for row in ROWS]


def member_of(directory: Path, settings: Settings = SMALL, **how: Any) -> Model:
    return build({"policy": trained(**how)}, directory, settings, device="cpu")["policy"]


@pytest.fixture
def gpt2(tmp_path: Path, small_model: Path) -> Path:
    return save_decoder("gpt2", tmp_path, small_model)


def test_models_with_fast_paths_of_their_own_are_not_checked(
    gpt2: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_check, "_Check", None)
    for native in (True, False):
        model = load_model(small_model, 0, CPU, native)
        assert path_check.check(model, runner_of(model), 256) == "" and noted(model) is None
    with pytest.raises(TypeError, match="NoneType"):  # any other is
        member_of(gpt2)


def test_a_model_on_which_every_path_is_right_keeps_them_all(gpt2: Path) -> None:
    policy = member_of(gpt2)
    assert noted(policy.module) == Paths() and policy.packed and policy.warnings == []


def test_packed_rows_that_differ_are_not_used(gpt2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with layers that did not pass the layout on: here every token of a pack sees all of it."""

    def wrong(self: Packed, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)

    monkeypatch.setattr(Packed, "attend", wrong)
    policy = member_of(gpt2)
    assert paths_of(policy.module) == Paths(packed=False, engine=False)
    assert not policy.packed and not forward.packable(policy.module)
    (said,) = policy.warnings
    assert said.startswith(
        "model type 'gpt2' is trained on padded rows and sampled with transformers' cache, which is slower: "
        "compared with transformers' own log-probs, packed rows came out up to "
    )
    assert "the engine came out up to" in said and "\n" not in said
    with torch.no_grad():
        found = policy.outputs(ROWS, MASKS, {"logp"})["logp"]
        wanted = forward.outputs(runner_of(policy.module), ROWS, MASKS, {"logp"}, packed=False)["logp"]
    assert torch.equal(found, wanted)
    sample = policy.generate([Request(ROWS[0], 0, 5)])[0]
    whole = torch.cat([ROWS[0], sample.tokens])
    with torch.no_grad():
        logp = policy.outputs([whole], [torch.arange(len(whole)) >= len(ROWS[0])], {"logp"})["logp"]
    assert torch.allclose(sample.logp, logp, atol=1e-5)


def test_padded_rows_that_differ_are_read_one_at_a_time(gpt2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a head that does more than burnish knows: here its hidden states are twice what they should be."""
    for used in (forward, runner):
        monkeypatch.setattr(used, "decoder_states", lambda model, **inputs: 2 * decoder_states(model, **inputs))
    policy = member_of(gpt2)
    assert paths_of(policy.module) == Paths(False, False, False)
    assert "trained on one row at a time" in policy.warnings[0] and "padded rows came out up to" in policy.warnings[0]
    found = policy.outputs(ROWS, MASKS, {"logp", "entropy", "greedy", "logits"}, 0.7)
    at = [torch.arange(1, len(row) - 1) for row in ROWS]
    logits = torch.cat([policy.module(row[None]).logits[0, some] for row, some in zip(ROWS, at, strict=True)]) / 0.7
    chosen = torch.cat([row[some + 1] for row, some in zip(ROWS, at, strict=True)])
    spread = torch.distributions.Categorical(logits=logits)
    assert torch.allclose(found["logits"], logits, atol=1e-5)
    assert torch.allclose(found["logp"], spread.log_prob(chosen), atol=1e-5)
    assert torch.allclose(found["entropy"], spread.entropy(), atol=1e-5)
    assert torch.equal(found["greedy"], logits.argmax(-1))
    found["logp"].sum().backward()
    assert all(p.grad is not None for p in policy.module.parameters())


def test_numbers_that_are_nan_are_not_right(gpt2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attend = Packed.attend
    monkeypatch.setattr(Packed, "attend", lambda *given: attend(*given) * float("nan"))
    assert paths_of(member_of(gpt2).module) == Paths(packed=False, engine=False)


def test_a_critic_is_checked_too(tmp_path: Path, small_model: Path) -> None:
    """Its fresh head gives small numbers; they are right on the paths that are left."""
    for name, packed in (("nemotron", True), ("gemma2", False)):
        critic = member_of(save_decoder(name, tmp_path / name, small_model), outputs=1)
        assert critic.packed == packed and bool(critic.warnings) != packed
        assert "sampled" not in "".join(critic.warnings)
        model: Any = critic.module
        with torch.no_grad():
            with by_transformers(model):
                states = torch.cat([model.model(row[None]).last_hidden_state[0, 1:-1] for row in ROWS])
            found = critic.outputs(ROWS, MASKS, {"value"})["value"]
        assert torch.allclose(found, (states @ model.score.weight.T)[:, 0], atol=1e-6)


def test_gradient_checkpointing_repeats_packed_layers_as_they_were(tmp_path: Path, small_model: Path) -> None:
    """Layers that pass no layout on find it on the mask, also when the backward runs them again."""
    directory, found = save_decoder("stablelm", tmp_path, small_model), []
    for again in ("off", "recompute"):
        policy = member_of(directory, Settings(checkpoint_activations=again))
        assert policy.packed
        policy.outputs(ROWS, MASKS, {"logp"})["logp"].sum().backward()
        found.append(torch.cat([p.grad.flatten() for p in policy.module.parameters() if p.grad is not None]))
    assert torch.allclose(*found, atol=1e-5)


def test_the_copy_that_samples_ahead_takes_the_same_paths(tmp_path: Path, small_model: Path) -> None:
    policy = member_of(save_decoder("gemma2", tmp_path, small_model))
    twin = _twin(policy, None, Ranks())
    assert twin.module is not policy.module and paths_of(twin.module) == paths_of(policy.module) != Paths()
    assert len(policy.warnings) == 1


def test_an_engine_in_another_process_checks_what_it_loads(tmp_path: Path, small_model: Path) -> None:
    """The sampler of a worker, in this process: ALiBi is sampled and scored as the trainer scores it."""
    directory = save_decoder("bloom", tmp_path, small_model)
    settings = {"threads": torch.get_num_threads(), "kv_gib": None, "context": 128}
    sampler, replies = Sampler(str(directory), settings, lambda: None), []
    asked = {"id": 0, "prompt": ROWS[0].tolist(), "key": 1, "max_new": 5, "temperature": 1.0}
    sampler.sample(
        [{**asked, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "as_drawn": False, "stop": []}],
        replies.append,
    )
    row = [*asked["prompt"], *replies[0]["tokens"]]  # type: ignore[misc]
    policy = member_of(directory)
    assert sampler.score([row])[0] == pytest.approx(policy._log_probs([torch.tensor(row)])[0], abs=1e-5)
    assert sampler.score([row])[0][len(ROWS[0]) - 1 :] == pytest.approx(replies[0]["logp"], abs=1e-5)


def test_a_model_that_is_only_asked_says_so_on_stderr(
    tmp_path: Path, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load_policy(str(save_decoder("bloom", tmp_path, small_model)), SMALL, "cpu")
    assert capsys.readouterr().err.startswith("warning: model type 'bloom' is trained on padded rows and sampled with ")


def test_two_members_of_one_kind_are_each_checked(tmp_path: Path, small_model: Path) -> None:
    directory = save_decoder("gemma2", tmp_path, small_model)
    models = build({"policy": trained(), "ref": frozen()}, directory, SMALL, device="cpu")
    with torch.no_grad():
        ours, theirs = (models[name].outputs(ROWS, MASKS, {"logp"})["logp"] for name in ("policy", "ref"))
    assert torch.equal(ours, theirs)
