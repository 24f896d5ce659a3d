"""From Novice to Expert: LLM Agent Policy Optimization via Step-wise Reinforcement Learning (arXiv 2411.03817).

The states of an expert's trajectory, and in each the expert's action and one of the policy's own.

Pairs of an expert's action and the policy's own in the same state.

Rewards from a discriminator of an expert's actions and the policy's own (inverse reinforcement learning).
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn
from burnish.core.parts import Part, Rollout, names, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.method import Method, Option, Phase, chain, method, roles, snapshot, trained
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.demonstrated import cut_pieces, demonstration
from burnish.rollout.sample import continue_from
from burnish.select.turn_rows import own_span

STEPAGENT = Paper(
    "stepagent",
    "2411.03817",
    "From Novice to Expert: LLM Agent Policy Optimization via Step-wise Reinforcement Learning",
)

METRICS = (
    (
        "taken_for_expert",
        "What was kept",
        "mean chance that the discriminator gives the policy's actions of being the expert's",
        "up",
    ),
)


STEP, EXPERT, OWN = "step", "expert", "own"

NOTES = {"step": "the number of the expert's reply that it stands beside"}


@supplies("tag:step", "tag:expert", "tag:own")
def expert_steps(*, who: str = "policy", expert: str = "demo") -> Rollout:
    """Two traces for each reply of a demonstrated conversation: the expert's reply and a sampled one, in its state.

    The state is what the expert saw: its own earlier replies (author `expert`) and what was said between them. Both
    traces have the tag "step", one "expert" and the other "own"; note["step"] is the number of the reply. The metric
    "matched" is the share of states in which both are the same.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model, settings = step.models[who], step.settings
        limit = min(model.context, settings.max_length or model.context)
        found: list[tuple[Task, list[Trace]]] = []
        for task in tasks:
            shown: list[Trace] = []
            for pieces in demonstration(task, model.chat, settings.train_on):
                shown += _expert_traces([(p.tokens, p.weight) for p in cut_pieces(pieces, limit)], expert, len(shown))
            found.append((task, shown))
        starts = [(task, trace.turns[:-1], k) for task, shown in found for k, trace in enumerate(shown)]
        own = iter(continue_from(starts, who, step, tag=OWN))
        return [Group(task, [t for old in shown for t in _pair(old, next(own), step)]) for task, shown in found]

    return Rollout(
        name="expert_steps",
        call=call,
        reads=frozenset({"task:prompt", "given:demo", f"model:{who}.generate"}),
        writes=names("tokens", ("task", "env", expert, who)) | names("mu", who) | names("tag", (STEP, EXPERT, OWN)),
    )


def _expert_traces(pieces: list[tuple[Tensor, float]], expert: str, first: int) -> list[Trace]:
    """One trace for each reply of the expert, which is its last turn."""
    turns: list[Turn] = []
    traces: list[Trace] = []
    for tokens, weight in pieces:
        author = expert if weight else "env" if turns else "task"
        turns.append(Turn(tokens, author, parent=turns[-1] if turns else None))
        if weight:
            note = {"step": first + len(traces)}
            traces.append(Trace(tuple(turns), tags=frozenset({STEP, EXPERT}), note=note))
    return traces


def _pair(shown: Trace, own: Trace, step: Step) -> tuple[Trace, Trace]:
    number = shown.note["step"]
    step.notes.add("matched", torch.equal(shown.turns[-1].tokens, own.turns[-1].tokens))
    shown.index, own.index = 2 * number, 2 * number + 1
    own.tags, own.note = own.tags | {STEP, OWN}, {**own.note, "step": number}
    return shown, own


@supplies("pairs")
def expert_over_own() -> Part:
    """(expert, own) for each state of a trajectory. A pair of equal actions has no gradient."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            places: dict[int, dict[str, int]] = {}
            for i, trace in enumerate(group.traces):
                places.setdefault(trace.note["step"], {})["expert" if "expert" in trace.tags else "own"] = i
            group.pairs = [(both["expert"], both["own"]) for both in places.values()]
        return groups

    return Part(
        name="expert_over_own",
        call=call,
        reads=frozenset({"tag:expert", "tag:own"}),
        writes=frozenset({"pairs"}),
    )


@supplies("stream:label")
def expert_labels() -> Part:
    """Stream "label": 1 on the last turn of traces with the tag "expert", 0 on that of the others."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams["label"] = torch.full((len(trace),), float("nan"))
        trace.streams["label"][slice(*own_span(trace))] = float("expert" in trace.tags)

    return per_trace(write, name="expert_labels", reads=frozenset({"tag:expert"}), writes=frozenset({"stream:label"}))


@supplies("stream:reward")
def discriminator_rewards(stream: str = "verdict") -> Part:
    """Stream "reward" of the policy's actions: log D - log(1 - D) at the last token, which is the logit of D.

    The logit is the stream's value at the last token. Traces without the tag "own" have no reward.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams["reward"] = torch.full((len(trace),), float("nan"))
        if "own" in trace.tags:
            start, end = own_span(trace)
            trace.streams["reward"][start:end] = 0.0
            trace.streams["reward"][end - 1] = trace.streams[stream][end - 1]
            step.notes.add("taken_for_expert", float(trace.streams[stream][end - 1].sigmoid()))

    return per_trace(
        write,
        name="discriminator_rewards",
        reads=frozenset({"tag:own", f"stream:{stream}"}),
        writes=frozenset({"stream:reward"}),
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
        rollout=expert_steps(),
        select=expert_over_own(),
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
) -> Method:
    """StepAgent with inverse reinforcement learning.

    D = sigmoid(f(s, a)), read after the action;  mean over actions of -log D(s, a_E) and -log(1 - D(s, a))
    r = log D - log(1 - D) at the last token of the policy's action a in the expert's state s;  GAE within a; PPO

    In each step the discriminator is trained first, then the policy, on actions of their own. A discriminator that
    always says 1/2 pays 0. Reconstructed from the abstract and reviews: the form of the reward (the other one is
    -log(1 - D)), PPO's constants, rates and updates are ours. The states are the expert's, so that no simulator is
    needed, and an action is credited with its own reward alone.
    """
    steps, drawn = expert_steps(), draw.demos(task)
    judge = Phase(
        name="discriminator",
        draw=drawn,
        rollout=steps,
        credit=chain(expert_labels(), credit.last_turn("discriminator", "step", "last")),
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
            discriminator_rewards(),
            credit.streams("critic", value="value"),
            credit.gae(gamma=gamma, lam=lam),
            credit.whiten(),
        ),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps), updates=updates),
    )
    models = roles(critic=trained(outputs=1, lr=critic_lr), discriminator=trained(outputs=1, lr=discriminator_lr))
    return Method(models=models, phases=(judge, main))
