"""The table of tests/learn/test_terms.py: every term on two replies of two tokens, the signs of its
slope, its number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from burnish.engine.mixture import arithmetic
from burnish.learn.term import Term
from burnish.learn.terms.distillation import distil
from burnish.learn.terms.fit import chance_fit, value_fit
from burnish.learn.terms.hybrid import pg_shaped
from burnish.learn.terms.imitation import imitate
from burnish.learn.terms.policy import entropy_bonus, kl_k2, kl_k3, pg_clip, pg_reinforce
from burnish.learn.terms.preference import dpo
from burnish.learn.terms.process import step_chance, step_regression
from burnish.learn.terms.regression import regress_advantage
from burnish.learn.terms.reward import score_pairs
from burnish.learn.terms.self_imitation import imitate_smoothed, imitate_weighted
from burnish.learn.terms.sequence import regress_rewards
from burnish.learn.terms.surrogates import pg_held_ratio, pg_sequence, pg_sequence_by_token, pg_soft
from burnish.learn.terms.token_values import imitate_steered, q_recorded, q_return, q_temporal, v_expectile
from burnish.learn.terms.value import value_clip, value_mse
from burnish.zoo.a_lol import pg_sequence_ratio, pg_token_ratio
from burnish.zoo.b_coder import dueling_policy, dueling_value, no_advantage_lost
from burnish.zoo.cgpo import dpo_with_nll
from burnish.zoo.chi2_regularisation import chi2_pull
from burnish.zoo.clip_cov import stay
from burnish.zoo.cpgd import drift, pg_log_ratio
from burnish.zoo.disco import discriminate, hold, mean_logp, mean_ratio
from burnish.zoo.dual_token_archer import kl_by_kind, pg_clip_by_kind
from burnish.zoo.gmpo import pg_geometric
from burnish.zoo.grao import pg_demonstrated
from burnish.zoo.hir import contrast
from burnish.zoo.iqlearn_lm import soft_q_penalty
from burnish.zoo.kdrl import teacher_k2
from burnish.zoo.marft import pg_whole
from burnish.zoo.multicritique import focal_pairs
from burnish.zoo.nft import negative_aware
from burnish.zoo.nlpo import pg_clip_blended
from burnish.zoo.oreo import kl_exact, path_policy, path_value
from burnish.zoo.p3o import pairwise_joint, pg_pair
from burnish.zoo.rl_plus import pg_mixture
from burnish.zoo.spa_rl import redistribution
from burnish.zoo.tba import balance
from burnish.zoo.topr import pg_tapered

LOGITS = [[1.0, 0.2, -0.5], [0.3, 0.8, -0.2], [0.1, -0.4, 0.6], [0.9, 0.0, 0.4]]
SAID = [0, 1, 1, 2]  # the likeliest token, the likeliest, the least likely, the second
UP_DOWN = [1.0, 1.0, -1.0, -1.0]  # the first reply is better than the second
Number = Callable[[list[float]], list[float]]  # log pi of the four tokens -> the loss of every unit


@dataclass
class Case:
    """A term, the streams it reads, the signs of its slope, and its losses.

    above  streams of log-probs: log pi - stream, token by token
    value  numbers of a critic or reward model, if it is trained or read
    """

    term: Term
    signs: str
    number: Number | None = None
    streams: dict[str, list[float]] = field(default_factory=dict)
    above: dict[str, list[float]] = field(default_factory=dict)
    value: list[float] = field(default_factory=lambda: [0.0] * 4)
    other: list[float] = field(default_factory=lambda: [0.0] * 4)  # added to the said token's logit by another model


ADV = {"adv": UP_DOWN}
AT_OLD = {"old": [0.0] * 4}
LOW_HIGH = [-0.3, -0.3, 0.3, 0.3]  # below an anchor, then above it
LOGS = math.log(2)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def k3(d: float) -> float:
    """Of log pi - log ref."""
    return math.exp(-d) + d - 1


def entropies() -> list[float]:
    p = torch.tensor(LOGITS, dtype=torch.float64).softmax(-1)
    return (-(p * p.log()).sum(-1)).tolist()


def probs() -> list[list[float]]:
    return torch.tensor(LOGITS, dtype=torch.float64).softmax(-1).tolist()


CASES: list[Case] = [
    # policy.py
    Case(pg_clip(0.2), "--++", lambda p: [-1, -1, 1, 1], ADV, AT_OLD),
    Case(pg_clip(0.2), "00++", lambda p: [-1.2, -1.2, 1.5, 1.5], ADV, {"old": [math.log(1.5)] * 4}),
    Case(pg_clip(0.2), "--00", lambda p: [-0.5, -0.5, 0.8, 0.8], ADV, {"old": [math.log(0.5)] * 4}),
    Case(pg_clip(0.2, 0.6), "--++", lambda p: [-1.5, -1.5, 1.5, 1.5], ADV, {"old": [math.log(1.5)] * 4}),
    Case(pg_clip(0.2, dual=3.0), "0000", lambda p: [-1.2, -1.2, 3, 3], ADV, {"old": [math.log(4)] * 4}),
    Case(
        pg_clip(0.2, adv="gain", weight="w"),
        "-0+0",
        lambda p: [-2, 0, 2, 0],
        {"gain": UP_DOWN, "w": [2, 0, 2, 0]},
        AT_OLD,
    ),
    Case(pg_clip_blended(0.2, arithmetic("guide", 0.25)), "--++", None, {**ADV, "token": SAID}, AT_OLD),
    Case(pg_reinforce(), "--++", lambda p: [-p[0], -p[1], p[2], p[3]], ADV),
    Case(kl_k3(coef=1.0), "--++", lambda p: [k3(d) for d in LOW_HIGH], above={"ref": LOW_HIGH}),
    Case(kl_k2(coef=1.0), "--++", lambda p: [0.045] * 4, above={"ref": LOW_HIGH}),
    Case(kl_k2(coef=1.0, anchor="old"), "--++", lambda p: [0.045] * 4, above={"old": LOW_HIGH}),
    Case(entropy_bonus(coef=1.0), "++--", lambda p: [-h for h in entropies()]),
    # preference.py
    Case(dpo(0.5), "--++", lambda p: [-math.log(sigmoid(0.5 * 0.8))], above={"ref": [0.2, 0.4, -0.1, -0.1]}),
    Case(
        dpo(0.5, label_smoothing=0.1),
        "--++",
        lambda p: [-0.9 * math.log(sigmoid(0.4)) - 0.1 * math.log(sigmoid(-0.4))],
        above={"ref": [0.2, 0.4, -0.1, -0.1]},
    ),
    Case(score_pairs(), "--++", lambda p: [-math.log(sigmoid(0.7))], value=[0.5, 0.0, 0.0, -0.2]),
    Case(
        score_pairs(centre=0.5), "--++", lambda p: [-math.log(sigmoid(0.7)) + 0.5 * 0.09], value=[0.5, 0.0, 0.0, -0.2]
    ),
    # fit.py, value.py
    Case(value_fit("goal"), "--++", lambda p: [1, 1, 4, 4], {"goal": [1, 1, -2, -2]}),
    Case(value_fit("goal", output="score"), "--++", lambda p: [1, 1, 4, 4], {"goal": [1, 1, -2, -2]}),
    Case(chance_fit("goal"), "-0+-", lambda p: [LOGS] * 4, {"goal": [1.0, 0.5, 0.0, 0.75]}),
    Case(value_clip(0.2), "--++", lambda p: [0.5, 0.5, 2, 2], {"value": [0.1] * 4, "returns": [1, 1, -2, -2]}),
    Case(value_clip(0.2), "--00", lambda p: [0.5, 0.5, 3.92, 3.92], {"value": [1.0] * 4, "returns": [1, 1, -2, -2]}),
    Case(value_mse("value", None, "goal"), "--++", lambda p: [1, 1, 4, 4], {"goal": [1, 1, -2, -2]}),
    Case(
        dpo_with_nll(0.5, 0.3),
        "--++",
        lambda p: [-math.log(sigmoid(0.4)) - 0.3 * (p[0] + p[1]) / 2],
        above={"ref": [0.2, 0.4, -0.1, -0.1]},
    ),
    Case(  # a difference of 0.7: 1 - 2 (sigmoid - 1/2) is squared
        focal_pairs(2.0),
        "--++",
        lambda p: [-((2 - 2 * sigmoid(0.7)) ** 2) * math.log(sigmoid(0.7))],
        value=[0.5, 0.0, 0.0, -0.2],
    ),
    # process.py
    Case(step_chance(), "-0+-", lambda p: [LOGS] * 4, {"label": [1.0, 0.5, 0.0, 0.75]}),
    Case(step_regression(), "--++", lambda p: [1, 1, 4, 4], {"label": [1, 1, -2, -2]}),
    # distillation.py
    Case(distil(0.0), "--++", other=[0.5, 0.5, -0.5, -0.5]),
    Case(distil(0.5), "--++", other=[0.5, 0.5, -0.5, -0.5]),
    Case(distil(1.0, teacher="t"), "--++", other=[0.5, 0.5, -0.5, -0.5]),
    # imitation.py, self_imitation.py
    Case(imitate(), "----", lambda p: [-x for x in p]),
    Case(imitate(weight=lambda logp: logp.detach() * 0 + 3), "----", lambda p: [-3 * x for x in p]),
    Case(imitate_weighted(), "--0-", lambda p: [-p[0], -2 * p[1], 0, -p[3] / 2], {"weight": [1, 2, 0, 0.5]}),
    Case(
        imitate_smoothed(0.1),
        "----",
        lambda p: [-0.9 * x - 0.1 * sum(map(math.log, row)) / 3 for x, row in zip(p, probs(), strict=True)],
    ),
    Case(contrast(0.0), "--++", lambda p: [-math.log(sigmoid((p[0] + p[1] - p[2] - p[3]) / 2))]),
    Case(
        contrast(0.2),
        "--++",
        lambda p: [sum(-w * math.log(sigmoid(s * (p[0] + p[1] - p[2] - p[3]) / 2)) for w, s in ((0.8, 1), (0.2, -1)))],
    ),
    Case(soft_q_penalty(0.0, coef=1.0), "++-+", lambda p: [1.0, 0.64, 0.16, 0.16]),
    Case(
        soft_q_penalty(0.5, coef=1.0),
        "",
        lambda p: [(1.0 - 0.5 * (0.8 - p[1])) ** 2, 0.64, (-0.4 - 0.5 * (0.4 - p[3])) ** 2, 0.16],
    ),
    # hybrid.py
    Case(
        pg_shaped(0.1),
        "--++",
        lambda p: [-a * math.exp(x) / (math.exp(x) + 0.1) for a, x in zip(UP_DOWN, p, strict=True)],
        {"demo_adv": UP_DOWN},
    ),
    Case(
        pg_mixture(1.0, 2.0),
        "--++",
        lambda p: [
            -a * 4 * math.exp(x) / (1 + 3 * math.exp(x)) * (1 - math.exp(x)) ** 2
            for a, x in zip(UP_DOWN, p, strict=True)
        ],
        {"demo_adv": UP_DOWN},
        {"demo_old": [0.0] * 4},
    ),
    Case(pg_demonstrated(), "--++", lambda p: [-p[0], -p[1], p[2], p[3]], {"demo_adv": UP_DOWN}),
    Case(
        teacher_k2(coef=1.0),
        "-0++",
        lambda p: [0.045, 0, 0.045, 0.09],
        {"kd_weight": [1, 0, 1, 2]},
        {"teacher": LOW_HIGH},
    ),
    # regression.py
    Case(
        regress_advantage(0.5),
        "--++",
        lambda p: [(2 - 0.2) ** 2 / 2, (-2 - 0.2) ** 2 / 2],
        {"gain": UP_DOWN},
        {"ref": [0.1] * 4},
    ),
    Case(
        chi2_pull(coef=1.0),
        "--++",
        lambda p: [2 * (2 * math.cosh(0.6) - 2)] * 2,
        {"chi2_scale": [2.0] * 4},
        {"ref": LOW_HIGH},
    ),
    Case(balance(0.5), "--++", lambda p: [4.0], {"reward": [0.0, 2.0, 0.0, 0.0]}, {"ref": [0.0] * 4}),
    # sequence.py
    Case(
        regress_rewards(2.0, anchor="mu"),
        "--++",
        lambda p: [(2 * 0.2 - 1.5) ** 2],
        {"reward": [0.0, 1.0, 0.0, -0.5]},
        {"mu": [0.1, 0.1, 0.0, 0.0]},
    ),
    Case(
        pg_pair(pairwise_joint, 0.5),
        "--++",
        lambda p: [-math.exp(0.2) * 0.75 * 0.2],
        {"reward": [0.0, 1.0, 0.0, -0.5]},
        {"old": [0.1, 0.1, 0.0, 0.0]},
    ),
    Case(
        pg_sequence_ratio(0.5),
        "--++",
        lambda p: [-1.5 * (p[0] + p[1]), 1.5 * (p[2] + p[3])],
        ADV,
        {"ref": [math.log(2)] * 4},
    ),
    Case(
        pg_token_ratio(0.9),
        "--++",
        lambda p: [-1.9 * (p[0] + p[1]), 0.5 * (p[2] + p[3])],
        ADV,
        {"ref": [LOGS, LOGS, -LOGS, -LOGS]},
    ),
    # right_and_wrong.py
    Case(pg_tapered(), "--++", lambda p: [-p[0], -p[1], p[2] / 4, p[3] / 4], ADV, {"old": [LOGS, LOGS, -LOGS, -LOGS]}),
    Case(
        negative_aware(0.1, lambda q: 2 * q, 3.0),
        "--++",
        lambda p: [0.0, -0.1 * 0.5, 0.0, -3 * 0.5 * math.log((1 - 0.25 * math.exp(0.1)) / 0.75)],
        {"right": [1.0, 1.0, 0.0, 0.0], "pass_rate": [0.25] * 4},
        {"old": [0.0, 0.1, 0.0, 0.1]},
    ),
    Case(
        discriminate(mean_logp, 0.5),
        "--++",
        lambda p: [(p[2] + p[3] - p[0] - p[1]) / 2],
        {"right": [1.0, 1.0, 0.0, 0.0]},
    ),
    Case(
        discriminate(mean_ratio, math.inf, "old"),
        "--++",
        lambda p: [0.5 - 2.0],
        {"right": [1.0, 1.0, 0.0, 0.0]},
        {"old": [LOGS, LOGS, -LOGS, -LOGS]},
    ),
    Case(hold(0.1, 3.0), "----", lambda p: [3 * 0.2 * 0.3], above={"old": [-0.3] * 4}),
    Case(hold(0.4, 3.0), "0000", lambda p: [0.0], above={"old": [-0.3] * 4}),
    # surrogates.py
    Case(
        pg_sequence(0.2, 0.3),
        "--++",
        lambda p: [-1.25, 1.25],
        ADV,
        {"old": [2 * math.log(1.25), 0, math.log(1.25), math.log(1.25)]},
    ),
    Case(pg_sequence(0.2, 0.2), "00++", lambda p: [-1.2, 1.25], ADV, {"old": [math.log(1.25)] * 4}),
    Case(pg_whole(0.2, 0.2), "00++", lambda p: [-1.2, 1.25**2], ADV, {"old": [math.log(1.25)] * 4}),
    Case(pg_whole(0.5, 0.7), "--++", lambda p: [-(1.25**2), 1.25**2], ADV, {"old": [math.log(1.25)] * 4}),
    Case(  # the scores of a reply add up to .7 and to .4, and the outcomes are 1 and 0
        redistribution(),
        "--++",
        lambda p: [0.3**2, 0.4**2],
        {"outcome": [1.0, 1.0, 0.0, 0.0]},
        value=[0.2, 0.5, 0.3, 0.1],
    ),
    Case(pg_sequence(0.1, 0.3), "--00", lambda p: [-0.8, 0.9], ADV, {"old": [math.log(0.8)] * 4}),
    Case(
        pg_sequence_by_token(0.2, 0.3),
        "--++",
        lambda p: [-1.25, -1.25, 1.25, 1.25],
        ADV,
        {"old": [2 * math.log(1.25), 0, math.log(1.25), math.log(1.25)]},
    ),
    Case(pg_sequence_by_token(0.1, 0.3), "--00", lambda p: [-0.8, -0.8, 0.9, 0.9], ADV, {"old": [math.log(0.8)] * 4}),
    Case(pg_geometric(0.4), "0-++", lambda p: [-math.exp(0.2), math.exp(0.5)], ADV, {"old": [0.5, 0.0, 0.5, 0.5]}),
    Case(
        pg_soft(1.0, 2.0),
        "--++",
        lambda p: [-4 * sigmoid(1), -4 * sigmoid(1), 2 * sigmoid(2), 2 * sigmoid(2)],
        ADV,
        {"old": [LOGS] * 4},
    ),
    Case(
        pg_held_ratio(0.8, 1.2),
        "--++",
        lambda p: [-1.2 * p[0], -1.2 * p[1], 0.8 * p[2], 0.8 * p[3]],
        ADV,
        {"old": [LOGS, LOGS, -LOGS, -LOGS]},
    ),
    Case(
        pg_log_ratio(0.5),
        "0-+0",
        lambda p: [-math.log(1.5), -0.1, 0.5, math.log(0.5)],
        ADV,
        {"old": [0.5, 0.1, 0.5, -1.0]},
    ),
    Case(
        drift(0.5, coef=1.0),
        "--++",
        lambda p: [(math.exp(-0.3) - 1) * x for x in p[:2]] + [0.5 * p[2], 0.5 * p[3]],
        above={"old": [-0.3, -0.3, 1.0, 1.0]},
    ),
    Case(stay("mark", coef=1.0), "-0++", lambda p: [0.3, 0.0, 0.3, 0.6], {"mark": [1, 0, 1, 2]}, {"old": LOW_HIGH}),
    # token_kinds.py: the second token of each reply is the one with the larger entropy, a reasoning token
    Case(
        pg_clip_by_kind(1.0, 0.2, 0.4),
        "-0+0",
        lambda p: [-1.3, -1.2, 0.7, 0.8],
        ADV,
        {"old": [math.log(1.3), math.log(1.3), math.log(0.7), math.log(0.7)]},
    ),
    Case(
        kl_by_kind(1.0, 0.1, 1.0),
        "--++",
        lambda p: [b * k3(d) for b, d in zip([1, 0.1, 1, 0.1], LOW_HIGH, strict=True)],
        above={"ref": LOW_HIGH},
    ),
    # soft_bellman.py
    Case(
        path_policy(0.5),
        "--++",
        lambda p: [
            ((0.2 - 1 + 0.1) ** 2 + (0.2 - 1 + 0.05) ** 2) / 2,
            ((0.2 + 1 + 0.1) ** 2 + (0.2 + 1 + 0.05) ** 2) / 2,
        ],
        {"returns": UP_DOWN, "action": [0, 1, 0, 1]},
        {"ref": [0.1] * 4},
        value=[0.2] * 4,
    ),
    Case(
        path_value(0.5),
        "--++",
        lambda p: [
            ((0.2 - 1 + 0.1) ** 2 + (0.2 - 1 + 0.05) ** 2) / 2,
            ((0.2 + 1 + 0.1) ** 2 + (0.2 + 1 + 0.05) ** 2) / 2,
        ],
        {"returns": UP_DOWN, "action": [0, 1, 0, 1]},
        {"ref": [0.1] * 4},
        value=[0.2] * 4,
    ),
    Case(kl_exact(coef=1.0), "--++", other=[0.5, 0.5, -0.5, -0.5]),
    Case(kl_exact(coef=1.0, ref="r"), "--++", other=[0.5, 0.5, -0.5, -0.5]),
    # token_values.py: Q of a said token is minus what `other` adds to it: .5, 0 | -.5, 0
    Case(  # r + V(next) / 2, nothing after a row's last: .2, 1 | .4, 1
        q_temporal(0.5, trainee="q"),
        "+---",
        lambda p: [0.3**2 / 2, 0.5, 0.9**2 / 2, 0.5],
        {"token": SAID, "reward": [0.0, 1.0, 0.0, 1.0]},
        value=[0.2, 0.4, 0.6, 0.8],
        other=[-0.5, 0.0, 0.5, 0.0],
    ),
    Case(
        q_return(trainee="q"),
        "+---",
        lambda p: [0.3**2 / 2, 0.5, 0.9**2 / 2, 0.5],
        {"token": SAID, "returns": [0.2, 1.0, 0.4, 1.0]},
        other=[-0.5, 0.0, 0.5, 0.0],
    ),
    Case(  # -log e^Q / (e^Q + 2), as Q of the two other tokens is 0
        q_recorded(coef=1.0, trainee="q"),
        "----",
        lambda p: [math.log(1 + 2 * math.exp(-q)) for q in (0.5, 0.0, -0.5, 0.0)],
        {"token": SAID},
        other=[-0.5, 0.0, 0.5, 0.0],
    ),
    Case(  # both critics are 0: V above is pulled down with weight .3, V below up with .7
        v_expectile(0.7, ("a", "b")),
        "++--",
        lambda p: [0.3 * 0.02, 0.3 * 0.08, 0.7 * 0.18, 0.7 * 0.32],
        {"token": SAID},
        value=[0.2, 0.4, -0.6, -0.8],
    ),
    Case(imitate_steered(2.0, ("a", "b")), "--++", other=[0.5, 0.5, -0.5, -0.5]),
    # dueling.py: the first reply's tokens are the likeliest, so that their advantage is 0 whatever their logit
    Case(
        dueling_policy(0.5, 0.0, 1.0),
        "00--",
        lambda p: [16, 16, (5 - 0.5) ** 2, (5 - 0.75) ** 2],
        {"reward": [5.0] * 4, "token": SAID, "backup": SAID},
    ),
    Case(
        dueling_policy(0.5, 0.5, 1.0),
        "00++",
        lambda p: [(-5 + 0.5 - 1) ** 2, 36.0, (-5 + 0.375 - 0.5) ** 2, 5.75**2],
        {"reward": [-5.0] * 4, "token": SAID, "backup": SAID},
    ),
    Case(
        dueling_value(0.5, 0.0, 1.0),
        "++--",
        None,
        {"reward": [5.0] * 4, "token": SAID, "backup": SAID},
        value=[1.0, 1.0, -1.0, -1.0],
    ),
    Case(no_advantage_lost(0.5, coef=1.0), "00--", lambda p: [0.0, 0.0, 0.5, 0.25], {"token": SAID}),
]
