"""Demonstrations and exploration together."""

from __future__ import annotations

import math
from collections.abc import Callable

from burnish.cast.roles import stage
from burnish.credit.alignment import aligned
from burnish.credit.copies import copies
from burnish.credit.group import group_relative
from burnish.credit.members import member
from burnish.credit.streams import behaviour, old, streams
from burnish.draw.tasks import demos
from burnish.learn.learn import Learn
from burnish.learn.maths import phi_weight
from burnish.learn.norms import constant, seq_mean
from burnish.learn.term import Term
from burnish.learn.terms import entropy_bonus, imitate, pg_clip, pg_reinforce
from burnish.learn.terms.hybrid import pg_demonstrated, pg_mixture, pg_shaped
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.nouns import Clock
from burnish.parts import Part, chain
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
    when="You have good demonstrations and a verifier, and want to fade from the first to the second.",
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
    when="As `chord`, when imitation disturbs what the model can do already: tokens that it is sure of, either way, count little.",
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
    when="Demonstrations are better than the model, and you want exploration from half-finished good replies.",
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


@register(
    family="hybrid",
    catalogue=("luffy",),
    title="Learning to Reason under Off-Policy Guidance",
    arxiv="2504.14945",
    summary="A demonstration joins each group, and its unlikely tokens count most.",
    when="Strong off-policy traces are at hand, and the model should learn their unlikely steps within GRPO.",
    trial={"n": 4},
)
def luffy(
    task: Source, *, n: int = 8, gamma: float = 0.1, eps: float = math.inf, entropy: float = 0.001, temperature: float = 1.0
) -> Method:  # fmt: skip
    """LUFFY: n - 1 samples and one demonstration in each group, the demonstration's ratio shaped.

    A_i = r_i - mean r over all n (no std);  rho = pi/pi_old;  f(p) = p / (p + gamma),  p = pi of a demonstrated token
    L = [ sum over sampled tokens of -rho A + sum over demonstrated tokens of -A f(p) ] / (all sequences x longest reply)
      - entropy x mean entropy of all reply tokens

    As in the released run there is no std, no clip, no KL, and tokens are summed over the longest reply. The paper's equation keeps the
    clip on samples (eps = 0.2 gives it) and divides by the number of tokens. The demonstration is scored by the verifier, like
    the samples. That the entropy is averaged over tokens is the natural reading, not checked.
    n: replies for each prompt, one of them the demonstration. gamma: where the shaping is steepest, as a probability.
    eps: the clip range of sampled tokens, infinite for none. entropy: coefficient of the entropy bonus.
    """
    shaped = pg_shaped(gamma, norm=constant(), coef=1 / n)
    credit = chain(group_relative(std=False), behaviour(), copies(adv="demo_adv"))
    return _with_a_demonstration(task, n, credit, shaped, eps, entropy, temperature)


@register(
    family="hybrid",
    catalogue=("rl-plus",),
    title="RL-PLUS: Countering Capability Boundary Collapse of LLMs in Reinforcement Learning with Hybrid-policy Optimization",
    arxiv="2508.00222",
    summary="A demonstration joins each group by multiple importance sampling, its surprising tokens first.",
    when="As `luffy`, when the author's probabilities are unknown and plain importance weights would be wild.",
    trial={"n": 4},
)
def rl_plus(
    task: Source, *, n: int = 8, gamma: float = 0.5, uniform: float = 1.0, std: bool = False, entropy: float = 0.001, temperature: float = 1.0
) -> Method:  # fmt: skip
    """RL-PLUS: n - 1 samples and one demonstration in each group; no clip on either.

    A_i = r_i - mean r over all n;  rho = pi/pi_old
    a demonstrated token has r = 2 p / (pi_omega + p_old), pi_omega = (p_old + uniform) / 2, so r = 4 p / (uniform + 3 p_old);
    A^c = A (1 - sg[p])^gamma;  p_old is the policy's own probability of the token before the update
    L = [ sum over sampled tokens of -rho A + sum over demonstrated tokens of -r A^c ] / (all sequences x longest reply)
      - entropy x mean entropy of all reply tokens

    The constants are the released run's; the paper also divides A by the standard deviation. That the entropy is averaged over tokens
    is the natural reading, not checked.
    n: replies for each prompt, one of them the demonstration. gamma: how much more a surprising token counts, 0 for no more.
    uniform: the flat part of the unknown demonstrator's probability, 1 in the released code.
    std: divide advantages by the group's standard deviation, as the paper writes. entropy: coefficient of the entropy bonus.
    """
    mixture = pg_mixture(uniform, gamma, norm=constant(), coef=1 / n)
    credit = chain(group_relative(std=std), old(temperature=temperature), copies(adv="demo_adv", old="demo_old"))
    return _with_a_demonstration(task, n, credit, mixture, math.inf, entropy, temperature)


def _with_a_demonstration(
    task: Source, n: int, credit: Part, on_demo: Term, eps: float, entropy: float, temperature: float
) -> Method:
    """n - 1 samples and a demonstration in one group. The shares (n - 1)/n and 1/n make both sums over all n sequences."""
    if n < 2:
        raise ValueError(f"n is {n}; a group needs the demonstration and at least 1 sample, so n must be 2 or more")
    return method(
        draw=demos(task),
        rollout=join(sample(n - 1, temperature=temperature), given("demo")),
        score=verify(task),
        credit=chain(credit, member("pg", "policy"), member("demo", "demo"), member("bonus", "policy", "demo")),
        learn=Learn(
            pg_clip(eps, norm=constant(), coef=(n - 1) / n),
            on_demo,
            entropy_bonus(coef=entropy, name="bonus"),
            temperature=temperature,
        ),
        cast=stage(),
    )


@register(
    family="hybrid",
    catalogue=("grao",),
    title="Learning to Align, Aligning to Learn: A Unified Approach for Self-Optimized Alignment",
    arxiv="2508.07750",
    summary="Follow good samples, and the demonstration as long as it is better than they are.",
    when="One demonstration a prompt, of unclear quality: it should teach only while it beats the model's own replies.",
    trial={"n": 4},
)
def grao(
    task: Source, *, n: int = 8, beta: float = 0.5, lam: float = 0.6, demo_counts: bool = True, temperature: float = 0.7
) -> Method:
    """GRAO: exploration, imitation and the contrast between them, all weighed by relative advantages.

    A = (R - mean) / std over the n samples and the demonstration y (std with 1/n);  l = mean log pi per token of a reply
    J = 1/n sum_i [ A_i l(o_i) + beta A_y l(y) + lam A_i (l(o_i) - l(y)) ],   L = -J, averaged over prompts

    There is no ratio, clip or KL. As printed, mean and std run over the samples alone (demo_counts = False), which leaves A_y
    without a value where all samples score the same; the text speaks of one group, which is the default here. A group in
    which nothing differs has weight 0. All log-probs are those at the sampling temperature.
    n: replies sampled for each prompt. beta: weight of imitation. lam: weight of the contrast.
    demo_counts: whether the demonstration counts in the mean and the deviation.
    """
    return method(
        draw=demos(task),
        rollout=join(sample(n, temperature=temperature), given("demo")),
        score=verify(task),
        credit=chain(
            aligned(beta=beta, lam=lam, demo_counts=demo_counts), member("pg", "policy"), member("demo", "demo")
        ),
        learn=Learn(pg_reinforce(norm=seq_mean), pg_demonstrated(norm=seq_mean), temperature=temperature),
        cast=stage(),
    )
