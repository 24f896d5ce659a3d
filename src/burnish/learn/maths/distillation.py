"""Divergences between whole distributions of a teacher and a student."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from burnish.learn.maths.shapes import OverVocabulary, PerToken
from burnish.util.tensors import shared_columns


def kl(log_p: OverVocabulary, log_q: OverVocabulary) -> PerToken:
    """KL(P || Q) over the last axis, of log-probabilities: [N, V] -> [N]. Terms with P = 0 count 0."""
    p = log_p.exp()
    return torch.where(p > 0, p * (log_p - log_q), torch.zeros_like(p)).sum(-1)


def generalised_jsd(student_logits: OverVocabulary, teacher_logits: OverVocabulary, beta: float) -> PerToken:
    """The generalised Jensen-Shannon divergence of GKD (Agarwal et al., arXiv 2306.13649), per token.

        P teacher, Q student, M = beta P + (1 - beta) Q
        D = beta KL(P || M) + (1 - beta) KL(Q || M)

    Shapes: [N, V] -> [N]. beta = 0.5 is Jensen-Shannon. At the ends the divergence itself vanishes, so they stand for
    their limits: beta = 0 is the forward KL(P || Q), beta = 1 the reverse KL(Q || P). Columns that only one of them has
    (embeddings without a token) are cut off before the softmax.
    """
    student_logits, teacher_logits = shared_columns([student_logits, teacher_logits])
    assert student_logits.shape == teacher_logits.shape
    if not 0 <= beta <= 1:
        raise ValueError(f"beta is {beta}; GKD's beta lies between 0 (forward KL) and 1 (reverse KL)")
    log_q, log_p = F.log_softmax(student_logits, -1), F.log_softmax(teacher_logits, -1)
    if beta == 0:
        return kl(log_p, log_q)
    if beta == 1:
        return kl(log_q, log_p)
    log_m = torch.logaddexp(log_p + math.log(beta), log_q + math.log(1 - beta))
    return beta * kl(log_p, log_m) + (1 - beta) * kl(log_q, log_m)
