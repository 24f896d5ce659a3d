"""Arbitrary Entropy Policy Optimization: Entropy Is Controllable in Reinforcement Fine-tuning (arXiv 2510.08141).

Samples at a temperature that a meter asks for.

Holding the policy's entropy at a target by what it is rewarded for (AEPO, arXiv 2510.08141).

A meter remembers the entropy of the last update. The rollout samples some replies hotter than the policy where it lies
below the target, cooler where it lies above; credit lets the good ones among them take the place of plain samples.
"""

from __future__ import annotations

import math
from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, Rollout, names, supplies
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.credit.baselines import spread
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.rollout.sample import continue_from

ARBITRARY_ENTROPY_PO = Paper(
    "arbitrary-entropy-po",
    "2510.08141",
    "Arbitrary Entropy Policy Optimization: Entropy Is Controllable in Reinforcement Fine-tuning",
)


class EntropyMeter:
    """-mean log pi over the tokens of the last update; 0 before the first."""

    def __init__(self, target: float, hot: float, cool: float, name: str = "entropy") -> None:
        self.name, self.target, self.hot, self.cool = name, target, hot, cool
        self.entropy = 0.0

    def low(self) -> bool:
        """Whether the policy is less undecided than it should be."""
        return self.entropy <= self.target

    def temperature(self) -> float:
        return self.hot if self.low() else self.cool

    def state_dict(self) -> State:
        return {"entropy": self.entropy}

    def load_state_dict(self, state: State) -> None:
        self.entropy = float(state["entropy"])


@supplies("tag:tempered")
def tempered(n: int, meter: EntropyMeter, *, share: float, who: str = "policy") -> Rollout:
    """n replies, tagged "tempered", to each of the first ceil(share x N) of the N tasks, at the meter's temperature.

    The log-probs recorded with them are those at that temperature.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"the share of tempered tasks is {share}; it must lie between 0 and 1")

    def call(tasks: list[Task], step: Step) -> list[Group]:
        some = tasks[: math.ceil(share * len(tasks))]
        prompts = [Turn(step.models[who].chat.prompt(task), "task") for task in some]
        starts = [(task, (prompt,), i) for task, prompt in zip(some, prompts, strict=True) for i in range(n)]
        temperature = meter.temperature()
        step.notes.add("temperature", temperature)
        traces = continue_from(starts, who, step, tag="tempered", temperature=temperature) if starts else []
        return [Group(task, traces[k * n : (k + 1) * n]) for k, task in enumerate(tasks)]

    return Rollout(
        name=f"tempered({n})",
        call=call,
        reads=frozenset({"task:prompt", f"model:{who}.generate", f"store:{meter.name}"}),
        writes=names("tokens", ("task", who)) | names("mu", who) | names("tag", "tempered"),
        state=(meter,),
    )


@supplies("tag:trained")
def swap_in_tempered(meter: EntropyMeter, *, above: float, most: int, author: str = "policy") -> Part:
    """Tags "trained" what is learned from: plain samples, the first of them replaced by good tempered ones.

    A tempered reply is good where its advantage among the tempered replies to its prompt exceeds `above`. At most
    `most` are taken in, and half as many (rounded down) while entropy lies above the target, in the order of the batch,
    each with advantage 1 and in the place of one plain sample. Then the meter takes the entropy of what is trained.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        plain = [trace for trace in traces if "tempered" not in trace.tags]
        good = [t for t in traces if "tempered" in t.tags and float(t.streams["adv"][0]) > above]
        taken = min(most, len(good)) if meter.low() else min(most, len(good)) // 2
        good = good[: min(taken, len(plain))]
        for trace in good:
            spread(trace, 1.0)
        trained = [*good, *plain[len(good) :]]
        for trace in trained:
            trace.tags |= {"trained"}
        step.notes.add("tempered_share", len(good), max(1, len(trained)))
        _measure(meter, trained, author, step)
        return groups

    return Part(
        name="swap_in_tempered",
        call=call,
        reads=frozenset({"stream:adv", "stream:old", "tag:tempered", f"tokens:{author}"}),
        writes=frozenset({"tag:trained", f"store:{meter.name}"}),
        updates=frozenset({"stream:adv"}),
        state=(meter,),
    )


def _measure(meter: EntropyMeter, traces: list[Trace], author: str, step: Step) -> None:
    tokens = sum(int(trace.by(author).sum()) for trace in traces)
    if tokens:
        meter.entropy = -sum(float(trace.streams["old"][trace.by(author)].sum()) for trace in traces) / tokens
        step.notes.add("sampled_entropy", meter.entropy)


@register(
    ARBITRARY_ENTROPY_PO,
    family="policy",
    summary="Good replies sampled hotter or cooler than the policy hold its entropy at a target.",
    when="Entropy collapses or runs away in your runs, and you want to hold it at a chosen level.",
)
def aepo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 5,
    target: Annotated[float, Option("The entropy to hold; the authors' best run has 0.75.", at_least=0)] = 0.5,
    hot: Annotated[float, Option("Temperature while entropy is too low.", above=0)] = 1.2,
    cool: Annotated[float, Option("Temperature while entropy is too high.", above=0)] = 0.8,
    share: Annotated[float, Option("Share of prompts with tempered replies.", at_least=0, at_most=1)] = 0.25,
    above: Annotated[float, Option("Least advantage of a tempered reply that is learned from.")] = 0.05,
    most: Annotated[int, Option("Most tempered replies in a batch.", at_least=0)] = 60,
    eps: opt.ClipRange = 0.2,
    dual: opt.DualClip = 3.0,
    updates: opt.Updates = 1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """AEPO: GRPO, with part of the batch replaced by good samples of a tempered policy.

    grad J = grad J_GRPO + alpha E_{y ~ pi^T}[ R(y) grad log pi(y) ],   T = hot where H <= target, else cool
    H = -mean log pi of the tokens of the last update (0 at the start)

    As in the authors' trainer: n replies at temperature T to a quarter of the prompts; those whose advantage among
    them exceeds `above` take the place of the batch's first plain samples, min(most, their number) of them (half of
    that, rounded down, where H > target), with advantage 1, in the same loss: mean over tokens of -min(rho A,
    clip(rho) A) with the dual clip, pi_old at temperature 1. So alpha is the share of replaced replies. Plain
    samples: A = (r - mean) / (std + 1e-6) in their group. No KL.
    """
    meter = EntropyMeter(target, hot, cool)
    return method(
        draw=draw.prompts(task),
        rollout=rollout.join(rollout.sample(n), tempered(n, meter, share=share)),
        score=score.scoring(task, reward_model),
        credit=chain(
            credit.group_relative(peers=lambda trace, group: "tempered" in trace.tags),
            credit.old(logp_temperature=1.0),
            swap_in_tempered(meter, above=above, most=most),
            credit.claim("pg", "policy", tag="trained"),
        ),
        learn=learn.Learn(learn.pg_clip(eps, dual=dual, on=learn.CLAIMED), updates=updates, logp_temperature=1.0),
        models=roles(**score.rm_role(reward_model)),
        sampling=None,
    )
