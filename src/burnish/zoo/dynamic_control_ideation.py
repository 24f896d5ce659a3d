"""Learning to Generate Research Idea with Dynamic Control (arXiv 2412.14626).

Replies under control words that say how much of each quality is wanted: "novelty +1, feasibility -1".

The reward of a reply under control words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from burnish import draw, learn, rollout, score
from burnish.core import randomness
from burnish.core.parts import Part, Rollout, per_trace, supplies
from burnish.core.scorer import named_reward
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.method import Method, Option, chain, method
from burnish.methods import opt, register
from burnish.methods.actor_critic import ppo_credit, ppo_models
from burnish.methods.compositions import names_in
from burnish.papers import Paper
from burnish.rollout.conditioned import conditioned

DYNAMIC_CONTROL_IDEATION = Paper(
    "dynamic-control-ideation", "2412.14626", "Learning to Generate Research Idea with Dynamic Control"
)


STEER = "steer"  # note: name -> level

NOTES = {"steer": "the level of each dimension under which it was asked for"}


def control_words(levels: dict[str, float]) -> str:
    """ "novelty +1, feasibility -0.5"; a level of 0 is not mentioned, so all 0 are no words at all."""
    return ", ".join(f"{name} {level:+g}" for name, level in levels.items() if level)


def steered(rollout: Rollout, names: Sequence[str], levels: Sequence[float]) -> Rollout:
    """The rollout of each task under control words with a random level for each name, the same for the whole group.

    The levels are noted on the traces; the groups keep the tasks as they were drawn. Levels [0] are the rollout itself.
    """

    def drawn(task: Task, step: Step) -> dict[str, float]:
        dice = randomness.rng(step.clock.seed, "steered", step.clock.step, step.clock.tick, task.key)
        return {name: dice.choice(list(levels)) for name in names}

    def call(tasks: list[Task], step: Step) -> list[Group]:
        wanted = [drawn(task, step) for task in tasks]
        asked = [conditioned(task, control_words(own)) for task, own in zip(tasks, wanted, strict=True)]
        groups = [replace(g, task=task) for g, task in zip(rollout.call(asked, step), tasks, strict=True)]
        for group, own in zip(groups, wanted, strict=True):
            for trace in group.traces:
                trace.note[STEER] = own
        return groups

    name = f"{rollout.name} steered by {', '.join(names)}"
    return replace(rollout, name=name, call=call, asks=None, writes=rollout.writes | {"tag:steered"})


def steered_sum(rewards: Mapping[str, float], levels: Mapping[str, float]) -> float:
    """sum_d level_d r_d / sum_d |level_d|; the mean of the rewards where all levels are 0."""
    scale = sum(abs(levels[name]) for name in rewards)
    if not scale:
        return sum(rewards.values()) / max(1, len(rewards))
    return sum(levels[name] * value for name, value in rewards.items()) / scale


@supplies("score:steered")
def steered_reward(names: Sequence[str]) -> Part:
    """scores["steered"] = the rewards weighed by the levels of the control words (`steered`)."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        found = {name: named_reward(trace, name) for name in names}
        trace.scores["steered"] = steered_sum(found, trace.note["steer"])

    return per_trace(
        write,
        name=f"steered_reward({', '.join(names)})",
        reads=frozenset({"score:reward", "tag:steered"}),
        writes=frozenset({"score:steered"}),
    )


@register(
    DYNAMIC_CONTROL_IDEATION,
    family="policy",
    summary="PPO on several rewards under control words, so that one model can be steered between them.",
    when="Qualities pull apart (novelty, feasibility, effectiveness) and their balance is to be chosen at inference.",
    example="burnish train dynamic_control --reward 'my.py:novelty,my.py:feasibility' --rewards novelty,feasibility",
    trial={"n": 2, "updates": 1, "rewards": "correct"},
)
def dynamic_control(
    task: draw.Source,
    *,
    rewards: Annotated[str, Option("Names of the rewards that are controlled, with commas: novelty,feasibility.")],
    levels: Annotated[str, Option("Levels of a control word, with commas; 0 is not mentioned.")] = "-1,0,1",
    n: opt.Replies = 4,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    kl: opt.KLPenalty = 0.05,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    critic_lr: opt.CriticLR = 1.0,
) -> Method:
    """PPO with one controller per reward. RECONSTRUCTED: the paper's abstract was read, not its equations.

    e_d drawn from the levels for each prompt and each reward d; the prompt begins with "novelty +1, feasibility -1"
    R = sum_d e_d r_d / sum_d |e_d|, the mean of the rewards where all e_d are 0; then `ppo` with R as the score

    The paper trains three reward models on review scores, steers by low-rank modules inside the model scaled by e_d,
    and predicts e_d for the next sentence with a small recurrent decoder. Here control is by words before the prompt,
    once for a reply; the modules and the decoder are left out. Levels of both signs are trained, so both can be asked
    for. levels 0 is PPO on the mean of the rewards, its prompts unchanged. At inference put the words before a prompt.
    """
    names = names_in(rewards)
    if not names:
        raise ValueError("rewards is empty; name the rewards that are controlled: novelty,feasibility")
    try:
        known = [float(level) for level in levels.split(",")]
    except ValueError:
        raise ValueError(f"levels is {levels!r}; write numbers with commas: -1,0,1") from None
    return method(
        draw=draw.prompts(task),
        rollout=steered(rollout.sample(n), names, known),
        score=chain(score.verify(task), steered_reward(names)),
        credit=ppo_credit(kl, lam, score="steered"),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps, coef=value_coef), updates=updates),
        models=ppo_models(critic_lr),
    )
