"""What is trained on ends with the token that ends replies: else a trained model would never stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast, make_model

from burnish.core.loop import run_phase
from burnish.core.parts import everything
from burnish.core.step import Step
from burnish.core.types import Clock, Group
from burnish.learn.batch import masks
from burnish.learn.learn import Learn, plan_of
from burnish.methods.table import find
from burnish.tasks.data.dataset import Dataset

TALK = [
    {"role": "user", "content": "one?"},
    {"role": "assistant", "content": "two."},
    {"role": "user", "content": "three?"},
    {"role": "assistant", "content": "four."},
]
ROWS: dict[str, tuple[str, dict[str, Any], int]] = {
    "a demonstration": ("sft", {"prompt": "one?", "completion": "two."}, 1),
    "a conversation": ("sft", {"messages": TALK}, 2),
    "a conversation after a prompt": ("sft", {"prompt": TALK[:1], "completion": TALK[1:2]}, 1),
    "a pair": ("dpo", {"prompt": "one?", "chosen": "two.", "rejected": "no."}, 2),
    "a pair of conversations": ("dpo", {"chosen": TALK[:2], "rejected": [TALK[0], TALK[3]]}, 2),
    "a labelled reply": ("kto", {"prompt": "one?", "completion": "two.", "label": True}, 1),
}


HEADER = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"  # no generation prompt
LINES = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"  # nothing ends a reply
OPENED = HEADER + "{% if add_generation_prompt %}<|assistant|><think>{% endif %}"


@pytest.fixture(scope="module", params=["template", "no template", "own header", "opened thoughts", "lines"])
def model(request: pytest.FixtureRequest, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "template":
        return small_model
    path = make_model(tmp_path_factory.mktemp("plain"))
    (path / "chat_template.jinja").unlink()
    if request.param != "no template":
        templates = {"own header": HEADER, "opened thoughts": OPENED, "lines": LINES}
        (path / "chat_template.jinja").write_text(templates[request.param])
    return path


@pytest.mark.parametrize("kind", ROWS)
def test_each_trained_reply_has_its_end_and_learns_it(kind: str, model: Path) -> None:
    name, row, replies = ROWS[kind]
    method = find(name).build(Dataset([row] * 4, heldout=0.0))
    phase = method.phases[0]
    step = Step(Clock(0, 1), build_cast(method, model), SMALL)
    groups: list[Group] = run_phase(replace(phase, learn=Learn(), credit=everything), step, {}, [])
    chat = step.models["policy"].chat
    assert groups and int(chat.closing[-1]) in chat.stops
    for group in groups:
        for term in plan_of(phase).terms:
            found = 0
            for trace, mask in zip(group.traces, masks(term, group), strict=True):
                ends = _runs(mask)
                found += len(ends)
                for end in ends:
                    assert torch.equal(trace.tokens[end - len(chat.closing) : end], chat.closing)
                    assert bool(mask[end - len(chat.closing) : end].all())
            assert found == replies, "each reply is one run of trained tokens"


def _runs(mask: torch.Tensor) -> list[int]:
    """Where each run of trained tokens ends."""
    padded = torch.cat([mask.int(), torch.zeros(1, dtype=torch.int32)])
    return (torch.nonzero((padded[:-1] == 1) & (padded[1:] == 0))[:, 0] + 1).tolist()
