"""Rows in the formats that commands write, for the checks of stages that will read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from burnish.recipes.maker import Rows

COUNT = 64  # enough for a held-out part


def preferences(options: Mapping[str, Any]) -> Rows:
    """Of `burnish pairs`: pairs, lists or labels."""
    kind = options.get("format", "pairs")
    said = {"role": "assistant", "content": "answer: 1"}
    other = {"role": "assistant", "content": "answer: 2"}
    rows: dict[str, dict[str, Any]] = {
        "pairs": {"chosen": [said], "rejected": [other], "score_chosen": 1.0, "score_rejected": 0.0, "margin": 1.0},
        "lists": {"responses": ["answer: 1", "answer: 2"], "scores": [1.0, 0.0], "margin": 1.0},
        "labels": {"completion": [said], "label": True},
    }
    return [_asked(i) | rows[kind] | ({"label": i % 2 == 0} if kind == "labels" else {}) for i in range(COUNT)]


def labelled_steps(options: Mapping[str, Any]) -> Rows:
    """Of `burnish steps`: the steps of a reply, and a label for each."""
    soft = options.get("rule", "soft") not in ("hard", "first_error")
    right, wrong = (0.75, 0.25) if soft else (True, False)
    return [_asked(i) | {"completions": ["one\n", "answer: 1"], "labels": [right, wrong]} for i in range(COUNT)]


def _asked(i: int) -> dict[str, Any]:
    return {"prompt": [{"role": "user", "content": f"{i}+1=?"}]}
