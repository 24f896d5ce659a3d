"""Methods by which agents imitate: better replies in the states they reach, an expert's actions, mended mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, Phase, chain, frozen, method, roles, snapshot, trained
from burnish.methods import opt, papers, register
from burnish.select.improved import RULES
from burnish.tasks.attempts import Attempt, Attempts
from burnish.tasks.refined import Refined


@register(
    papers.RISE,
    family="agents",
    summary="Try again until right; in every state reached, imitate the best of many replies, weighed by its reward.",
    when="A model should get better from attempt to attempt, and you have single questions with a verifier.",
    example="burnish train rise --task sort",
    trial={"n": 1, "attempts": 2, "candidates": 2, "updates": 1},
)
def rise(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    attempts: Annotated[int, Option("The most attempts of an episode.", at_least=1)] = 5,
    candidates: Annotated[int, Option("Replies sampled in each state, of which the best is kept.", at_least=1)] = 16,
    tau: Annotated[float, Option("Temperature of the weights.", above=0, unlimited=True)] = 0.4,
    rule: Annotated[str, Option("Which of the best replies are trained on.", choices=tuple(RULES))] = "all",
    expert: Annotated[
        str | None, Option("A stronger model that writes the replies: a name or directory, same tokenizer.")
    ] = None,
    updates: opt.Updates = 1,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Recursive introspection: reward-weighted regression on improved replies in the states that the policy visits.

    Attempts at a question, each after "try again", until one is right; s_k: the conversation before attempt k
    a*_k = the best of `candidates` replies in s_k, by the policy itself or by `expert`;  w_k = exp(r(a*_k) / tau)
    L = -(1 / N) sum over the N tokens of all a*_k of w_k log pi;  the attempts themselves are not trained on

    Weights are not normalised: a reply with r 0 weighs 1, one with r 1 exp(1 / 0.4) = 12.2. tau = inf is SFT on all
    the improved replies. rule: all, better than the attempt before, best so far, or only right ones. Departures: a step
    plays new episodes and makes one pass, where the paper builds a data set in each round; the text between attempts is
    ours. Left out: the majority over attempts in inference, which is a matter of asking.
    """

    def own_score(made: Sequence[Attempt], over: bool) -> float:
        return made[-1].score

    improver = "policy" if expert is None else "expert"
    return method(
        draw=draw.prompts(Attempts(task, attempts, own_score), "env"),
        rollout=rollout.improved(n, candidates, turns=attempts, temperature=temperature, improver=improver),
        score=score.verify(task, author=improver),
        select=select.best_of_states(rule),
        credit=chain(credit.reward_weights(tau), credit.last_turn("sft", "improved")),
        learn=learn.Learn(learn.imitate_weighted(on=learn.CLAIMED), updates=updates, logp_temperature=1.0),
        models=roles() if expert is None else roles(expert=frozen(expert)),
    )


@register(
    papers.STEPAGENT,
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
    papers.STEPAGENT,
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


@register(
    papers.AGENTREFINE,
    family="agents",
    summary="SFT on an agent's conversations in which mistakes are read but not trained on, and their mending is.",
    when="Trajectories contain invalid actions and the environment's complaints, and the model should learn to mend.",
    example="burnish train agentrefine --task my_trajectories.jsonl",
    trial={"refinements": 0, "updates": 1},
)
def agentrefine(
    task: draw.Source,
    *,
    refinements: Annotated[int, Option("Mended mistakes that a conversation must hold.", at_least=0)] = 1,
    updates: opt.Updates = 1,
) -> Method:
    """Refinement tuning.

    L = -(1 / N) sum over turns k of m_k log pi(thought_k, action_k | history), N the tokens with m_k = 1
    m_k = 0 where the reply is no valid action: no "Thought: ... Action: ...", an unknown action, wrong arguments

    Faulty replies and the feedback on them stay in the context. Kept are conversations that end in success and hold at
    least so many refinements, a fault followed by a valid reply; 1 is ours. The columns `actions` and `slots` (or
    `tools`) of a row say what is valid, `success` how it ended. Conversations without faults and refinements = 0 are
    SFT. Left out: the writing of scripts and trajectories by a model that plays game master and player; the data is
    given.
    """
    source = Refined(task)
    return method(
        draw=draw.demos(source),
        rollout=rollout.demonstrated(),
        select=select.refined(refinements),
        credit=credit.claim("sft", "demo", tag="refined"),
        learn=learn.Learn(learn.imitate(on=learn.CLAIMED), updates=updates),
        models=roles(),
    )
