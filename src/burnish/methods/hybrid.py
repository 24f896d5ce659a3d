"""Demonstrations and exploration together."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.core.schedules import Schedule, at, cosine
from burnish.learn.maths import phi_weight
from burnish.learn.terms.hybrid import pg_shaped
from burnish.method import Clock, Method, Option, Part, chain, method, roles
from burnish.methods import Arguments, opt, papers, register, variant
from burnish.rollout.sample import prefixed

_GroupWithDemo = Annotated[int, Option("Replies for each prompt, one of them the demonstration.", at_least=2)]


def faded_imitation(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    mu: Schedule,
    weight: Callable[[Tensor], Tensor] | None,
    eps: opt.ClipRange = 0.2,
    dual: opt.DualClip = 3.0,
) -> Method:
    """GRPO on samples with weight 1 - mu, and imitation of the demonstrations with weight mu."""
    return method(
        draw=draw.demos(task),
        rollout=rollout.join(rollout.sample(n), rollout.given("demo")),
        score=score.verify(task),
        credit=chain(credit.group_relative(peers=lambda trace, group: "demo" in trace.tags), credit.behaviour()),
        learn=learn.Learn(
            learn.pg_clip(eps, dual=dual, coef=lambda clock: 1 - at(mu, clock)),
            learn.imitate(weight=weight, coef=mu, on="demo"),
            logp_temperature="run",
        ),
        models=roles(),
    )


def _mu(peak: float, valley: float, warmup: int, decay: int) -> Callable[[Clock], float]:
    fall = cosine(peak, valley, over=decay)
    return lambda clock: (
        peak * clock.step / warmup if clock.step < warmup else fall(Clock(clock.step - warmup, clock.of))
    )


@register(
    papers.CHORD,
    family="hybrid",
    summary="GRPO and SFT in one loss, the weight moving from imitation to exploration.",
    when="You have good demonstrations and a verifier, and want to fade from the first to the second.",
)
@variant(faded_imitation)
def chord(
    *,
    peak: Annotated[float, Option("Weight of imitation after its warm-up.", at_least=0, at_most=1)] = 0.9,
    valley: Annotated[float, Option("Weight of imitation after its decay.", at_least=0, at_most=1)] = 0.05,
    mu_warmup: Annotated[int, Option("Steps in which the weight of imitation rises.", at_least=0)] = 0,
    mu_decay: Annotated[int, Option("Steps in which the weight of imitation falls.", at_least=0)] = 200,
) -> Arguments:
    """CHORD-mu: a scheduled sum of GRPO on samples and SFT on demonstrations.

    L = (1 - mu) L_GRPO + mu L_SFT
    L_GRPO: -min(rho A, clip(rho, 1-eps, 1+eps) A), where A < 0 at most -dual A; mean over sampled tokens, no KL
            A_i = (r_i - mean) / (std + 1e-6) over the samples
    L_SFT:  -log pi, mean over demonstrated tokens
    mu: linear from 0 to peak over `mu_warmup` steps, then cosine from peak to valley over `mu_decay` steps, then valley

    The constants are those of the paper's mathematics runs; the dual clip is the released code's. Demonstrations take
    no part in the group. Departure: the expert batch holds one demonstration of each sampled prompt, where the paper
    draws expert prompts apart from the sampled ones.
    """
    return {"mu": _mu(peak, valley, mu_warmup, mu_decay), "weight": None}


@register(
    papers.CHORD,
    family="hybrid",
    summary="CHORD with a fixed weight and each expert token weighed by p(1-p).",
    when="As `chord`, when imitation disturbs what the model can do: tokens that it is sure of count little.",
)
@variant(faded_imitation)
def chord_phi(
    *, mu: Annotated[float, Option("The weight of imitation, constant.", at_least=0, at_most=1)] = 0.1
) -> Arguments:
    """CHORD-phi: GRPO plus SFT whose tokens count by how undecided the policy is about them.

    L = (1 - mu) L_GRPO + mu L_phi,   L_phi = mean over demonstrated tokens of -sg[p (1 - p)] log pi,  p = pi(y_t)

    The rest is as in `chord`. mu = 0.1 is the paper's.
    """
    return {"mu": mu, "weight": phi_weight}


@register(
    papers.PREFIX_RFT,
    family="hybrid",
    summary="One reply of each group starts with the beginning of a demonstration.",
    when="Demonstrations are better than the model, and you want exploration from half-finished good replies.",
)
def prefix_rft(
    task: draw.Source,
    *,
    n: Annotated[int, Option("Replies for each prompt, one of them hybrid.", at_least=2)] = 8,
    eps: opt.ClipRange = 0.2,
    dual: opt.DualClip = 3.0,
    keep_high: Annotated[float, Option("The longest prefix, as a share.", at_least=0, at_most=1)] = 0.95,
    keep_low_end: Annotated[float, Option("The shortest prefix at the end of the run.", at_least=0, at_most=1)] = 0.05,
    top: Annotated[float, Option("Share of the prefix tokens that is trained.", at_least=0, at_most=1)] = 0.2,
    entropy: opt.EntropyCoef = 0.001,
) -> Method:
    """Prefix-RFT: n - 1 plain samples and one hybrid: L tokens of a demonstration, then the policy's continuation.

    L = floor(l |y*|), l ~ U(low, keep_high), low by a cosine from keep_high to keep_low_end over the run
    A_i = r_i - mean r over all n (no std), shared by prefix and continuation;  rho = pi/pi_old on every token; pi_old
    of a demonstrated token is the policy's own probability of it before the update
    L = sum over tokens of -clipped(rho, A, eps, dual) / (sequences x longest reply)
      - entropy x mean entropy of all reply tokens, those of the prefix too
    Of all prefix tokens, only the share `top` with the largest policy entropy is trained.

    The constants are the paper's and its code's. Departures: the top share is pooled over the batch (the released
    code pools over a micro-batch, which would let batch splitting change the gradient), and its entropy is that of
    the policy before the update.
    """
    return method(
        draw=draw.demos(task),
        rollout=rollout.join(
            rollout.sample(n - 1),
            prefixed(cosine(keep_high, keep_low_end), keep_high),
        ),
        score=score.verify(task),
        credit=chain(
            credit.group_relative(std=False),
            credit.streams("policy", logp="old", entropy="entropy", logp_temperature="run"),
            credit.claim("pg", "policy"),
            credit.claim("pg", "demo", top=("entropy", top)),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps, dual=dual, norm=learn.constant(), on=learn.CLAIMED),
            learn.entropy_bonus(coef=entropy, on=("policy", "demo"), name="bonus"),
            logp_temperature="run",
        ),
        models=roles(),
    )


@register(
    papers.LUFFY,
    family="hybrid",
    summary="A demonstration joins each group, and its unlikely tokens count most.",
    when="Strong off-policy traces are at hand, and the model should learn their unlikely steps within GRPO.",
)
def luffy(
    task: draw.Source,
    *,
    n: _GroupWithDemo = 8,
    gamma: Annotated[float, Option("Where the shaping is steepest, as a probability.", above=0, at_most=1)] = 0.1,
    eps: Annotated[
        float, Option("The clip range of sampled tokens; inf for none.", at_least=0, unlimited=True)
    ] = math.inf,
    entropy: opt.EntropyCoef = 0.001,
) -> Method:
    """LUFFY: n - 1 samples and one demonstration in each group, the demonstration's ratio shaped.

    A_i = r_i - mean r over all n (no std);  rho = pi/pi_old;  f(p) = p / (p + gamma),  p = pi of a demonstrated token
    L = [ sum over sampled tokens of -rho A + sum over demonstrated ones of -A f(p) ] / (all sequences x longest reply)
      - entropy x mean entropy of all reply tokens

    As in the released run there is no std, no clip, no KL, and tokens are summed over the longest reply. The
    paper's equation keeps the clip on samples (eps = 0.2 gives it) and divides by the number of tokens. The
    demonstration is scored by the verifier, like the samples. That the entropy is averaged over tokens is the
    natural reading, not checked.
    """
    shaped = pg_shaped(gamma, norm=learn.constant_over_all())
    advantages = chain(credit.group_relative(std=False), credit.behaviour(), credit.copies(adv="demo_adv"))
    return with_a_demonstration(task, n, advantages, shaped, eps, entropy)


def with_a_demonstration(
    task: draw.Source, n: int, advantages: Part, on_demo: learn.Term, eps: float, entropy: float
) -> Method:
    """n - 1 samples and a demonstration in one group; both sums are divided by all sequences."""
    return method(
        draw=draw.demos(task),
        rollout=rollout.join(rollout.sample(n - 1), rollout.given("demo")),
        score=score.verify(task),
        credit=advantages,
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.constant_over_all()),
            on_demo,
            learn.entropy_bonus(coef=entropy, on=("policy", "demo"), name="bonus"),
            logp_temperature="run",
        ),
        models=roles(),
    )
