"""From Novice to Expert: LLM Agent Policy Optimization via Step-wise Reinforcement Learning (arXiv 2411.03817)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.method import Method, Option, Phase, chain, method, roles, snapshot, trained
from burnish.methods import opt, register
from burnish.papers import Paper

STEPAGENT = Paper(
    "stepagent",
    "2411.03817",
    "From Novice to Expert: LLM Agent Policy Optimization via Step-wise Reinforcement Learning",
)


@register(
    STEPAGENT,
    family="agents",
    summary="At every state of an expert's trajectory, prefer the expert's action to the policy's own.",
    when="You have trajectories of an expert and no simulator: states are the expert's.",
    trial={"sync": 1},
)
def stepagent(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    sync: opt.Sync = 10,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """StepAgent with implicit rewards: DPO step by step, the policy's own action as the rejected one.

    a_E the expert's action in its state s, a ~ pi(.|s);  lr = log pi(a|s) / pi_ref(a|s) of the whole action
    L = mean over steps of -log sigmoid(beta (lr(a_E) - lr(a)))

    pi_ref is the policy at the start of the cycle, which has `sync` steps. Equal actions have a margin of 0 and no
    gradient; a trajectory of one step is SPIN with fresh samples. Reconstructed from the abstract and reviews: beta
    and sync are ours, and own actions are sampled anew in every step, where the paper samples once in a cycle.
    """
    return method(
        draw=draw.demos(task),
        rollout=rollout.expert_steps(temperature=temperature),
        select=select.expert_over_own(),
        credit=chain(credit.ref(logp_temperature=1.0), credit.last_turn("reply", "step")),
        learn=learn.Learn(learn.dpo(beta, on=learn.CLAIMED), logp_temperature=1.0),
        models=roles(ref=snapshot("policy", sync)),
    )


@register(
    STEPAGENT,
    family="agents",
    summary="A discriminator learns to tell the expert's actions from the policy's; PPO is paid for deceiving it.",
    when="As `stepagent`, where a reward that generalises over states is wanted.",
    trial={"updates": 1, "discriminator_updates": 1},
)
def stepagent_inverse(
    task: draw.Source,
    *,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 1,
    critic_lr: opt.CriticLR = 10.0,
    discriminator_lr: Annotated[float, Option("Multiplies the learning rate for the discriminator.", above=0)] = 1.0,
    discriminator_updates: Annotated[int, Option("Passes of the discriminator over its batch.", at_least=1)] = 8,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """StepAgent with inverse reinforcement learning.

    D = sigmoid(f(s, a)), read after the action;  mean over actions of -log D(s, a_E) and -log(1 - D(s, a))
    r = log D - log(1 - D) at the last token of the policy's action a in the expert's state s;  GAE within a; PPO

    In each step the discriminator is trained first, then the policy, on actions of their own. A discriminator that
    always says 1/2 pays 0. Reconstructed from the abstract and reviews: the form of the reward (the other one is
    -log(1 - D)), PPO's constants, rates and updates are ours. The states are the expert's, so that no simulator is
    needed, and an action is credited with its own reward alone.
    """
    steps, drawn = rollout.expert_steps(temperature=temperature), draw.demos(task)
    judge = Phase(
        name="discriminator",
        draw=drawn,
        rollout=steps,
        credit=chain(credit.expert_labels(), credit.last_turn("discriminator", "step", "last")),
        learn=learn.Learn(
            learn.step_chance("label", trainee="discriminator", name="discriminator"), updates=discriminator_updates
        ),
    )
    main = Phase(
        draw=drawn,
        rollout=steps,
        credit=chain(
            credit.behaviour(),
            credit.streams("discriminator", at="end", score="verdict"),
            credit.discriminator_rewards(),
            credit.streams("critic", value="value"),
            credit.gae(gamma=gamma, lam=lam),
            credit.whiten(),
        ),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps), updates=updates),
    )
    models = roles(critic=trained(outputs=1, lr=critic_lr), discriminator=trained(outputs=1, lr=discriminator_lr))
    return Method(models=models, phases=(judge, main))
