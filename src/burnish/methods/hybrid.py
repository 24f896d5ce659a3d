"""Demonstrations and exploration together."""

from __future__ import annotations

from collections.abc import Callable

from burnish.cast.roles import stage
from burnish.credit.group import group_relative
from burnish.credit.members import member
from burnish.credit.streams import behaviour, streams
from burnish.draw.tasks import demos
from burnish.learn.learn import Learn
from burnish.learn.maths import phi_weight
from burnish.learn.norms import constant
from burnish.learn.terms import entropy_bonus, imitate, pg_clip
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.nouns import Clock
from burnish.parts import chain
from burnish.rollout.given import given
from burnish.rollout.sample import join, prefixed, sample
from burnish.schedules import Schedule, at, cosine
from burnish.score.verify import verify
from burnish.tasks.source import Source

_CHORD = "On-Policy RL Meets Off-Policy Experts: Harmonizing SFT and RL via Dynamic Weighting"


@register(
    family="hybrid",
    catalogue=("chord",),
    title=_CHORD,
    arxiv="2508.11408",
    summary="GRPO and SFT in one loss, the weight moving from imitation to exploration.",
    trial={"n": 4},
)
def chord(
    task: Source,
    *,
    n: int = 8,
    peak: float = 0.9,
    valley: float = 0.05,
    mu_warmup: int = 0,
    mu_decay: int = 200,
    eps: float = 0.2,
    temperature: float = 1.0,
) -> Method:
    """CHORD-mu: a scheduled sum of GRPO on samples and SFT on demonstrations.

    L = (1 - mu) L_GRPO + mu L_SFT
    L_GRPO: clipped surrogate, A_i = (r_i - mean) / (std + 1e-6) over the samples, mean over sampled tokens, no KL
    L_SFT:  -log pi, mean over demonstrated tokens
    mu: linear from 0 to peak over `mu_warmup` steps, then cosine from peak to valley over `mu_decay` steps, then valley

    The constants are those of the paper's mathematics runs. Demonstrations take no part in the group.
    n: replies sampled for each prompt. peak: mu at the end of its warm-up. valley: mu at the end of its decay.
    mu_warmup: steps in which mu rises. mu_decay: steps in which mu falls. eps: the clip range.
    Departure: the expert batch holds one demonstration of each sampled prompt, where the paper draws
    expert prompts apart from the sampled ones.
    """
    return _chord(task, n, _mu(peak, valley, mu_warmup, mu_decay), None, eps, temperature)


@register(
    family="hybrid",
    catalogue=("chord",),
    title=_CHORD,
    arxiv="2508.11408",
    summary="CHORD with a fixed weight and each expert token weighed by p(1-p).",
    trial={"n": 4},
)
def chord_phi(task: Source, *, n: int = 8, mu: float = 0.1, eps: float = 0.2, temperature: float = 1.0) -> Method:
    """CHORD-phi: GRPO plus SFT whose tokens count by how undecided the policy is about them.

    L = (1 - mu) L_GRPO + mu L_phi,   L_phi = mean over demonstrated tokens of -sg[p (1 - p)] log pi,  p = pi(y_t)

    The rest is as in `chord`.
    n: replies sampled for each prompt. mu: the weight of imitation, constant; 0.1 is the paper's. eps: the clip range.
    """
    return _chord(task, n, mu, phi_weight, eps, temperature)


def _chord(task: Source, n: int, mu: Schedule, weight: Callable | None, eps: float, temperature: float) -> Method:
    return method(
        draw=demos(task),
        rollout=join(sample(n, temperature=temperature), given("demo")),
        score=verify(task),
        credit=chain(
            group_relative(peers=lambda trace, group: "demo" in trace.tags),
            behaviour(),
            member("pg", "policy"),
            member("sft", "demo"),
        ),
        learn=Learn(
            pg_clip(eps, coef=lambda clock: 1 - at(mu, clock)), imitate(weight=weight, coef=mu), temperature=temperature
        ),
        cast=stage(),
    )


def _mu(peak: float, valley: float, warmup: int, decay: int) -> Callable[[Clock], float]:
    fall = cosine(peak, valley, over=decay)
    return lambda clock: (
        peak * clock.step / warmup if clock.step < warmup else fall(Clock(clock.step - warmup, clock.of))
    )


@register(
    family="hybrid",
    catalogue=("prefix-rft",),
    title="Blending Supervised and Reinforcement Fine-Tuning with Prefix Sampling",
    arxiv="2507.01679",
    summary="One reply of each group starts with the beginning of a demonstration.",
    trial={"n": 4},
)
def prefix_rft(
    task: Source, *, n: int = 8, eps: float = 0.2, dual: float = 3.0, keep_high: float = 0.95, keep_low_end: float = 0.05, top: float = 0.2,
    entropy: float = 0.001, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Prefix-RFT: n - 1 plain samples and one hybrid: L tokens of a demonstration, then the policy's continuation.

    L = floor(l |y*|), l ~ U(low, keep_high), low by a cosine from keep_high to keep_low_end over the run
    A_i = r_i - mean r over all n (no std), shared by prefix and continuation;  rho = pi/pi_old on every token, where pi_old
    of a demonstrated token is the policy's own probability of it before the update
    L = sum over tokens of -clipped(rho, A, eps, dual) / (sequences x longest reply) - entropy bonus
    Of all prefix tokens, only the share `top` with the largest policy entropy is trained.

    The constants are the paper's and its code's. Departures: the top share is pooled over the batch (the released code pools
    over a micro-batch, which would let batch splitting change the gradient), and its entropy is that of the policy before
    the update.
    n: replies for each prompt, one of them hybrid. eps: the clip range. dual: the second clip where A < 0.
    keep_high: the longest prefix, as a share of the demonstration. keep_low_end: the shortest, at the end of the run.
    top: share of the prefix tokens that is trained. entropy: coefficient of the entropy bonus.
    """
    return method(
        draw=demos(task),
        rollout=join(sample(n - 1, temperature=temperature), prefixed(cosine(keep_high, keep_low_end), keep_high, temperature=temperature)),
        score=verify(task),
        credit=chain(
            group_relative(std=False), streams("policy", logp="old", entropy="entropy", temperature=temperature),
            member("pg", "policy"), member("pg", "demo", top=("entropy", top)), member("bonus", "policy", "demo"),
        ),
        learn=Learn(pg_clip(eps, dual=dual, norm=constant()), entropy_bonus(coef=entropy, norm=constant(), name="bonus"), temperature=temperature),
        cast=stage(),
    )  # fmt: skip
