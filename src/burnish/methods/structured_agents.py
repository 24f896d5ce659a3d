"""Agents with a structure of their own: intrinsic functions before each action, and a simulated user."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.core.schedules import after, before, every
from burnish.method import Method, Option, Phase, roles
from burnish.methods import opt, papers, register
from burnish.methods.actor_critic import ppo_credit, ppo_models
from burnish.tasks.intrinsic import Intrinsic


@register(
    papers.PANGU_AGENT,
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
    temperature: opt.Temperature = 1.0,
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
    played = rollout.play(n, temperature=temperature)
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


@register(
    papers.USER_SIMULATOR,
    family="agents",
    summary="SFT of a simulated user that observes or speaks, measured by F1 of when and what.",
    when="You have logged dialogues of users with an agent, and want a user for multi-turn training.",
    example="burnish train user_simulator --task user:1 --lr 2e-3 --max-new-tokens 24",
    trial={"task": "user", "measure_every": 1},
)
def user_simulator(
    task: draw.Source,
    *,
    measure_every: Annotated[int, Option("Steps between measurements on held-out tasks.", at_least=1)] = 10,
    updates: opt.Updates = 1,
) -> Method:
    """A user agent for embodied dialogues: from the goal and the history, OBSERVE or SPEAK(act): words.

    L = -(1 / N) sum over the N tokens of what the human did of log pi
    speak_f1 = 2 both / (model speaks + human speaks);  act_f1, where the human speaks: 2 same act / (model speaks +
    human speaks): of greedy replies to held-out tasks, every measure_every steps

    Without the measurements it is SFT. Rows have the goal and history as prompt and `demo` as OBSERVE or SPEAK(act):
    words. The paper's data (TEACh) are not part of this; `user` generates dialogues. Reconstructed from the abstract,
    which names the two decisions and the measures. Left out: zero-shot and few-shot prompts.
    """
    asked = draw.prompts(task, "demo")
    assert asked.heldout is not None
    main = Phase(
        draw=draw.demos(task),
        rollout=rollout.demonstrated(),
        learn=learn.Learn(learn.imitate(on="demo"), updates=updates),
    )
    measure = Phase(
        name="measure",
        times=every(measure_every, measure_every - 1),
        draw=replace(asked, name="measured", call=asked.heldout, heldout=None, ahead=False),
        rollout=rollout.greedy(),
        credit=credit.speaking(),
        learn=learn.Learn(),
    )
    return Method(models=roles(), phases=(main, measure))
