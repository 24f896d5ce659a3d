"""burnish export and push: directories, GGUF files and cards of real runs, and an upload that really arrives."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from conftest import make_model
from runs import go
from safetensors.torch import load_file
from writable_hub import WritableHub

from burnish.cli import main
from burnish.export.card import Card
from burnish.export.directory import write_as_trained, write_merged
from burnish.export.found import find_model
from burnish.export.gguf_model import interleaved, rope_factors, write_gguf
from burnish.export.gguf_tokenizer import vocabulary_of
from burnish.export.licence import front_matter, licence_of
from burnish.export.write import Export, write_export
from burnish.models.known_models import TINY


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with LoRA adapters on tiny that was measured before and after."""
    out = tmp_path_factory.mktemp("runs") / "lora"
    go("grpo", "tiny", out, task="add", lora=2, eval_tasks=4, eval_every=1, n=8, max_new_tokens=32)
    return out


def test_merged_weights_are_base_plus_adapters(run: Path, tmp_path: Path) -> None:
    """W + (alpha / rank) B A with alpha = 2 rank, so twice B A, rounded to bf16, the format of tiny."""
    write_merged(find_model(str(run)), tmp_path)
    merged, base = load_file(tmp_path / "model.safetensors"), load_file(TINY / "model.safetensors")
    adapters = load_file(run / "model" / "adapter_model.safetensors")
    name = "model.layers.1.self_attn.v_proj"
    a, b = (adapters[f"base_model.model.{name}.lora_{x}.weight"] for x in "AB")
    expected = base[f"{name}.weight"].float() + 2.0 * b @ a
    assert torch.equal(merged[f"{name}.weight"], expected.bfloat16()) and bool((b @ a).abs().max() > 0)


def test_each_form_has_its_files_and_a_card_of_the_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for form, has in (("hf", "adapter_model.safetensors"), ("merged", "model.safetensors"), ("gguf", "lora.gguf")):
        out = tmp_path / form
        assert main(["export", str(run), "--to", form, "--out", str(out), "--data-licence", "cc0-1.0"]) == 0
        assert (out / has).is_file() and (out / "run.yaml").is_file() and has in capsys.readouterr().out
        assert not (out / "optimiser.safetensors").exists()
        card = (out / "README.md").read_text()
        told = front_matter(out / "README.md")
        assert told["license"] == "apache-2.0" and told["tags"] == ["burnish", "grpo"]
        assert "- data (`add`): cc0-1.0" in card and "| `lora` | 2 |" in card and "DeepSeekMath" in card
        for shown in card.split("](curves/")[1:]:
            assert "<svg" in (out / "curves" / shown.partition(")")[0]).read_text()
        assert (out / has).stat().st_mode & 0o044 == (out / "README.md").stat().st_mode & 0o044
    assert yaml.safe_load((tmp_path / "hf" / "run.yaml").read_text())["lora"] == 2


def test_the_card_has_means_and_intervals_of_the_evaluation() -> None:
    from burnish.export.card import _estimates
    from burnish.store.records import Evaluation

    value = {"mean": 0.5, "low": 0.25, "high": 0.75}
    found = list(_estimates(Evaluation(name="held-out accuracy", value=value)))  # type: ignore[typeddict-item]
    assert found == [("accuracy, greedy", "50.0%", "25.0% to 75.0%")]


def test_a_model_without_a_run_is_exported_and_its_card_claims_nothing(tmp_path: Path) -> None:
    write_export(find_model("tiny"), tmp_path / "tiny", Export("hf", Card("tiny")))
    assert load_file(tmp_path / "tiny" / "model.safetensors").keys() == load_file(TINY / "model.safetensors").keys()
    assert "No run of burnish wrote it" in (tmp_path / "tiny" / "README.md").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tiny", "--to", "merged"], "no adapters to merge"),
        (["tiny", "--to", "adapter"], "holds whole weights, not LoRA adapters"),
        (["tiny", "--quantize", "q8_0"], "add --to gguf"),
        (["tiny", "--checkpoint", "best"], "is for runs"),
        (["tiny", "--to", "gguf", "--dtype", "bf16"], "leave it out"),
        (["no-such-run"], "there is no run"),
    ],
)
def test_what_cannot_be_exported_is_one_sentence(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", *words]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not list(tmp_path.rglob("README.md"))


def test_checkpoints_are_exported_by_step(run: Path) -> None:
    assert find_model(str(run), "1").path == run / "checkpoints" / "step-000001" / "policy"
    assert find_model(str(run / "model")).run == run
    with pytest.raises(ValueError, match="no checkpoint '7'; give last, best, or one of the steps: .*1, 2"):
        find_model(str(run), "7")


# ------------------------------------------------------------------------------------------------------------- GGUF


def test_rows_of_a_rotated_projection_alternate() -> None:
    """One head of width 4: transformers' pairs are (0, 2) and (1, 3), llama.cpp's are neighbours."""
    rows = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    assert interleaved(rows, 1).flatten().tolist() == [0, 2, 1, 3]
    assert interleaved(torch.arange(8.0), 2).tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_llama3_scaling_divides_long_waves_alone() -> None:
    """theta 100, width 4: frequencies 1 and 0.1, waves 2 pi and 20 pi. Trained on 64 with low 1, high 4: waves below 16
    stay, and 20 pi = 62.83 is below 64, so it lies between: s = (64 / 62.83 - 1) / 3, divisor 1 / ((1 - s) / 8 + s).
    """
    scaling = {"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0}
    scaling |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 64}
    factors = rope_factors({"head_dim": 4, "rope_parameters": scaling})
    s = (64 / (20 * math.pi) - 1) / 3
    assert factors is not None
    assert factors.tolist() == pytest.approx([1.0, 1 / ((1 - s) / 8 + s)], rel=1e-6)
    longer = rope_factors({"head_dim": 4, "rope_parameters": {**scaling, "original_max_position_embeddings": 32}})
    assert longer is not None and longer[1] == 8.0


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3"])
def test_transformers_reads_the_file_and_computes_the_same(family: str, tmp_path: Path) -> None:
    """The GGUF reader of transformers undoes the order of the rows itself: the logits are equal bit for bit."""
    from transformers import AutoModelForCausalLM, GgufConfig

    folder = make_model(tmp_path / "model", kind=family)
    write_gguf(folder, tmp_path / "m.gguf", "stored")
    ids = torch.tensor([[5, 91, 76, 20, 21]])
    read = {"gguf_file": "m.gguf", "quantization_config": GgufConfig(gguf_file="m.gguf", dequantize=True)}
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype="float32", **read)
    ours = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    with torch.no_grad():
        assert torch.equal(theirs(ids).logits, ours(ids).logits)


def test_eight_bits_are_within_half_a_step(tmp_path: Path) -> None:
    """Q8_0: 32 weights share a scale d = max |w| / 127, so a weight is off by at most d / 2, and d's rounding to fp16
    (2^-11 of up to 127 d).
    """
    import gguf

    write_gguf(TINY, tmp_path / "q.gguf", "q8_0")
    read = gguf.GGUFReader(tmp_path / "q.gguf")
    found = next(tensor for tensor in read.tensors if tensor.name == "blk.0.ffn_down.weight")
    assert found.tensor_type == gguf.GGMLQuantizationType.Q8_0
    weights = torch.from_numpy(gguf.dequantize(found.data, found.tensor_type)).reshape(-1, 32)
    exact = load_file(TINY / "model.safetensors")["model.layers.0.mlp.down_proj.weight"].float().reshape(-1, 32)
    step = exact.abs().amax(1, keepdim=True) / 127
    error = (weights - exact).abs()
    assert bool((error <= step * (0.5 + 127 * 2**-11)).all()) and bool(error.max() > 0)


def test_the_vocabulary_keeps_kinds_ends_and_template() -> None:
    told = vocabulary_of(TINY, 440)
    assert told.pre == "smollm" and told.tokens[told.ends] == "<|end|>" and not told.adds_begin
    assert told.kinds[0] == 3 and told.kinds[10] == 1 and told.kinds[-2:] == [5, 5] and told.tokens[439] == "[PAD439]"
    assert told.template is not None and "generation" not in told.template.replace("add_generation_prompt", "")


def test_a_tokenizer_that_llama_cpp_would_split_otherwise_is_refused(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    whole = json.loads((tmp_path / "model" / "tokenizer.json").read_text())
    whole["pre_tokenizer"] = {"type": "Whitespace"}
    (tmp_path / "model" / "tokenizer.json").write_text(json.dumps(whole))
    with pytest.raises(ValueError, match="no name for the pre-tokenizer"):
        vocabulary_of(tmp_path / "model", 438)


# In a process of its own, as users run it: beside torch and others it has ended with a segmentation fault.
LLAMA_CPP = """
import json, sys, llama_cpp
llm = llama_cpp.Llama(sys.argv[1], n_ctx=512, verbose=False, n_threads=1)
replies = [
    llm.create_chat_completion([{"role": "user", "content": prompt}], temperature=0.0, max_tokens=48)["choices"][0]
    for prompt in json.loads(sys.argv[2])
]
assert {reply["finish_reason"] for reply in replies} == {"stop"}
print(json.dumps([reply["message"]["content"] for reply in replies]))
"""


@pytest.mark.extras
@pytest.mark.parametrize("quantize", ["stored", "f32", "q8_0", "q4_k_m"])
def test_llama_cpp_loads_the_file_and_writes_the_same_text(quantize: str, tmp_path: Path) -> None:
    """Greedy replies of tiny to ten sums: equal to burnish's own; in four bits it is only asked that it answers."""
    import burnish

    pytest.importorskip("llama_cpp")
    write_gguf(TINY, tmp_path / "tiny.gguf", quantize)
    prompts = [f"{a}+{b}=?" for a, b in zip(range(21, 91, 7), range(13, 93, 8), strict=True)]
    words = [sys.executable, "-c", LLAMA_CPP, str(tmp_path / "tiny.gguf"), json.dumps(prompts)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    texts = json.loads(done.stdout.splitlines()[-1])
    ours = burnish.generate("tiny", prompts, temperature=0.0, max_new_tokens=48)
    if quantize == "q4_k_m":
        assert sum(a == b for a, b in zip(texts, ours, strict=True)) >= 5
    else:
        assert texts == ours


# ------------------------------------------------------------------------------------------------------------ the hub


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WritableHub]:
    """A hub of this process: its library reads the environment when it is imported, so its constants are set."""
    from huggingface_hub import constants

    with WritableHub(tmp_path / "root", token="secret") as opened:
        for name, value in (("ENDPOINT", opened.endpoint), ("HF_HUB_DISABLE_XET", True), ("HF_HUB_OFFLINE", False)):
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setenv("HF_TOKEN", "secret")
        yield opened


def test_a_pushed_model_arrives_whole(
    hub: WritableHub, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["push", str(run), "acme/adder", "--to", "merged"]
    assert main([*words, "--private", "--message", "first"]) == 0, capsys.readouterr().err
    assert hub.created["acme/adder"]["visibility"] == "private" and hub.messages == ["first"]
    arrived = tmp_path / "root" / "models" / "acme" / "adder"
    write_merged(find_model(str(run)), tmp_path)
    assert (arrived / "model.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()
    assert "Licences" in (arrived / "README.md").read_text() and (arrived / "curves" / "reward.svg").is_file()
    monkeypatch.setenv("HF_TOKEN", "wrong")
    assert main(words) == 2
    assert "does not let you write to acme/adder" in " ".join(capsys.readouterr().err.split())


def test_an_export_is_pushed_as_it_is_to_a_branch(
    hub: WritableHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tiny"
    write_export(find_model("tiny"), out, Export("hf", Card("acme/tiny")))
    (out / "README.md").write_text((out / "README.md").read_text() + "\nWritten by hand.\n")
    assert main(["push", str(out), "acme/tiny", "--revision", "v2"]) == 0, capsys.readouterr().err
    assert "Written by hand." in (tmp_path / "root" / "models" / "acme" / "tiny@v2" / "README.md").read_text()


def test_a_dry_run_lists_what_it_would_send_and_sends_nothing(
    hub: WritableHub, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", str(run), "acme/adder", "--to", "adapter", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "adapter_model.safetensors" in said and "to acme/adder; sent nothing" in said and not hub.requests
    assert main(["push", str(run), "adder", "--dry-run"]) == 2
    assert "write owner/name" in capsys.readouterr().err


def test_licences_are_read_never_guessed(tmp_path: Path) -> None:
    assert licence_of(tmp_path) == "" and licence_of(TINY) == "apache-2.0"
    (tmp_path / "LICENSE").write_text("\n  Apache License\n  Version 2.0")
    assert licence_of(tmp_path) == "apache-2.0"
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n# x")
    assert licence_of(tmp_path) == "mit"
    (tmp_path / "README.md").write_text("---\nlicense: [\n---\n# x")
    assert licence_of(tmp_path) == "apache-2.0"


def test_hf_form_of_a_checkpoint_leaves_the_optimiser_behind(run: Path, tmp_path: Path) -> None:
    write_as_trained(find_model(str(run), "1"), tmp_path)
    assert not list(tmp_path.glob("optimi*")) and (tmp_path / "adapter_model.safetensors").is_file()
