"""Whole runs over chat templates: the stop that is learned, what a saved model carries, what a resumed run keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from families import FAMILIES, tokenizer_of
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

import burnish
from burnish.cli import main
from burnish.commands.loaded import load_policy
from burnish.core.step import Settings
from burnish.core.types import Task
from burnish.engine.local import Request
from burnish.run.train import Result

OPTIONS = {"eval_tasks": 0, "prompts": 4, "max_new_tokens": 12, "save_every": 0}


def chatml_model(path: Path, template: bool = True) -> Path:
    """A small random Llama whose turns end with <|im_end|> and whose eos is <|endoftext|>."""
    tokenizer = tokenizer_of(FAMILIES["chatml, eos apart"])
    if not template:
        tokenizer.chat_template = None
    tokenizer.save_pretrained(path)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    tokens = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    config = LlamaConfig(max_position_embeddings=128, tie_word_embeddings=True, **tokens, **shape)
    LlamaForCausalLM(config).save_pretrained(path)
    return path


def rows(path: Path) -> Path:
    path.write_text(
        "".join(json.dumps({"prompt": f"say {i}", "completion": "yes <|endoftext|>"}) + "\n" for i in range(8))
    )
    return path


def test_sft_teaches_the_end_of_turn_and_sampling_stops_there(tmp_path: Path) -> None:
    model = chatml_model(tmp_path / "model")
    task = str(rows(tmp_path / "rows.jsonl"))
    result = burnish.train("sft", model=str(model), task=task, steps=60, lr=1e-2, out=str(tmp_path / "run"), **OPTIONS)
    assert result.model is not None
    model = load_policy(str(result.model), Settings(), "cpu")["policy"]
    end, eos = (model.chat.tokenizer.encode(token)[0] for token in ("<|im_end|>", "<|endoftext|>"))
    assert set(model.chat.stops) == {end, eos}
    prompt = model.chat.prompt(Task("question", "say 3", {}, "key"))
    (said,) = model.generate([Request(prompt, 0, 24, 0.0)])
    assert said.stopped == "stop" and int(said.tokens[-1]) == end
    assert model.chat.text(said.tokens) == "yes <|endoftext|>", "the spelling of eos is text, and did not stop it"
    assert eos not in said.tokens.tolist()


def test_a_resumed_run_keeps_its_template_though_the_file_has_changed(tmp_path: Path) -> None:
    model, task = chatml_model(tmp_path / "model"), str(rows(tmp_path / "rows.jsonl"))
    file = tmp_path / "own.jinja"
    own = "{% for m in messages %}[{{ m.role }}] {{ m.content }}<|im_end|>{% endfor %}[assistant] "
    kept = {"model": str(model), "task": task, "system_prompt": "Be brief.", "template_option": "a=1", **OPTIONS}

    def go(steps: int, out: Path) -> Result:
        file.write_text(own)
        return burnish.train("sft", steps=steps, chat_template=str(file), out=str(out), **kept)

    straight = go(4, tmp_path / "straight")
    go(2, tmp_path / "halted")
    file.write_text("{{ 'something else' }}")
    resumed = burnish.resume(tmp_path / "halted", steps=4)
    assert straight.model is not None and resumed.model is not None
    for name in ("chat_template.jinja", "model.safetensors"):
        one, other = (place / name for place in (straight.model, resumed.model))
        assert one.read_bytes() == other.read_bytes(), name
    tokenizer = AutoTokenizer.from_pretrained(resumed.model)
    asked = tokenizer.apply_chat_template([{"role": "user", "content": "?"}], tokenize=False)
    assert asked == "[system] Be brief.<|im_end|>[user] ?<|im_end|>[assistant] "


def test_a_model_without_a_template_is_given_one_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, task = chatml_model(tmp_path / "model", template=False), str(rows(tmp_path / "rows.jsonl"))
    words = ["train", "sft", "--model", str(model), "--task", task, "--steps", "1", "--eval-tasks", "0"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    assert "the model has none" in " ".join(capsys.readouterr().out.split())
    assert (tmp_path / "run" / "model" / "chat_template.jinja").is_file()
    assert main([*words, "--out", str(tmp_path / "named"), "--chat-template", "chatml"]) == 0
    assert "the model has none" not in capsys.readouterr().out
    assert "<|im_start|>" in (tmp_path / "named" / "model" / "chat_template.jinja").read_text()


def test_a_bad_template_stops_a_command_with_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["eval", "tiny"],
        ["chat", "tiny"],
        ["train", "sft", "--task", "sort", "--out", str(tmp_path / "run")],
    ):
        assert main([*words, "--chat-template", "nowhere.jinja"]) != 0
        assert "--chat-template 'nowhere.jinja' cannot be read" in " ".join(capsys.readouterr().err.split())
        assert main([*words, "--system-prompt", "<|end|>"]) != 0
        assert "--system-prompt contains a control token" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()
