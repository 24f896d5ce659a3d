"""Where a thought may be left early: after any of its tokens, and never after the token that ends the reply."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from conftest import SMALL

from burnish.core.roles import roles
from burnish.core.step import Step
from burnish.core.types import Clock, Task
from burnish.models.build import build
from burnish.zoo.s_grpo import early_exits


def test_an_exit_never_holds_the_end_of_the_reply(small_model: Path) -> None:
    models = build(roles(), small_model, SMALL, device="cpu")
    stops = set(models["policy"].chat.stops)
    tasks = [Task("question", f"question {i}", {}, f"k{i}") for i in range(24)]
    groups = early_exits(12, " so: ").call(tasks, Step(Clock(0, 1), models, replace(SMALL, max_new_tokens=24)))
    told_whole = 0
    for group in groups:
        *exits, whole = group.traces
        reply = whole.turns[1].tokens.tolist()
        lengths = [len(trace.turns[1]) for trace in exits if trace.turns[1].author == "policy"]
        thought = len(reply) - (reply[-1] in stops)
        told_whole += thought == len(reply) == max(lengths, default=0)
        assert max(lengths, default=0) <= thought
        assert not [trace for trace in exits for token in trace.turns[1].tokens.tolist() if token in stops]
    assert told_whole > 0, "a reply that was cut off is a thought to its last token"
