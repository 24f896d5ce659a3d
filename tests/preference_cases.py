"""The rows of preference terms in the table of test_terms.py: two replies of two tokens, the first one preferred.

With RATIOS, log pi - log ref is 0.2 + 0.4 in the first reply and -0.1 - 0.1 in the second: lr = 0.6 and -0.2, d = 0.8.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from burnish.learn.term import Term
from burnish.learn.terms import preference_pairs as pairs
from burnish.learn.terms import preference_unpaired as unpaired
from burnish.zoo.alphapo import alphapo_term
from burnish.zoo.aot import transported, transported_replies
from burnish.zoo.bco import bco_term
from burnish.zoo.brain import posterior
from burnish.zoo.confucius3 import entropy_towards
from burnish.zoo.direct_preference_ppo import conservative
from burnish.zoo.discopop import discovered
from burnish.zoo.dno import soft_preference
from burnish.zoo.exo import exo_rewards_term, exo_term
from burnish.zoo.f_dpo import divergence_term, jensen_shannon
from burnish.zoo.fpo import feature_constrained
from burnish.zoo.h_dpo import entropy_controlled
from burnish.zoo.hunyuan_turbos import kl_bounded
from burnish.zoo.ipo_md import soft_ipo
from burnish.zoo.kimi_k1_5 import pull_to_old
from burnish.zoo.lcpo import trusted
from burnish.zoo.ld_dpo import desensitised
from burnish.zoo.lipo import lambda_rank
from burnish.zoo.llama_nemotron import reward_aware_pairs
from burnish.zoo.nca import nca_rewards_term, nca_term
from burnish.zoo.pro import reward_ranking
from burnish.zoo.rdpo import robust
from burnish.zoo.rso import hinge
from burnish.zoo.sigmoid_apo import apo_down_term, apo_zero_term
from burnish.zoo.slic import slic_term
from burnish.zoo.sppo import win_rate_targets
from burnish.zoo.step_apo import step_apo_term
from burnish.zoo.t_reg import token_regularised
from burnish.zoo.trpa import kl_to, levelled
from burnish.zoo.tulu3 import dpo_normalised
from burnish.zoo.wpo import weighted_pairs

LOGITS = [[1.0, 0.2, -0.5], [0.3, 0.8, -0.2], [0.1, -0.4, 0.6], [0.9, 0.0, 0.4]]  # as in term_cases.py
RATIOS = {"ref": [0.2, 0.4, -0.1, -0.1]}
LABELS = {"label": [1.0, 1.0, -1.0, -1.0]}
Number = Callable[[list[float]], list[float]]


@dataclass
class Row:
    """The arguments of a Case."""

    term: Term
    signs: str
    number: Number | None = None
    streams: dict[str, list[float]] = field(default_factory=dict)
    above: dict[str, list[float]] = field(default_factory=dict)
    other: list[float] = field(default_factory=lambda: [0.0] * 4)


def s(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def nls(x: float) -> float:
    """-log sigmoid(x)"""
    return math.log(1 + math.exp(-x))


def gap(p: list[float]) -> float:
    """log pi(w) - log pi(l)"""
    return p[0] + p[1] - p[2] - p[3]


def weight(p: list[float]) -> float:
    """WPO's weight of the pair: the tokens' probabilities over the expected ones, geometric means."""
    probs = torch.tensor(LOGITS, dtype=torch.float64).softmax(-1).tolist()
    logs = [x - math.log(sum(q * q for q in row)) for x, row in zip(p, probs, strict=True)]
    return min(1.0, math.exp((logs[0] + logs[1]) / 2 + (logs[2] + logs[3]) / 2))


def alpha_reward(m: float, alpha: float) -> float:
    return (1 - math.exp(-alpha * m)) / alpha


def log_odds(m: float) -> float:
    return m - math.log(1 - math.exp(m))


def held_features(p: list[float]) -> list[float]:
    """The drift of the two largest features, by hand.

    The hidden states are the logits; the reference's are 0.5 lower at the tokens said (0, 1 and 1, 2). Means over
    tokens are (0.65, 0.5, -0.35) and (0.5, -0.2, 0.5), so that features 0, 1 and 0, 2 are the largest.
    """
    drift_w = ((0.25) ** 2 + (0.25) ** 2) / 2  # 0.5 off at one of two tokens, in features 0 and 1
    drift_l = (0.0**2 + 0.25**2) / 2  # feature 0 is not touched, feature 2 is
    return [nls(0.5 * (0.3 - -0.1) - 0.5 * 0.4 * (drift_l - drift_w))]


def entropy(row: int) -> float:
    """The entropy at the token `row`."""
    probs = torch.tensor(LOGITS[row], dtype=torch.float64).softmax(-1).tolist()
    return -sum(q * math.log(q) for q in probs)


ROWS = [
    Row(dpo_normalised(0.5), "--++", lambda p: [nls(0.5 * (0.3 + 0.1))], above=RATIOS),  # means of two tokens
    Row(
        reward_aware_pairs(0.5, 2.0),  # margin 0.4, gap 2 x 0.5
        "--++",
        lambda p: [s(1) * (nls(0.4) - nls(1)) + s(-1) * (nls(-0.4) - nls(-1))],
        {"reward": [1.0, 1.0, 0.5, 0.5]},
        RATIOS,
    ),
    Row(step_apo_term(0.5, "worth"), "--++", lambda p: [nls(0.4 - 0.5)], {"worth": [0.75, 0.75, 0.25, 0.25]}, RATIOS),
    Row(pull_to_old(coef=1.0), "++--", lambda p: [0.6**2 / 2, 0.2**2 / 2], above={"old": RATIOS["ref"]}),
    Row(
        entropy_towards(coef=1.0),  # below the target in the first reply, above it in the second
        "++++",
        lambda p: [-entropy(0), -entropy(1), entropy(2), entropy(3)],
        {"side": [-1.0, -1.0, 1.0, 1.0]},
    ),
    Row(  # k3 = e^-d + d - 1 of d = 0.2, 0.4, -0.1, -0.1; the second is cut
        kl_bounded(coef=1.0, most=0.05),
        "+0--",
        lambda p: [math.exp(-0.2) + 0.2 - 1, 0.05, math.exp(0.1) - 0.1 - 1, math.exp(0.1) - 0.1 - 1],
        above=RATIOS,
    ),
    Row(pairs.ipo(0.5), "--++", lambda p: [(0.8 - 1) ** 2], above=RATIOS),
    Row(pairs.ipo(1.0), "++--", lambda p: [(0.8 - 0.5) ** 2], above=RATIOS),
    Row(soft_ipo(0.5), "++--", lambda p: [0.75 * 0.04 + 0.25 * 1.8**2], {"preference": [0.75] * 4}, RATIOS),
    Row(hinge(0.5), "--++", lambda p: [0.6], above=RATIOS),
    Row(hinge(2.0), "0000", lambda p: [0.0], above=RATIOS),
    Row(
        exo_term(0.5, 0.1),
        "--++",
        lambda p: [s(0.4) * math.log(s(0.4) / 0.9) + s(-0.4) * math.log(s(-0.4) / 0.1)],
        above=RATIOS,
    ),
    Row(
        discovered(0.5, 1.0),
        "--++",
        lambda p: [(1 - s(0.4)) * nls(0.4) + s(0.4) * math.exp(-0.4)],
        above=RATIOS,
    ),
    Row(apo_zero_term(0.5), "--++", lambda p: [1 - s(0.3) + s(-0.1)], above=RATIOS),
    Row(apo_down_term(0.5), "++++", lambda p: [s(0.3) + 1 - s(0.4)], above=RATIOS),
    Row(nca_term(0.5), "--++", lambda p: [nls(0.3) + (nls(-0.3) + nls(0.1)) / 2], above=RATIOS),
    Row(
        entropy_controlled(0.5, 0.8),
        "--++",
        lambda p: [nls(0.5 * (0.8 * gap(p) - (gap(p) - 0.8)))],
        above=RATIOS,
    ),
    Row(
        divergence_term(0.5, jensen_shannon),
        "--++",
        lambda p: [nls(0.5 * (math.log(2 * s(0.6)) - math.log(2 * s(-0.2))))],
        above=RATIOS,
    ),
    Row(robust(0.5, 0.1), "--++", lambda p: [(0.9 * nls(0.4) - 0.1 * nls(-0.4)) / 0.8], above=RATIOS),
    Row(
        trusted(0.5),
        "--++",
        lambda p: [0.7 * nls(0.4) + 0.3 * nls(-0.4)],
        {"confidence": [0.7] * 4},
        RATIOS,
    ),
    Row(transported(0.5), "--++", lambda p: [nls(0.5 * (gap(p) - 0.3))], {"matched": [0.3] * 4}, RATIOS),
    Row(pairs.weighted_tokens(0.5), "--++", lambda p: [nls(0.5 * (0.2 + 0.8 + 0.2))], {"weight": [1, 2, 1, 1]}, RATIOS),
    Row(
        desensitised(0.5),
        "--++",
        lambda p: [nls(0.5 * (0.6 - 0.5 * p[1] + 0.2))],
        {"weight": [1, 0.5, 1, 1]},
        RATIOS,
    ),
    Row(
        token_regularised(0.5, 0.3),
        "--++",
        lambda p: [nls(0.4) - 0.3 * 0.5 * s(-0.4) * (0.1 * p[0] + 0.2 * p[1] - 0.1 * p[2] + 0.3 * p[3])],
        {"token_reward": [0.1, 0.2, -0.1, 0.3]},
        RATIOS,
    ),
    Row(weighted_pairs(0.5), "--++", lambda p: [weight(p) * nls(0.4)], above=RATIOS),
    Row(
        win_rate_targets(2.0),
        "--++",
        lambda p: [((0.6 - 0.8) ** 2 + (-0.2 + 0.8) ** 2) / 2],
        {"wins": [0.9, 0.9, 0.1, 0.1]},
        {"past": RATIOS["ref"]},
    ),
    Row(
        soft_preference(0.5),
        "--++",
        lambda p: [s(0.8) * nls(0.4) + s(-0.8) * nls(-0.4)],
        {"wins": [0.9, 0.9, 0.1, 0.1]},
        {"past": RATIOS["ref"]},
    ),
    Row(
        pairs.against_population(2.0, {"ref": 0.25, "past": 0.75}),
        "--++",
        lambda p: [0.75 * (0.25 * 0.8 + 0.75 * 0.2 - 2) ** 2 + 0.25 * (-0.25 * 0.8 - 0.75 * 0.2 - 2) ** 2],
        {"preference": [0.75] * 4},
        {**RATIOS, "past": [0.1, 0.1, 0.0, 0.0]},
    ),
    Row(levelled(0.5), "--++", lambda p: [nls(0.5 * 2 * 0.4)], {"factor": [2.0, 2.0, 1.0, 1.0]}, RATIOS),
    Row(pairs.simpo(2.0, 0.5), "--++", lambda p: [nls(gap(p) - 0.5)]),
    Row(
        alphapo_term(2.0, 0.25, 0.5),
        "--++",
        lambda p: [nls(2 * (alpha_reward((p[0] + p[1]) / 2, 0.25) - alpha_reward((p[2] + p[3]) / 2, 0.25)) - 0.5)],
    ),
    Row(
        pairs.odds_ratio(coef=1.0),
        "--++",
        lambda p: [nls(log_odds((p[0] + p[1]) / 2) - log_odds((p[2] + p[3]) / 2))],
    ),
    Row(slic_term(2.0), "--++", lambda p: [2 - gap(p)]),
    Row(slic_term(0.1), "0000", lambda p: [0.0]),
    Row(pairs.uniform_reference(0.5), "--++", lambda p: [nls(0.5 * gap(p))]),
    Row(
        conservative(0.5, 0.2),
        "--++",
        lambda p: [nls(((p[0] + p[1]) / 2 - 0.5 * (p[2] + p[3]) / 2) / 0.2)],
    ),
    Row(
        feature_constrained(0.5, 0.4, 2, lambda states: states),
        "",
        held_features,
        above=RATIOS,
        other=[-0.5, -0.5, -0.5, -0.5],
    ),
    # lists
    Row(
        lambda_rank(0.5),
        "--++",
        lambda p: [(1 / math.log(2) - 1 / math.log(3)) * nls(0.4)],
        {"psi": [1.0, 1.0, 0.0, 0.0]},
        RATIOS,
    ),
    Row(reward_ranking(), "--++", lambda p: [nls(gap(p))], {"psi": [2.0, 2.0, 0.0, 0.0]}),
    Row(
        posterior(2.0),
        "--++",
        lambda p: [
            _kl(s(0.2 - 0.8 + 1.0), s(0.2))
        ],  # log p_sft - log q' is 0.2 - 0.8 apart, r/gamma 1; log pi - log q' 0.2
        {"psi": [2.0, 2.0, 0.0, 0.0]},
        {**RATIOS, "old": [0.1, 0.1, 0.0, 0.0]},
    ),
    Row(
        nca_rewards_term(0.5, 1.0),
        "--++",
        lambda p: [s(1) * nls(0.3) + s(-1) * nls(-0.1) + (nls(-0.3) + nls(0.1)) / 2],
        {"psi": [1.0, 1.0, 0.0, 0.0]},
        RATIOS,
    ),
    Row(
        exo_rewards_term(0.5, 0.5),
        "--++",
        lambda p: [_kl(s(0.4), s(2.0))],
        {"psi": [1.0, 1.0, 0.0, 0.0]},
        RATIOS,
    ),
    # unpaired
    Row(
        unpaired.kto(0.5, 1.0, 2.0),
        "--++",
        lambda p: [1 - s(0.5 * (0.6 - 0.1)), 2 * (1 - s(0.5 * (0.1 + 0.2)))],
        {**LABELS, "baseline": [0.1] * 4},
        RATIOS,
    ),
    Row(
        bco_term(0.5),
        "--++",
        lambda p: [nls(0.3 - 0.1), 3 * nls(0.1 + 0.1)],
        {**LABELS, "delta": [0.1] * 4, "density": [3.0] * 4},
        RATIOS,
    ),
    Row(
        transported_replies(0.5),
        "--++",
        lambda p: [nls(0.5 * (0.6 + 0.2)), nls(-0.5 * (-0.2 - 0.5))],
        {**LABELS, "partner": [-0.2, -0.2, 0.5, 0.5]},
        RATIOS,
    ),
    Row(unpaired.likelihood(coef=1.0, on="ref"), "++++", lambda p: [p[0] + p[1], p[2] + p[3]]),
    Row(unpaired.log_ratio(coef=1.0, on="ref"), "++++", lambda p: [0.6, -0.2], above=RATIOS),
    Row(
        kl_to("old", coef=1.0),
        "--++",
        lambda p: [math.exp(-d) + d - 1 for d in (-0.3, -0.3, 0.3, 0.3)],
        above={"old": [-0.3, -0.3, 0.3, 0.3]},
    ),
]


def _kl(a: float, b: float) -> float:
    """KL of two coins."""
    return a * math.log(a / b) + (1 - a) * math.log((1 - a) / (1 - b))
