"""Learning from a teacher: from its whole distributions, or from its log-probs of what the student wrote."""

from __future__ import annotations

import math
from functools import partial

from burnish.cast.blend import arithmetic
from burnish.cast.roles import frozen, stage
from burnish.credit.group import group_relative
from burnish.credit.members import member
from burnish.credit.streams import behaviour, streams
from burnish.credit.teacher import discounted_sum, distilled_where, from_teacher, is_unsolved, is_wrong, mean_of_later
from burnish.draw.tasks import demos, prompts
from burnish.learn.learn import Learn
from burnish.learn.terms import distil, imitate, pg_clip
from burnish.learn.terms.hybrid import teacher_k2
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.parts import chain
from burnish.rollout.given import given
from burnish.rollout.sample import either, join, sample
from burnish.schedules import linear
from burnish.score.verify import verify
from burnish.tasks.source import Source


@register(
    family="hybrid",
    catalogue=("gkd",),
    title="On-Policy Distillation of Language Models: Learning from Self-Generated Mistakes",
    arxiv="2306.13649",
    summary="Match a teacher's next-token distributions on the student's own samples.",
    when="A stronger model with the same tokenizer is at hand, and the student should be corrected on what it writes itself.",
    example="burnish train gkd --teacher runs/DIR/model",
    trial={"lam": 1.0, "teacher": "tiny"},
)
def gkd(task: Source, *, teacher: str, lam: float = 0.5, beta: float = 0.5, temperature: float = 1.0) -> Method:
    """Generalised knowledge distillation.

    With probability lam a batch holds the student's own samples, else demonstrations; no gradient through sampling.
    L = mean over reply tokens of beta KL(P || M) + (1 - beta) KL(Q || M),  M = beta P + (1 - beta) Q,  P teacher, Q student
    beta = 0 stands for the forward KL(P || Q), beta = 1 for the reverse KL(Q || P)

    The paper leaves lam and beta to the task and finds on-policy data (lam near 1) best.
    teacher: a model's name or directory, with the student's tokenizer. lam: chance of a batch of the student's samples.
    beta: between the forward KL (0) and the reverse KL (1). temperature: divides the logits, in sampling and in the loss.
    """
    return method(
        draw=demos(task),
        rollout=either(lam, sample(1, temperature=temperature), given("demo")),
        credit=member("distil", "policy", "demo"),
        learn=Learn(distil(beta), temperature=temperature),
        cast=stage(teacher=frozen(teacher)),
    )


@register(
    family="hybrid",
    catalogue=("opd",),
    title="On-Policy Distillation",
    summary="The student writes; the teacher's log-prob of each token is its reward.",
    when="A teacher is at hand and its opinion of every token is worth more than a verdict at the end.",
    example="burnish train opd --teacher runs/DIR/model",
    trial={"n": 2, "teacher": "tiny"},
)
def opd(
    task: Source, *, teacher: str, n: int = 4, coef: float = 1.0, gamma: float = 0.0, temperature: float = 1.0
) -> Method:
    """On-policy distillation (Thinking Machines, 2025): policy gradient towards the teacher, token by token.

    A_t = sum over k >= 0 of gamma^k coef (log p_teacher - log p_student)(y_{t+k});  gamma = 0: the token's own alone
    L = mean over sampled tokens of -rho A,  rho = pi/pi_old: importance weights without a clip

    Without a discount the expected gradient is that of the reverse KL(student || teacher) at each visited state. No
    verifier is needed. Departure: the released code sums over tokens where this averages, a matter of the learning rate.
    teacher: a model's name or directory, with the student's tokenizer. n: replies sampled for each prompt.
    coef: scales the advantage. gamma: how far a token answers for those after it, 0 in the released code.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        credit=chain(
            behaviour(),
            streams("teacher", logp="teacher", temperature=temperature),
            from_teacher(partial(discounted_sum, gamma=gamma)),
            member("pg", "policy"),
        ),
        learn=Learn(pg_clip(math.inf, coef=coef), temperature=temperature),
        cast=stage(teacher=frozen(teacher)),
    )


_DISTILLED = {"all": lambda trace, group: True, "wrong": is_wrong, "unsolved": is_unsolved}


@register(
    family="hybrid",
    catalogue=("kdrl",),
    title="KDRL: Post-Training Reasoning LLMs via Unified Knowledge Distillation and Reinforcement Learning",
    arxiv="2506.02208",
    summary="GRPO with a pull to a teacher instead of a reference.",
    when="You have both a teacher and a verifier, and want to learn from the two at once.",
    example="burnish train kdrl --teacher runs/DIR/model",
    trial={"n": 4, "teacher": "tiny"},
)
def kdrl(
    task: Source, *, teacher: str, n: int = 8, beta: float = 5e-3, beta_end: float = 1e-3, beta_steps: int = 80, distilled: str = "all",
    eps: float = 0.2, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """KDRL: one loss of GRPO and reverse-KL distillation, both on the student's own samples.

    L = L_GRPO + beta mean over sampled tokens of k2,   k2 = (log pi - log p_teacher)^2 / 2
    L_GRPO: clipped surrogate, A_i = (r_i - mean) / (std + 1e-6), mean over sampled tokens, no KL to a reference
    beta falls on a line, max(beta - 5e-5 step, beta_end) with the defaults

    k2 has the gradient of the reverse KL on the student's samples (k3 has not). In the paper the masks ("wrong":
    response level, "unsolved": group level) and the falling beta are separate variants: with a mask, set beta_end to beta. Tokens that
    are not distilled stay in the average.
    teacher: a model's name or directory, with the student's tokenizer. n: replies sampled for each prompt.
    eps: the clip range. beta: weight of distillation at the start. beta_end: its weight after `beta_steps` steps.
    beta_steps: steps in which it falls.
    distilled: which replies are, "all", the "wrong" ones, or those to "unsolved" prompts, which no reply of the group solved.
    """
    if distilled not in _DISTILLED:
        raise ValueError(f"distilled is {distilled!r}; choose one of {', '.join(_DISTILLED)}")
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=chain(
            group_relative(),
            behaviour(),
            streams("teacher", logp="teacher", temperature=temperature),
            distilled_where(_DISTILLED[distilled], distilled),
            member("pg", "policy"),
            member("kd", "policy"),
        ),
        learn=Learn(pg_clip(eps), teacher_k2(coef=linear(beta, beta_end, over=beta_steps)), temperature=temperature),
        cast=stage(teacher=frozen(teacher)),
    )


@register(
    family="hybrid",
    catalogue=("minillm",),
    title="MiniLLM: Knowledge Distillation of Large Language Models",
    arxiv="2306.08543",
    summary="Reverse-KL distillation by policy gradient, with the one-step part in closed form.",
    when="You distil a small student on free text, where covering all the teacher's modes would spoil it.",
    example="burnish train minillm --teacher runs/DIR/model",
    trial={"n": 2, "epochs": 1, "teacher": "tiny"},
)
def minillm(
    task: Source, *, teacher: str, n: int = 1, alpha: float = 0.2, eps: float = 0.2, lm: float = 1.0, kd_share: float = 0.5, epochs: int = 4, temperature: float = 1.0
) -> Method:  # fmt: skip
    """MiniLLM: the gradient of KL(student || teacher) in two parts, q the student, p the teacher.

    y ~ (1 - alpha) q + alpha p, token by token, and rho = q over this mixture (w r in the paper's words)
    long part:   L = mean over sampled tokens of -min(rho R, clip(rho, 1-eps, 1+eps) R),
                 R_t = mean over the later tokens of log p/q (0 at the last): a length-normalised return
    single step: L = mean over sampled tokens of KL(q || p) over the whole vocabulary
    L = long + single + lm [ (1 - kd_share) (-log q) + kd_share KL(p || q) ], the bracket a mean over demonstrated tokens

    Departures: the pre-training corpus is the task's demonstrations. The return is the paper's; the released code counts the token
    itself, discounts by 0.95, scales, clips and whitens it. The single-step part is not weighed by rho, as in the released code.
    teacher: a model's name or directory, with the student's tokenizer. n: replies sampled for each prompt. alpha: the teacher's share in sampling.
    eps: the clip range. lm: weight of the loss on demonstrations. kd_share: share of distillation in that loss. epochs: passes over each batch.
    """
    return method(
        draw=demos(task),
        rollout=join(sample(n, temperature=temperature, blend=arithmetic("teacher", alpha)), given("demo")),
        credit=chain(
            behaviour(), streams("policy", logp="student", temperature=temperature),
            streams("teacher", logp="teacher", temperature=temperature), from_teacher(mean_of_later, student="student"),
            member("pg", "policy"), member("single", "policy"), member("sft", "demo"), member("kd", "demo"),
        ),
        learn=Learn(
            pg_clip(eps), distil(1.0, name="single"), imitate(coef=lm * (1 - kd_share)), distil(0.0, coef=lm * kd_share, name="kd"),
            epochs=epochs, temperature=temperature,
        ),
        cast=stage(teacher=frozen(teacher)),
    )  # fmt: skip
