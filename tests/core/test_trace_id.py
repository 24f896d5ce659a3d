"""Trace.id: which sample a trace is of, whatever copies of it are made on the way."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch

from burnish.core.parts import Part
from burnish.core.sample_ledger import LEARNED, UnitId, births, settle
from burnish.core.step import Settings, Step, TokenEntropies
from burnish.core.types import Clock, Group, Task, Trace, Turn
from burnish.rollout.starts import Reply, Start

TASK = Task("question", "?", {}, "q")
PROMPT = Turn(torch.tensor([1, 2]), "task")


def trace(*tokens: int) -> Trace:
    return Trace((PROMPT, Turn(torch.tensor(tokens), "policy", parent=PROMPT)))


def step() -> Step:
    models: Any = None
    return Step(Clock(0, 1), models, Settings())


def test_copies_share_it_and_other_traces_do_not() -> None:
    one = trace(3)
    assert one.id is replace(one, scores={"reward": 1.0}).id is copy.copy(one).id is copy.deepcopy(one).id
    assert one.id is replace(one, turns=(*one.turns, PROMPT)).id  # a rewritten copy is still of that sample
    assert one.id is not trace(3).id
    assert one.id is not Trace(one.turns).id


def test_all_traces_of_a_reply_share_it() -> None:
    reply = Reply(Start(TASK, (PROMPT,), 0, 7), trace(3).turns[-1])
    assert reply.trace().id is reply.trace().id
    assert reply.trace().id is not Reply(reply.start, reply.said).trace().id


def test_a_copied_trace_is_not_taken_for_dropped() -> None:
    kept, dropped = trace(3), trace(3)

    def rewrite(groups: list[Group], step: Step) -> list[Group]:
        new = replace(kept, turns=(PROMPT, Turn(torch.tensor([9]), "policy", parent=PROMPT)))
        return [Group(TASK, [new])]

    now = step()
    now.through(Part(name="rewrite", call=rewrite), [Group(TASK, [kept, dropped])])
    assert [one.trace.id for one in now.dropped] == [dropped.id]


def test_the_ledger_knows_a_sample_by_it() -> None:
    group = Group(TASK, [trace(3), trace(4)])
    born = births(UnitId(0, 0, 0), [group])
    now = step()
    now.drop([Group(TASK, [copy.copy(group.traces[1])])], "a filter")
    learned = Group(TASK, [replace(group.traces[0], turns=(PROMPT, group.traces[0].turns[1]))])
    assert [one.fate for one in settle(born, 0, [learned], now)] == [LEARNED, "a filter"]


def test_entropies_are_found_by_it() -> None:
    one, looks = trace(3, 4), TokenEntropies()
    claimed = [torch.tensor([False, False, True, True])]
    looks.note([one], claimed, {"entropy": torch.tensor([0.5, 0.25])})
    looks.note([replace(one, index=5)], claimed, {"entropy": torch.tensor([9.0, 9.0])})  # a second pass over it
    assert looks.entropies()[copy.copy(one).id][2:].tolist() == [0.5, 0.25]
