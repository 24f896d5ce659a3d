"""Learning from a teacher: from its whole distributions, or from its log-probs of what the student wrote."""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated

from burnish import credit, draw, learn, rollout
from burnish.credit.teacher import discounted_sum, from_teacher, mean_of_later
from burnish.engine.mixture import arithmetic
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, papers, register
from burnish.rollout.sample import either


@register(
    papers.GKD,
    family="hybrid",
    summary="Match a teacher's next-token distributions on the student's own samples.",
    when="A stronger model with the same tokenizer is at hand, to correct the student on what it writes itself.",
    trial={"lam": 1.0, "teacher": "tiny"},
)
def gkd(
    task: draw.Source,
    *,
    teacher: opt.Teacher,
    lam: Annotated[float, Option("Chance of a batch of the student's samples.", at_least=0, at_most=1)] = 0.5,
    beta: Annotated[float, Option("Between the forward KL (0) and the reverse KL (1).", at_least=0, at_most=1)] = 0.5,
) -> Method:
    """Generalised knowledge distillation.

    With probability lam a batch holds the student's own samples, else demonstrations; no gradient through sampling.
    L = mean over reply tokens of beta KL(P || M) + (1 - beta) KL(Q || M)
    M = beta P + (1 - beta) Q,  P teacher, Q student
    beta = 0 stands for the forward KL(P || Q), beta = 1 for the reverse KL(Q || P)

    The paper leaves lam and beta to the task and finds on-policy data (lam near 1) best.
    """
    return method(
        draw=draw.demos(task),
        rollout=either(lam, rollout.sample(1), rollout.given("demo")),
        learn=learn.Learn(learn.distil(beta, on=("policy", "demo")), logp_temperature="run"),
        models=roles(teacher=frozen(teacher)),
    )


@register(
    papers.OPD,
    family="hybrid",
    summary="The student writes; the teacher's log-prob of each token is its reward.",
    when="A teacher is at hand and its opinion of every token is worth more than a verdict at the end.",
    trial={"n": 2, "teacher": "tiny"},
)
def opd(
    task: draw.Source,
    *,
    teacher: opt.Teacher,
    n: opt.Replies = 4,
    coef: Annotated[float, Option("Scales the advantage.", at_least=0)] = 1.0,
    gamma: Annotated[float, Option("How far a token answers for those after it.", at_least=0, at_most=1)] = 0.0,
) -> Method:
    """On-policy distillation (Thinking Machines, 2025): policy gradient towards the teacher, token by token.

    A_t = sum over k >= 0 of gamma^k coef (log p_teacher - log p_student)(y_{t+k});  gamma = 0: the token's own alone
    L = mean over sampled tokens of -rho A,  rho = pi/pi_old: importance weights without a clip

    Without a discount the expected gradient is that of the reverse KL(student || teacher) at each visited state. No
    verifier is needed. Departure: the released code sums over tokens where this averages, a matter of the learning
    rate. gamma = 0 is the released code's. A teacher with another tokenizer reads the same text: where its tokens and
    the student's end at the same place, the difference is that of the span between two such places.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        credit=chain(
            credit.behaviour(),
            credit.teacher_logp(),
            from_teacher(partial(discounted_sum, gamma=gamma)),
        ),
        learn=learn.Learn(learn.pg_clip(math.inf, coef=coef)),
        models=roles(teacher=frozen(teacher)),
    )


@register(
    papers.MINILLM,
    family="hybrid",
    summary="Reverse-KL distillation by policy gradient, with the one-step part in closed form.",
    when="You distil a small student on free text, where covering all the teacher's modes would spoil it.",
    trial={"n": 2, "updates": 1, "teacher": "tiny"},
)
def minillm(
    task: draw.Source,
    *,
    teacher: opt.Teacher,
    n: opt.Replies = 1,
    alpha: Annotated[float, Option("The teacher's share in sampling.", at_least=0, at_most=1)] = 0.2,
    eps: opt.ClipRange = 0.2,
    lm: Annotated[float, Option("Weight of the loss on demonstrations.", at_least=0)] = 1.0,
    kd_share: Annotated[float, Option("Share of distillation in that loss.", at_least=0, at_most=1)] = 0.5,
    updates: opt.Updates = 4,
) -> Method:
    """MiniLLM: the gradient of KL(student || teacher) in two parts, q the student, p the teacher.

    y ~ (1 - alpha) q + alpha p, token by token, and rho = q over this mixture (w r in the paper's words)
    long part:   L = mean over sampled tokens of -min(rho R, clip(rho, 1-eps, 1+eps) R),
                 R_t = mean over the later tokens of log p/q (0 at the last): a length-normalised return
    single step: L = mean over sampled tokens of KL(q || p) over the whole vocabulary
    L = long + single + lm [ (1 - kd_share) (-log q) + kd_share KL(p || q) ], the bracket a mean over demonstrations

    Departures: the pre-training corpus is the task's demonstrations. The return is the paper's; the released code
    counts the token itself, discounts by 0.95, scales, clips and whitens it. The single-step part is not weighed by
    rho, as in the released code.
    """
    return method(
        draw=draw.demos(task),
        rollout=rollout.join(
            rollout.sample(n, blend=arithmetic("teacher", alpha)),
            rollout.given("demo"),
        ),
        credit=chain(
            credit.behaviour(),
            credit.streams("policy", logp="student"),
            credit.streams("teacher", logp="teacher"),
            from_teacher(mean_of_later, student="student"),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps),
            learn.distil(1.0, name="single"),
            learn.imitate(coef=lm * (1 - kd_share), on="demo"),
            learn.distil(0.0, coef=lm * kd_share, on="demo", name="kd"),
            updates=updates,
            logp_temperature="run",
        ),
        models=roles(teacher=frozen(teacher)),
    )
