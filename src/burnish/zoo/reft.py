"""ReFT: Reasoning with Reinforced Fine-Tuning (arXiv 2401.08967)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score
from burnish.core.schedules import after, before
from burnish.method import Method, Option, Phase, roles, trained
from burnish.methods import opt, register
from burnish.methods.actor_critic import ppo_credit
from burnish.papers import Paper

REFT = Paper("reft", "2401.08967", "ReFT: Reasoning with Reinforced Fine-Tuning")


@register(
    REFT,
    family="hybrid",
    summary="A warm-up on demonstrations, then PPO on the same questions.",
    when="You have solutions and a verifier, and the model cannot solve enough to start RL at once.",
    trial={"n": 4, "warmup": 1, "updates": 1},
)
def reft(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    warmup: Annotated[int, Option("Steps of the warm-up.", at_least=1)] = 100,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 5.0,
    kl: opt.KLPenalty = 0.05,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 2,
    critic_lr: opt.CriticLR = 1.0,
) -> Method:
    """Reinforced fine-tuning.

    Warm-up: L = mean over demonstrated tokens of -log pi
    Then r_t = -kl log(pi_old/ref)(y_t), plus the score at the last token, ref the policy at the end of the warm-up
    A_t, R_t by GAE(gamma, lam), A whitened over the batch
    L = mean over replies of mean over tokens of -min(rho A, clip(rho) A)
      + value_coef max((V - R)^2, (V_clip - R)^2) / 2

    The reference learns the same demonstrations beside the policy, so that it is the policy of the warm-up's end.
    PPO begins in the step that ends the warm-up. Departures: scores are the task's own, where the paper gives 1 for
    a right answer, 0.1 for a wrong one that can be read and 0 for none; the critic is a model of its own, where the
    paper puts a head on the policy. The paper's warm-up is 2 epochs; kl = 0.05 is its value for solutions in words,
    0.01 for programs.
    """
    imitation = Phase(
        name="warmup",
        times=before(warmup),
        draw=draw.demos(task),
        rollout=rollout.given("demo"),
        learn=learn.Learn(learn.imitate(on="demo"), learn.imitate(trainee="ref", on="demo", name="sft_ref")),
    )
    main = Phase(
        times=after(warmup - 1),
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=ppo_credit(kl, lam, gamma=gamma),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.seq_mean),
            learn.value_clip(value_eps, coef=value_coef, norm=learn.seq_mean),
            updates=updates,
        ),
    )
    return Method(models=roles(ref=trained(), critic=trained(outputs=1, lr=critic_lr)), phases=(imitation, main))
