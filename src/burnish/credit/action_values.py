"""Advantages of single actions from a critic of success, and which replayed actions are trained on (WebRL)."""

from __future__ import annotations

import torch

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.turn_gae import fill_own
from burnish.select.task_replay import PAST
from burnish.select.turn_rows import episodes_of, own_span


def mixed_advantage(reward: float, ahead: float, value: float, final: float, lam: float) -> float:
    """A = lam (r + V(s') - V(s)) + (1 - lam)(r_T - V(s)): the one-step error mixed with the outcome."""
    return lam * (reward + ahead - value) + (1 - lam) * (final - value)


@supplies("stream:gain", "stream:success")
def success_advantages(lam: float, *, above: float = 0.5) -> Part:
    """Stream "gain": the advantage of each row's own turn; stream "success": 1 where its episode scored above, else 0.

    V(s_k) = min over the critic's heads of sigmoid(stream "value") at the first token of turn k, 0 after the last turn.
    The reward of an episode counts as 1 or 0, by its success, and is paid at its last turn.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for rows in episodes_of(group):
                final = float(rows[0].scores["reward"] > above)
                values = [float(row.streams["value"][own_span(row)[0]].sigmoid().min()) for row in rows]
                gains = []
                for k, value in enumerate(values):
                    last = k == len(rows) - 1
                    ahead = 0.0 if last else values[k + 1]
                    gains.append(mixed_advantage(final if last else 0.0, ahead, value, final, lam))
                    step.notes.add("advantage", gains[-1])
                fill_own(rows, "gain", gains)
                fill_own(rows, "success", [final] * len(rows))
        return groups

    return Part(
        name=f"success_advantages({lam:g})",
        call=call,
        reads=frozenset({"tag:turn", "score:reward", "stream:value"}),
        writes=frozenset({"stream:gain", "stream:success"}),
    )


@supplies("claim:*")
def fresh_or_familiar(term: str, low: float, high: float) -> Part:
    """The term claims the own turn of fresh rows, and of replayed rows where low < p <= high.

    p = exp(mean over the turn's tokens of stream "old"): the geometric mean of its token probabilities, so that the
    perplexity 1 / p is in [1 / high, 1 / low). Actions that the policy is sure of already, and those that it would
    hardly take, are left out.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for row in (row for group in groups for row in group.traces):
            own = slice(*own_span(row))
            kept = True
            if PAST in row.tags:
                kept = low < float(row.streams["old"][own].double().mean().exp()) <= high
                step.notes.add("replayed_kept", kept)
            row.streams[f"claim:{term}"] = torch.zeros(len(row), dtype=torch.bool)
            row.streams[f"claim:{term}"][own] = kept
        return groups

    return Part(
        name=f"fresh_or_familiar({term})",
        call=call,
        reads=frozenset({"tag:turn", f"tag:{PAST}", "stream:old"}),
        writes=frozenset({f"claim:{term}"}),
    )
