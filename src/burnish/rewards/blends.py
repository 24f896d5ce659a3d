"""Shapes that make one reward of several: the rewards of --reward by their names, and `correct`.

They replace the weighted sum; the weights of --reward do not matter then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from burnish import papers
from burnish.core.method import Option, Step
from burnish.core.state import State
from burnish.credit.components import normalised
from burnish.rewards import Scorer, register_shape
from burnish.rewards.lengths import Coef
from burnish.rewards.shaped import Scored, component, mixed, of_batch, of_group
from burnish.score.maths.multipliers import Constraint, DualAscent
from burnish.score.shape import Moments
from burnish.tasks.source import Source

Weights = Annotated[dict[str, float], Option("The weight of each reward by name: {'math': 1, 'brief': 0.5}.")]
Names = Annotated[list[str], Option("Names of rewards: ['math', 'brief'].")]


def checked_weights(shape: str, weights: Any) -> dict[str, float]:
    """A mapping from names to numbers; raises ValueError for what is none."""
    numbers = isinstance(weights, Mapping) and all(
        isinstance(x, int | float) and not isinstance(x, bool) for x in weights.values()
    )
    if not numbers or not weights:
        raise ValueError(f"{shape}: {weights!r} does not map names of rewards to numbers; write {{'math': 1}}")
    return {str(name): float(x) for name, x in weights.items()}


def checked_names(shape: str, names: object) -> list[str]:
    """A list of names; raises ValueError for what is none."""
    found = [names] if isinstance(names, str) else names
    if not isinstance(found, Sequence) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"{shape}: {names!r} does not list names of rewards; write ['math', 'brief']")
    return list(found)


@register_shape(
    summary="Each reward normalised in its group, then added with weights.",
    when="Rewards have different scales, and one would drown the others in a plain sum.",
    example="burnish train rloo --reward 'math,own.py:brief' --shape \"normalised_sum({'math': 1, 'brief': 0.3})\"",
    trial={"weights": {"correct": 1.0}},
)
def normalised_sum(task: Source, weights: Weights, coef: Coef = 1.0) -> Scorer:
    """sum_k w_k (r_k - mean_k) / (std_k + 1e-4), mean and sample deviation over the replies to the prompt.

    As the first step of GDPO (arXiv 2601.05242), whose method `gdpo` also normalises the sum over the batch. A reward
    that is the same for all replies to a prompt counts as 0. r' = (1 - coef) r + coef of it.
    """
    known = checked_weights("normalised_sum", weights)

    def change(scored: Scored, step: Step) -> list[float]:
        totals = [0.0] * len(scored.traces)
        for name, weight in known.items():
            normal = normalised([component(trace, name) for trace in scored.traces], 1e-4)
            totals = [total + weight * x for total, x in zip(totals, normal, strict=True)]
        return [mixed(r, total, coef) for r, total in zip(scored.rewards, totals, strict=True)]

    return of_group("normalised_sum", change, coef=coef)


class SeveralMoments:
    """Running moments of several rewards."""

    def __init__(self, names: Sequence[str]) -> None:
        self.name = "running_sum_moments"
        self.moments = {name: Moments(name) for name in names}

    def state_dict(self) -> State:
        return {name: moments.state_dict() for name, moments in self.moments.items()}

    def load_state_dict(self, state: State) -> None:
        for name, moments in self.moments.items():
            moments.load_state_dict(state[name])


@register_shape(
    summary="Each reward normalised by its running mean and deviation, then added with weights.",
    when="As normalised_sum, where differences between prompts should count too.",
    example="burnish train ppo --reward 'math,own.py:brief' --shape \"running_sum({'math': 1, 'brief': 0.3})\"",
    trial={"weights": {"correct": 1.0}},
)
def running_sum(task: Source, weights: Weights, coef: Coef = 1.0) -> Scorer:
    """sum_k w_k (r_k - mean_k) / std_k with running moments of each reward over the run, this step included."""
    known = checked_weights("running_sum", weights)
    memory = SeveralMoments(list(known))

    def change(batch: list[Scored], step: Step) -> list[list[float]]:
        for name, moments in memory.moments.items():
            moments.see([component(trace, name) for scored in batch for trace in scored.traces])
        found = []
        for scored in batch:
            totals = [
                sum(w * (component(t, k) - memory.moments[k].mean) / memory.moments[k].std for k, w in known.items())
                for t in scored.traces
            ]
            found.append([mixed(r, total, coef) for r, total in zip(scored.rewards, totals, strict=True)])
        return found

    return of_batch("running_sum", change, coef=coef, state=(memory,))


@register_shape(
    summary="Replies are ranked by the first reward, ties by the second, and so on; the reward is the rank.",
    when="One reward must never be traded for another: first right, then short.",
    example="burnish train grpo --reward 'math,own.py:brief' --shape \"lexicographic(['math', 'brief'])\"",
    trial={"names": ["correct"]},
)
def lexicographic(
    task: Source,
    names: Names,
    tolerance: Annotated[float, Option("Values in one interval of this width are equal.", at_least=0)] = 0.0,
    coef: Coef = 1.0,
) -> Scorer:
    """The rank of (r_1, r_2, ...) among the different ones of the group, from 0 for the worst to 1 for the best.

    Equal tuples have equal ranks; a group without differences has 0. With a tolerance each reward is rounded down to a
    multiple of it first, so that small differences of an important reward do not decide. A plain blend, no paper.
    """
    order = checked_names("lexicographic", names)

    def rounded(x: float) -> float:
        return x // tolerance * tolerance if tolerance else x

    def change(scored: Scored, step: Step) -> list[float]:
        keys = [tuple(rounded(component(trace, name)) for name in order) for trace in scored.traces]
        places = {key: i for i, key in enumerate(sorted(set(keys)))}
        ranks = [places[key] / max(1, len(places) - 1) for key in keys]
        return [mixed(r, rank, coef) for r, rank in zip(scored.rewards, ranks, strict=True)]

    return of_group("lexicographic", change, coef=coef)


@register_shape(
    papers.QWEN2_5_MATH,
    summary="A reward model's score counts within the right and within the wrong replies, never between them.",
    when="A verifier says what is right, and a reward model which of the right replies is better.",
    example="burnish train grpo --reward 'rm(runs/DIR/model),success*0' --shape rule_first",
    trial={"name": "correct"},
)
def rule_first(
    task: Source,
    name: Annotated[str, Option("The name of the reward model's reward.")] = "rm",
    *,
    rule: Annotated[str, Option("The name of the reward that is 1 or 0 by the rule.")] = "correct",
    alpha: Annotated[float, Option("Scale of the reward model's score.", above=0)] = 0.5,
    coef: Coef = 1.0,
) -> Scorer:
    """r = sigmoid(alpha r_model) + (r_rule - 1), r_rule 1 or 0 (Qwen2.5-Math, arXiv 2409.12122; alpha = 0.5).

    Right replies have rewards in (0, 1), wrong ones in (-1, 0). A large negative score of a right reply is still above
    the best wrong one. r' = (1 - coef) r_before + coef r.
    """

    def change(scored: Scored, step: Step) -> list[float]:
        shaped = [
            1 / (1 + math.exp(-alpha * component(trace, name))) + component(trace, rule) - 1 for trace in scored.traces
        ]
        return [mixed(r, x, coef) for r, x in zip(scored.rewards, shaped, strict=True)]

    return of_group("rule_first", change, coef=coef)


class RunningMeans:
    """Exponential means of several rewards."""

    def __init__(self, decay: float) -> None:
        self.name, self.decay = "worst_reward_means", decay
        self.means: dict[str, float] = {}

    def heard(self, found: Mapping[str, float]) -> None:
        for name, mean in found.items():
            self.means[name] = self.decay * self.means.get(name, mean) + (1 - self.decay) * mean

    def state_dict(self) -> State:
        return {"means": dict(self.means)}

    def load_state_dict(self, state: State) -> None:
        self.means = {name: float(x) for name, x in state["means"].items()}


@register_shape(
    summary="The reward that is lowest on average is the one that counts.",
    when="Several groups of users, or several aims on one scale, and the worst off should be served.",
    example="burnish train grpo --reward 'own.py:young,own.py:old' --shape \"worst_reward(['young', 'old'])\"",
    trial={"names": ["correct"]},
)
def worst_reward(
    task: Source,
    names: Names,
    decay: Annotated[float, Option("How much of its past a mean keeps.", at_least=0, below=1)] = 0.9,
    coef: Coef = 1.0,
) -> Scorer:
    """r_k with k = argmin of the running mean rewards, this step included; the first of equals.

    The choice of the worst group of MaxMin-RLHF (arXiv 2402.08925) for rewards of one scale: normalise them first if
    they have different ones. The metric chosen/NAME is the share of steps in which a reward was the lowest.
    """
    order, memory = checked_names("worst_reward", names), RunningMeans(decay)

    def change(batch: list[Scored], step: Step) -> list[list[float]]:
        traces = [trace for scored in batch for trace in scored.traces]
        memory.heard({k: sum(component(trace, k) for trace in traces) / max(1, len(traces)) for k in order})
        worst = min(order, key=lambda k: memory.means[k])
        for name in order:
            step.notes.add(f"chosen/{name}", float(name == worst))
        return [[mixed(t.scores["reward"], component(t, worst), coef) for t in scored.traces] for scored in batch]

    return of_batch("worst_reward", change, coef=coef, state=(memory,))


@register_shape(
    summary="The reward counts only where every judge passes.",
    when="Some properties are conditions, not aims: format, safety, no forbidden words.",
    example="burnish train grpo --reward 'rm(runs/DIR/model),own.py:safe*0' --shape \"gated(['safe'])\"",
    trial={"judges": ["correct"]},
)
def gated(
    task: Source,
    judges: Annotated[list[str], Option("Names of rewards that are above `above` where they pass; [] for none.")],
    above: Annotated[float, Option("What a judge must exceed.")] = 0.5,
    floor: Annotated[float, Option("The reward of a reply that violates.")] = 0.0,
) -> Scorer:
    """r where all judges say more than `above`, else floor: the constraint mask of CGPO (arXiv 2409.20370).

    An AND of all judges. CGPO's calibrated reward and optimisers are the methods cgpo_crpg, cgpo_codpo, cgpo_crraft.
    """
    names = checked_names("gated", judges)

    def change(scored: Scored, step: Step) -> list[float]:
        passed = [all(component(trace, name) > above for name in names) for trace in scored.traces]
        step.notes.add("satisfied", sum(passed), len(passed))
        return [r if ok else floor for r, ok in zip(scored.rewards, passed, strict=True)]

    return of_group(f"gated({', '.join(names)})", change, coef=float(bool(names)))


@register_shape(
    summary="Constraints on mean rewards, held by Lagrange multipliers that learn.",
    when="One reward is to be maximised while others stay above, below or at a value.",
    example="burnish train grpo --reward 'math,own.py:brief*0' --shape \"lagrangian(at_least={'brief': 0.8})\"",
    trial={"at_least": {"correct": 0.5}},
)
def lagrangian(
    task: Source,
    *,
    at_least: Annotated[dict[str, float] | None, Option("Thresholds that mean rewards must reach.")] = None,
    at_most: Annotated[dict[str, float] | None, Option("Thresholds that mean rewards must not exceed.")] = None,
    equal: Annotated[dict[str, float] | None, Option("Values that mean rewards must have.")] = None,
    lr: Annotated[float, Option("Step size of dual ascent.", at_least=0)] = 0.1,
    most: Annotated[float, Option("The largest multiplier.", above=0)] = 10.0,
    start: Annotated[float, Option("The multipliers at the start.", at_least=0)] = 0.0,
) -> Scorer:
    """r' = (r + sum_i lambda_i s_i (r_i - theta_i)) / (1 + sum_i |lambda_i|), s_i = 1 for at_least and equal, else -1.

        lambda_i <- clip(lambda_i - lr s_i (mean r_i - theta_i), 0, most);   equal: in [-most, most]

    The multipliers of a step were learned from the steps before it. Lagrangian relaxation with projected dual ascent;
    the division keeps the scale, as in Safe RLHF (arXiv 2310.12773). For any method; constrained RLHF with squashed
    multipliers and a value head per reward is the method `constrained_rlhf`. lr 0 and start 0: unchanged.
    """
    kinds: list[tuple[object, float, bool]] = [(at_least, 1.0, False), (at_most, -1.0, False), (equal, 1.0, True)]
    constraints: dict[str, Constraint] = {}
    for given, sign, equality in kinds:
        for name, theta in checked_weights("lagrangian", given).items() if given else ():
            if name in constraints:
                raise ValueError(f"lagrangian: {name!r} has two constraints; give one, or use `equal`")
            constraints[name] = Constraint(theta, sign, equality)
    if not constraints:
        raise ValueError("lagrangian: no constraint is given; write at_least={'brief': 0.8}, at_most=... or equal=...")
    dual = DualAscent(constraints, lr, most, start)

    def change(batch: list[Scored], step: Step) -> list[list[float]]:
        weights = dict(dual.multipliers)
        scale = 1 + sum(abs(w) for w in weights.values())
        sums, n = dict.fromkeys(constraints, 0.0), 0
        found = []
        for scored in batch:
            rewards = []
            for trace in scored.traces:
                slacks = {name: one.slack(component(trace, name)) for name, one in constraints.items()}
                rewards.append((trace.scores["reward"] + sum(weights[k] * slacks[k] for k in slacks)) / scale)
                sums, n = {k: sums[k] + slacks[k] for k in sums}, n + 1
            found.append(rewards)
        for name, weight in weights.items():
            step.notes.add(f"multiplier/{name}", weight)
        if n:
            dual.heard({name: total / n for name, total in sums.items()})
        return found

    return of_batch("lagrangian", change, coef=max(lr, start), state=(dual,))
