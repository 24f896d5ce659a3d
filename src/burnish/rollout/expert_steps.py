"""The states of an expert's trajectory, and in each the expert's action and one of the policy's own."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.rollout.demonstrated import cut_pieces, demonstration
from burnish.rollout.sample import continue_from

STEP, EXPERT, OWN = "step", "expert", "own"


@supplies("tag:step", "tag:expert", "tag:own")
def expert_steps(*, temperature: float = 1.0, who: str = "policy", expert: str = "demo") -> Rollout:
    """Two traces for each reply of a demonstrated conversation: the expert's reply and a sampled one, in its state.

    The state is what the expert saw: its own earlier replies (author `expert`) and what was said between them. Both
    traces have the tag "step", one "expert" and the other "own"; note["step"] is the number of the reply. The metric
    "matched" is the share of states in which both are the same.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model, settings = step.models[who], step.settings
        limit = min(model.context, settings.max_length or model.context)
        found: list[tuple[Task, list[Trace]]] = []
        for task in tasks:
            shown: list[Trace] = []
            for pieces in demonstration(task, model.chat, settings.train_on):
                shown += _expert_traces([(p.tokens, p.weight) for p in cut_pieces(pieces, limit)], expert, len(shown))
            found.append((task, shown))
        starts = [(task, trace.turns[:-1], k) for task, shown in found for k, trace in enumerate(shown)]
        own = iter(continue_from(starts, who, step, tag=OWN, temperature=temperature))
        return [Group(task, [t for old in shown for t in _pair(old, next(own), step)]) for task, shown in found]

    return Rollout(
        name="expert_steps",
        call=call,
        reads=frozenset({"task:prompt", "given:demo", f"model:{who}.generate"}),
        writes=names("tokens", ("task", "env", expert, who)) | names("mu", who) | names("tag", (STEP, EXPERT, OWN)),
    )


def _expert_traces(pieces: list[tuple[Tensor, float]], expert: str, first: int) -> list[Trace]:
    """One trace for each reply of the expert, which is its last turn."""
    turns: list[Turn] = []
    traces: list[Trace] = []
    for tokens, weight in pieces:
        author = expert if weight else "env" if turns else "task"
        turns.append(Turn(tokens, author, parent=turns[-1] if turns else None))
        if weight:
            note = {"step": first + len(traces)}
            traces.append(Trace(tuple(turns), tags=frozenset({STEP, EXPERT}), note=note))
    return traces


def _pair(shown: Trace, own: Trace, step: Step) -> tuple[Trace, Trace]:
    number = shown.note["step"]
    step.notes.add("matched", torch.equal(shown.turns[-1].tokens, own.turns[-1].tokens))
    shown.index, own.index = 2 * number, 2 * number + 1
    own.tags, own.note = own.tags | {STEP, OWN}, {**own.note, "step": number}
    return shown, own
