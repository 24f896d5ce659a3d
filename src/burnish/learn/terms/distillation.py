"""Terms that pull a student's whole distribution towards a teacher's."""

from __future__ import annotations

import torch

from burnish.core.schedules import Schedule
from burnish.learn import maths
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Term


def distil(
    beta: float,
    *,
    teacher: str = "teacher",
    norm: Norm = token_mean,
    coef: Schedule = 1.0,
    on: Authors = "policy",
    name: str = "distil",
) -> Term:
    """GKD's generalised Jensen-Shannon divergence between the teacher's and the student's next-token distributions."""

    def loss(live: Live) -> torch.Tensor:
        return maths.generalised_jsd(live.logits, live.outputs[f"{teacher}.logits"], beta)

    return Term(name=name, on=on, unit="token", loss=loss, live=("logits", f"{teacher}.logits"), norm=norm, coef=coef)
