"""Utterance-level temporal differences: targets and advantages for turns, not tokens (ArCHer, arXiv 2402.19446).

The critic gives four numbers: Q1, Q2 after reading an utterance u in state s, and V1, V2 before it.
  Q_i(s, u)  is regressed to  r + gamma V'_i(s')      (0 in place of V' where the episode ended)
  V_i(s)     is regressed to  Q'_i(s, u~),  u~ ~ pi   (primes: the slowly following target critic)
  A(s, u~) = min_i Q_i(s, u~) - min_i V_i(s)
"""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.claims import Positions, mask_at

Q, V = slice(0, 2), slice(2, 4)  # the critic's outputs


@supplies("stream:q_target", "stream:v_target")
def td_targets(*, gamma: float, author: str = "policy") -> Part:
    """From the target critic's stream "target_score" on "past" and "fresh" traces: the targets for Q and V.

    q_target stands at the last token of u, v_target at the first token of u, both on the past trace.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            past, fresh = trace_tagged(group, "past"), trace_tagged(group, "fresh")
            turn = past.note["turn"]
            start, end = turn_span(past, turn)
            ahead = 0.0 if past.note["ended"] else gamma * past.streams["target_score"][-1, V]
            past.streams["q_target"] = _at(past, end - 1, past.turn_scores["reward"][turn] + ahead)
            past.streams["v_target"] = _at(past, start, fresh.streams["target_score"][-1, Q])
            fresh.streams["q_target"] = fresh.streams["v_target"] = torch.full((len(fresh), 2), float("nan"))
        return groups

    return Part(
        name="td_targets",
        call=call,
        reads=frozenset({"stream:target_score", "turn_score:reward", "tag:past", "tag:fresh"}),
        writes=frozenset({"stream:q_target", "stream:v_target"}),
    )


@supplies("stream:adv")
def utterance_advantage(author: str = "policy") -> Part:
    """A(s, u) = min_i Q_i(s, u) - min_i V_i(s) for the last turn of fresh traces, on all its tokens."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for trace in group.traces:
                trace.streams["adv"] = torch.full((len(trace),), float("nan"))
                if "fresh" not in trace.tags:
                    continue
                start, end = turn_span(trace, len(trace.turns) - 1)
                q, v = trace.streams["q"][end - 1, Q].min(), trace.streams["v"][start, V].min()
                trace.streams["adv"][start:end] = q - v
                step.notes.add("advantage", float(q - v))
        return groups

    return Part(
        name="utterance_advantage",
        call=call,
        reads=frozenset({"stream:q", "stream:v", "tag:fresh"}),
        writes=frozenset({"stream:adv"}),
    )


@supplies("claim:*")
def at_utterance(term: str, where: str) -> Part:
    """The term claims one token of each past trace: the "first" or the "last" of the drawn utterance."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for trace in group.traces:
                mask = torch.zeros(len(trace), dtype=torch.bool)
                if "past" in trace.tags:
                    start, end = turn_span(trace, trace.note["turn"])
                    mask[start if where == "first" else end - 1] = True
                trace.streams[f"claim:{term}"] = mask
        return groups

    return Part(
        name=f"at_utterance({term}, {where})",
        call=call,
        reads=frozenset({"tag:past"}),
        writes=frozenset({f"claim:{term}"}),
    )


@supplies("claim:*")
def last_turn(term: str, tag: str, positions: Positions = "all") -> Part:
    """The term claims the last turn of traces with the tag: all its tokens, or the "first" or the "last" of them."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for trace in group.traces:
                spans = [turn_span(trace, len(trace.turns) - 1)] if tag in trace.tags else []
                trace.streams[f"claim:{term}"] = mask_at(len(trace), spans, positions)
        return groups

    return Part(
        name=f"last_turn({term}, {tag})",
        call=call,
        reads=frozenset({f"tag:{tag}"}),
        writes=frozenset({f"claim:{term}"}),
    )


def trace_tagged(group: Group, tag: str) -> Trace:
    return next(trace for trace in group.traces if tag in trace.tags)


def turn_span(trace: Trace, turn: int) -> tuple[int, int]:
    start = sum(len(t) for t in trace.turns[:turn])
    return start, start + len(trace.turns[turn])


def _at(trace: Trace, position: int, values: Tensor | float) -> Tensor:
    """[T, 2]: nan but for one position."""
    stream = torch.full((len(trace), 2), float("nan"))
    stream[position] = values
    return stream
