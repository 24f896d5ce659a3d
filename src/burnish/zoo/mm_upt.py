"""Unsupervised Post-Training for Multi-Modal LLM Reasoning via GRPO (arXiv 2505.22453)."""

from __future__ import annotations

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

MM_UPT = Paper("mm-upt", "2505.22453", "Unsupervised Post-Training for Multi-Modal LLM Reasoning via GRPO")


@register(
    MM_UPT,
    family="policy",
    summary="GRPO without labels: a reply earns 1 if it agrees with most of its group.",
    when="Pictures or questions without answers, on which the model is right more often than not.",
    example="burnish train mm_upt --model tiny-omni --task shapes:1",
    trial={"n": 3},
)
def mm_upt(task: draw.Source, *, n: opt.GroupSize = 8, eps: opt.ClipRange = 0.2, beta: opt.KLCoef = 0.04) -> Method:
    """r_i = 1[the answer of reply i is the group's most frequent one]; then GRPO.

    Answers a, a, b earn 1, 1, 0 (C). Ties go to the answer that was sampled first. Where all replies to each prompt
    agree nothing is learned, whatever the labels are; labels are never read.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.majority(),
        credit=chain(credit.group_relative(), credit.behaviour(), credit.ref()),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.seq_mean), learn.kl_k3(coef=beta, norm=learn.seq_mean)),
        models=roles(ref=frozen("policy")),
    )
