"""Methods that set a prompt's right replies against its wrong ones, with no advantage between."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from torch import Tensor

from burnish.cast.roles import stage
from burnish.credit.members import member
from burnish.credit.streams import behaviour, old
from burnish.credit.verdicts import pass_rate, right
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.maths.right_and_wrong import odds_root, share_wrong
from burnish.learn.norms import constant
from burnish.learn.terms.right_and_wrong import Score, discriminate, hold, mean_logp, mean_ratio, negative_aware
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.parts import chain
from burnish.rollout.sample import sample
from burnish.score.verify import verify
from burnish.select.filters import mixed
from burnish.tasks.source import Source

_T = TypeVar("_T")

WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {"dr_grpo": share_wrong, "grpo": odds_root}
# score -> how it is taken, the paper's tau for it, the streams that it reads
SCORES: dict[str, tuple[Score, float, tuple[str, ...]]] = {
    "logp": (mean_logp, 10.0, ()),
    "ratio": (mean_ratio, 1.0, ("old",)),
}  # with the paper's tau, and what it reads
_DISCO = "DisCO: Reinforcing Large Reasoning Models with Discriminative Constrained Optimization"


def _choice(name: str, value: str, table: dict[str, _T]) -> _T:
    if value not in table:
        raise ValueError(f"{name} is {value!r}; choose one of {', '.join(table)}")
    return table[value]


@register(
    family="policy",
    catalogue=("nft",),
    title="Bridging Supervised Learning and Reinforcement Learning in Math Reasoning",
    arxiv="2505.18116",
    summary="Supervised learning from right replies and, through an implicit negative policy, from wrong ones.",
    when="You want to stay with supervised learning and still learn from wrong replies.",
    trial={"n": 4},
)
def nft(
    task: Source, *, n: int = 8, eps: float = 1.0, weight: str = "dr_grpo", negative: float = 1.0, minibatches: int = 4, temperature: float = 1.0,
) -> Method:  # fmt: skip
    """Negative-aware fine-tuning.

    R = pi/pi_old at the token;  q = share of a prompt's replies that are right, in [0.02, 0.98];  prompts with 0 < q < 1 alone
    right:  -omega log R;   wrong:  -omega log max_v((1 - q R)/(1 - q), eps),  the larger's value with the first's gradient
    L = sum over tokens / (replies x longest reply);   omega = 1 - q (dr_grpo) or sqrt((1 - q)/q) (grpo)

    On-policy its gradient is that of Dr. GRPO, or of GRPO, whence the weights' names. eps = 1 is the released code's. Departures:
    the code divides the sum by 1000, a constant as ours is; it counts replies that were cut off as wrong, where here the
    verifier decides. The paper samples 16 replies to 512 prompts and makes 16 updates of them.
    n: replies sampled for each prompt. eps: the floor under a wrong token's likelihood. weight: dr_grpo or grpo.
    negative: weight of wrong replies; 0 leaves rejection fine-tuning. minibatches: updates made of each batch.
    """
    weigh = _choice("weight", weight, WEIGHTS)
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        select=mixed(),
        credit=chain(right(), pass_rate(0.02, 0.98), behaviour(), member("nft", "policy", tag="mixed")),
        learn=Learn(
            negative_aware(eps, weigh, negative, norm=constant()),
            minibatches=minibatches, temperature=temperature,
        ),
        cast=stage(),
    )  # fmt: skip


@register(
    family="policy",
    catalogue=("disco",),
    title=_DISCO,
    arxiv="2505.12366",
    summary="Right replies are scored above the wrong ones that score best, near the old policy.",
    when="Wrong answers are rare or common to an extreme, where GRPO weighs prompts by difficulty.",
    trial={"n": 4},
)
def disco(
    task: Source, *, n: int = 8, score: str = "logp", tau: float | None = None, beta: float = 1000.0, delta: float = 1e-4, minibatches: int = 4,
    temperature: float = 0.6,
) -> Method:  # fmt: skip
    """Discriminative constrained optimisation.

    s(y) = mean log pi of its tokens (logp), or mean ratio pi/pi_old of its tokens (ratio)
    L = mean over prompts of [ mean over right of tau log mean over wrong of exp((s_wrong - s_right)/tau) + sg[beta max(KL - delta, 0)] KL ]

    KL = mean over tokens of log pi_old - log pi: the constraint KL(pi_old || pi) <= delta as a squared hinge, with the released
    code's factor (beta/2). A prompt with only right or only wrong replies adds 0 and stays in the mean. No clip, no reference.
    pi_old is computed again by the trainer, since delta is small. The constraint is held on each prompt's group; the released
    code takes the KL over each micro-batch, whatever prompts that holds, which micro-batching would change here. (Its ratio
    form of disco calls that of disco_b.)
    n: replies sampled for each prompt. score: logp or ratio. tau: how much the best wrong replies stand out; by default 10 for
    logp and 1 for ratio, as in the paper. beta: weight of the constraint. delta: the KL that is free.
    minibatches: updates made of each batch; 4 is the paper's.
    """
    return _disco(task, n, score, tau, beta, delta, minibatches, temperature)


@register(
    family="policy",
    catalogue=("disco",),
    title=_DISCO,
    arxiv="2505.12366",
    summary="DisCO's basic form: right replies are scored above wrong ones on average.",
    when="As `disco`, in its simplest form.",
    trial={"n": 4},
)
def disco_b(
    task: Source, *, n: int = 8, score: str = "logp", beta: float = 1000.0, delta: float = 1e-4, minibatches: int = 4, temperature: float = 0.6,
) -> Method:  # fmt: skip
    """DisCO-b: the difference of mean scores, what `disco` becomes as tau grows.

    L = mean over prompts of [ mean s over wrong - mean s over right + sg[beta max(KL - delta, 0)] KL ]

    The rest is as in `disco`.
    n: replies sampled for each prompt. score: logp or ratio. beta: weight of the constraint. delta: the KL that is free.
    minibatches: updates made of each batch; 4 is the paper's.
    """
    return _disco(task, n, score, math.inf, beta, delta, minibatches, temperature)


def _disco(
    task: Source, n: int, score: str, tau: float | None, beta: float, delta: float, minibatches: int, temperature: float
) -> Method:
    found, usual_tau, reads = _choice("score", score, SCORES)
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=verify(task),
        credit=chain(right(), old(temperature=temperature), member("rank", "policy"), member("hold", "policy")),
        learn=Learn(
            discriminate(found, usual_tau if tau is None else tau, *reads), hold(delta, beta),
            minibatches=minibatches, temperature=temperature,
        ),
        cast=stage(),
    )  # fmt: skip
