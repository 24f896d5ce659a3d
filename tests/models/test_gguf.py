"""GGUF files as models: dequantised once, with their own tokenizer; and weights that are stored quantised, refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_model
from gguf import GGUFWriter, TokenType
from safetensors.torch import load_file

from burnish.models.known_models import resolve
from burnish.models.load import load_chat, load_model

PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
WHOLE = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}


def stored(name: str, weight: torch.Tensor, heads: dict[str, int]) -> tuple[str, np.ndarray]:
    """A tensor as llama.cpp has it: under another name, and the halves of each head's rotation interleaved."""
    if name in WHOLE:
        return WHOLE[name], weight.numpy()
    _, _, layer, part = name.removesuffix(".weight").split(".", 3)
    n = heads.get(part)
    if n is not None:
        weight = weight.reshape(n, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
    return f"blk.{layer}.{PARTS[part]}.weight", weight.contiguous().numpy()


def as_gguf(model: Path, file: Path) -> Path:
    """The model of a directory as an unquantised GGUF."""
    config, tokenizer = (json.loads((model / name).read_text()) for name in ("config.json", "tokenizer.json"))
    writer = GGUFWriter(file, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])
    writer.add_vocab_size(config["vocab_size"])
    tokens = [*sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get), "ĠĠ"]  # a merge must be one
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if token.startswith("<|") else TokenType.NORMAL for token in tokens])
    writer.add_token_merges(["Ġ Ġ"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_chat_template((model / "chat_template.jinja").read_text())
    heads = {"self_attn.q_proj": config["num_attention_heads"], "self_attn.k_proj": config["num_key_value_heads"]}
    for name, weight in load_file(model / "model.safetensors").items():
        writer.add_tensor(*stored(name, weight, heads))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def test_a_gguf_file_is_the_model_that_it_was_made_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same logits, the same chat; made once."""
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    model = make_model(tmp_path / "model", vocab_size=261)
    file = as_gguf(model, tmp_path / "small.gguf")
    found = resolve(str(file))
    before = (found / "config.json").stat().st_mtime_ns
    assert resolve(str(file)) == found and (found / "config.json").stat().st_mtime_ns == before
    ids = torch.arange(4, 20)[None]
    cpu = torch.device("cpu")
    logits = [load_model(path, 0, cpu, native=False)(input_ids=ids).logits for path in (model, found)]
    torch.testing.assert_close(logits[0], logits[1], rtol=1e-5, atol=1e-5)
    ours, theirs = load_chat(found), load_chat(model)
    assert ours.plain("ab c").tolist() == theirs.plain("ab c").tolist() and ours.stops == theirs.stops


def test_a_file_that_is_no_gguf_and_a_folder_of_them_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF, but no more of it")
    with pytest.raises(ValueError, match=r"the GGUF file .*a.gguf cannot be read"):
        resolve(str(tmp_path / "a.gguf"))
    with pytest.raises(ValueError, match=r"has only GGUF weights; pass the file: --model .*a.gguf"):
        resolve(str(tmp_path))


@pytest.mark.parametrize(
    ("stored_as", "name"),
    [
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"quant_method": "gptq", "bits": 4}, "gptq"),
        ({"load_in_4bit": True}, "bitsandbytes"),
    ],
)
def test_weights_that_are_stored_quantised_are_refused(stored_as: dict[str, object], name: str, tmp_path: Path) -> None:
    model = make_model(tmp_path / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "quantization_config": stored_as}))
    with pytest.raises(ValueError, match=f"quantised by {name}, and training needs the model that they were made from"):
        resolve(str(model))
