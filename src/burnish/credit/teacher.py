"""Advantages from a teacher's log-probs of what the student wrote: g_t = log p_teacher(y_t) - log p_student(y_t)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace


def discounted_sum(gain: Tensor, gamma: float) -> Tensor:
    """A_t = sum over k >= 0 of gamma^k g_{t+k}. Shape [T]. gamma = 0 is g itself: each token answers
    for itself alone.
    """
    sums, running = torch.zeros_like(gain), 0.0
    for t in range(len(gain) - 1, -1, -1):
        running = float(gain[t]) + gamma * running
        sums[t] = running
    return sums


def mean_of_later(gain: Tensor) -> Tensor:
    """A_t = the mean of g over the tokens after t; 0 at the last (MiniLLM's length-normalised return, arXiv
    2306.08543).

    Shape [T].
    """
    after = gain.flip(0).cumsum(0).flip(0) - gain
    left = torch.arange(len(gain) - 1, -1, -1, dtype=gain.dtype)
    return torch.where(left > 0, after / left.clamp(min=1), torch.zeros_like(gain))


@supplies("stream:adv")
def from_teacher(of_gains: Callable[[Tensor], Tensor], *, student: str = "old", author: str = "policy") -> Part:
    """adv = of_gains(g) over the author's tokens of each trace, from stream "teacher" and the student's
    own log-probs.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        mask = trace.by(author)
        gain = trace.streams["teacher"][mask] - trace.streams[student][mask]
        trace.streams["adv"] = torch.full((len(trace),), float("nan"))
        trace.streams["adv"][mask] = of_gains(gain)
        step.notes.add("teacher_kl", float(-gain.sum()), int(mask.sum()))

    return per_trace(
        write,
        name="from_teacher",
        reads=frozenset({"stream:teacher", f"stream:{student}", f"tokens:{author}"}),
        writes=frozenset({"stream:adv"}),
    )
