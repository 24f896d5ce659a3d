"""Training LLMs to Better Self-Debug and Explain Code (arXiv 2405.18649)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.schedules import after, before
from burnish.method import Method, Option, Phase, chain
from burnish.methods import opt, papers, register
from burnish.methods.actor_critic import anchors, ppo_models
from burnish.tasks.debugging import Debugging


@register(
    papers.SELF_DEBUG,
    family="agents",
    summary="SFT on own corrections that pass, then PPO with rewards for the explanation and the code apart.",
    when="A model writes programs that fail, and should explain and correct them from what running them says.",
    example="burnish train self_debug --task code:1",
    trial={"task": "code", "n": 2, "sft_steps": 1, "updates": 1},
)
def self_debug(
    task: draw.Source,
    *,
    n: opt.Replies = 4,
    sft_steps: Annotated[int, Option("Steps of supervised learning on corrections that pass.", at_least=0)] = 20,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    kl: opt.KLPenalty = 0.05,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 2,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """LeDex: a wrong program and the outcome of its tests are given; the reply explains, then corrects.

    SFT: sampled replies and demonstrations whose program passes all tests are imitated
    PPO: R_code = 5 (S_cb + S_ut) - 5 for the tokens of the program, R_ex = (50 S_ex - 35) / 3 for the explanation's
      S_ut: share of tests passed;  S_cb: mean CodeBLEU to refinements that passed;  S_ex: mean cosine to their
      explanations;  GAE within each of the two parts, from its own reward at its last token and -kl log(pi_old/ref)

    A reply without an explanation has PPO's credit with R_code. Programs run in the sandbox. Departures: wrong programs
    are those of the data (`mistake`), not samples of the policy; refinements come from the policy and from the data
    (`demo`), where the paper asks a larger model or the policy; the embedding is a hash of words and character triples,
    not RoBERTa's, and cosines below 0.4 count as 0.4. The paper trains SFT for two epochs (2e-5) and PPO at 2e-6.
    """
    source, memory = Debugging(task), score.Refinements()
    draws, sampled = draw.questions(source), rollout.sample(n, temperature=temperature)
    first = Phase(
        name="sft",
        times=before(sft_steps),
        draw=draws,
        rollout=rollout.join(sampled, rollout.given("demo", author="policy")),
        score=score.verify(source),
        select=chain(select.keep_verified(n + 1), score.keep_refinements(memory)),
        learn=learn.Learn(learn.imitate(), logp_temperature=1.0),
    )
    main = Phase(
        times=after(sft_steps),
        draw=draws,
        rollout=sampled,
        score=score.debugged(source, memory),
        credit=chain(
            anchors(),
            credit.gae_of_parts("explanation", "reward", score.REFINED_AT, kl=kl, gamma=gamma, lam=lam),
            credit.whiten(),
        ),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps, coef=value_coef), updates=updates),
    )
    return Method(models=ppo_models(critic_lr), phases=(first, main))
