"""Pangu-Agent: A Fine-Tunable Generalist Agent with Structured Reasoning (arXiv 2312.14878)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from burnish import draw, learn, rollout, select
from burnish.core.schedules import after, before
from burnish.method import Method, Option, Phase
from burnish.methods import opt, register
from burnish.methods.actor_critic import ppo_credit, ppo_models
from burnish.papers import Paper
from burnish.tasks.intrinsic import Intrinsic

PANGU_AGENT = Paper(
    "pangu-agent", "2312.14878", "Pangu-Agent: A Fine-Tunable Generalist Agent with Structured Reasoning"
)


@register(
    PANGU_AGENT,
    family="agents",
    summary="Intrinsic functions (think, plan, reflect) before each action; SFT on won episodes, then PPO.",
    when="An agent should reason in steps of its own before it acts, and you can tell which episodes were won.",
    example="burnish train pangu_agent --task guess:1 --n 8 --lr 5e-4 --max-new-tokens 6",
    trial={"task": "guess", "n": 2, "sft_steps": 0, "updates": 1, "functions": "think"},
)
def pangu_agent(
    task: draw.Source,
    *,
    n: opt.Replies = 4,
    functions: Annotated[str, Option("Intrinsic functions in order: think, plan, reflect; with commas.")] = "think",
    sft_steps: Annotated[int, Option("Steps of SFT on won episodes before PPO.", at_least=0)] = 20,
    most: Annotated[int, Option("Won episodes of a task that SFT takes.", at_least=1)] = 4,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    kl: opt.KLPenalty = 0.05,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 2,
    critic_lr: opt.CriticLR = 1.0,
) -> Method:
    """Pangu-Agent: pi(a | s) = pi_ext(a | mu_k o ... o mu_1 (memory)), one model for all functions.

    Each intrinsic function mu_i is asked in a turn of its own; its reply goes to the memory (the conversation), not to
    the environment. Then the extrinsic function acts.
      first  episodes of the policy that were won are imitated: rejection sampling
      then   PPO over all tokens that the policy wrote, intrinsic replies included; the reward at the last token

    functions = "" is the direct policy. A limit of turns (--turns) counts intrinsic replies too. The paper trains LoRA
    adapters: --lora 16. Left out: functions of communication and tools (--tools has those), and adapters of its own for
    each function. Constants of the paper could not be read; PPO's are ours.
    """
    source = Intrinsic(task, [name.strip() for name in functions.split(",") if name.strip()])
    draws = replace(draw.prompts(source, "env"), source=source)  # held-out episodes think too
    played = rollout.play(n)
    first = Phase(
        name="sft",
        times=before(sft_steps),
        draw=draws,
        rollout=played,
        select=select.keep_verified(most),
        learn=learn.Learn(learn.imitate(), logp_temperature=1.0),
    )
    main = Phase(
        times=after(sft_steps),
        draw=draws,
        rollout=played,
        credit=ppo_credit(kl, lam, gamma=gamma),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps, coef=value_coef), updates=updates),
    )
    return Method(models=ppo_models(critic_lr), phases=(first, main))
