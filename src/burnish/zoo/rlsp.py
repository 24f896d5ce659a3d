"""On the Emergence of Thinking in LLMs I: Searching for the Right Intuition (arXiv 2502.06773)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score
from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.method import Method, Option, Sampling, chain, method
from burnish.methods import opt, register
from burnish.methods.actor_critic import ppo_credit, ppo_models
from burnish.papers import Paper
from burnish.score.lengths import reply_length

RLSP = Paper("rlsp", "2502.06773", "On the Emergence of Thinking in LLMs I: Searching for the Right Intuition")


@supplies("score:effort")
def effort(price: float, *, score: str = "reward", author: str = "policy") -> Part:
    """scores["effort"] = r - price L / |y|, L = max_new_tokens: short replies pay more (RLSP, arXiv 2502.06773)."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        length = max(1, reply_length(trace, author))
        trace.scores["effort"] = trace.scores[score] - price * step.settings.max_new_tokens / length

    return per_trace(
        write,
        name=f"effort({price:g})",
        reads=frozenset({f"score:{score}", f"tokens:{author}"}),
        writes=frozenset({"score:effort"}),
    )


@register(
    RLSP,
    family="policy",
    summary="PPO with a reward for being right and one, apart from it, for effort.",
    when="The model should search longer before it answers, and long efforts are to be paid a little.",
    trial={"n": 2},
)
def rlsp(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    price: Annotated[float, Option("Coefficient of the exploration reward.", at_least=0)] = 0.25,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    kl: opt.KLPenalty = 0.05,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 1,
    critic_lr: opt.CriticLR = 10.0,
) -> Method:
    """RLSP: reinforcement learning via self-play; its first stage, SFT on demonstrations of reasoning, is `sft`.

    R = [right] - price L_max / |y|:   correctness, and an exploration reward that grows with length and saturates
    r_t = -kl log(pi_old/ref)(y_t), plus R at the last token;  A_t, R_t by GAE(1, lam), A whitened over the batch
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef mean over tokens of max((V - R)^2, (V_clip - R)^2) / 2

    The exploration reward, kl, lam, the temperature and the critic's tenfold rate are those of the authors' code,
    where it is 1000 / |y| for replies of at most 4096 tokens: a quarter of L_max, the longest allowed reply. Left
    out: its -0.5 for replies without an answer, its running normalisation of rewards, its first steps without the
    actor, and the variant 0.8 R + 0.2 (a judge's score of creativity).
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(score.verify(task), effort(price)),
        credit=ppo_credit(kl, lam, score="effort"),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps, coef=value_coef), updates=updates),
        models=ppo_models(critic_lr),
        sampling=Sampling(0.7),
    )
