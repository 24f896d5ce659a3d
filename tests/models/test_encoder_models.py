"""Encoders with a head for the next token are refused where replies are to be written; decoders of the type are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from burnish.models.sanity import require_causal


@pytest.mark.parametrize(
    ("kind", "key"), [("bert-generation", "is_decoder"), ("xlm", "causal"), ("roberta", "is_decoder")]
)
def test_an_encoder_is_refused_in_one_sentence(kind: str, key: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    with pytest.raises(ValueError, match=rf"is an encoder \({kind}\): .*has {key}: true"):
        require_causal(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, key: True}))
    require_causal(tmp_path)
