"""Advantages of constrained methods: CGPO's masked calibrated reward, constrained RLHF's mixture of advantages."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.core.parts import Part, supplies
from burnish.core.scorer import named_reward
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.baselines import spread
from burnish.credit.gae import advantages_and_returns
from burnish.score.maths.multipliers import SquashedMultipliers


def closeness(log_ratio: float, most: float) -> float:
    """max(1 - log_ratio / most, 0): 1 at the reference, 0 at the limit; more than 1 for a reply less likely than there.

    CGPO's soft KL factor (arXiv 2409.20370, Eq. 11), which the paper does not cap above.
    """
    return max(1 - log_ratio / most, 0.0)


@supplies("stream:adv")
def constrained_advantage(most: float, *, author: str = "policy") -> Part:
    """A = w - mean w over the batch, w = [satisfied] Rc max(1 - log(pi/ref)(y) / most, 0) (CRPG, Eq. 11 and 12).

    Replies of other authors (the baseline) have no advantage and are not in the mean.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        mine: list[tuple[Trace, float]] = []
        for trace in (trace for group in groups for trace in group.traces):
            if author not in trace.authors():
                spread(trace, float("nan"))
                continue
            weight = trace.scores["satisfied"] * trace.scores["calibrated"]
            mine.append((trace, weight * closeness(trace.scores["log_ratio"], most)))
        mean = sum(weight for _, weight in mine) / max(1, len(mine))
        for trace, weight in mine:
            spread(trace, weight - mean)
        step.notes.add("baseline", mean)
        return groups

    return Part(
        name=f"constrained_advantage({most:g})",
        call=call,
        reads=frozenset({"score:satisfied", "score:calibrated", "score:log_ratio"}),
        writes=frozenset({"stream:adv"}),
    )


@supplies("stream:adv")
def calibrated_weight() -> Part:
    """A = Rc: every reply weighs by its calibrated reward (CRRAFT, Eq. 18)."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for trace in (trace for group in groups for trace in group.traces):
            spread(trace, trace.scores["calibrated"])
        return groups

    return Part(
        name="calibrated_weight",
        call=call,
        reads=frozenset({"score:calibrated"}),
        writes=frozenset({"stream:adv"}),
    )


def standardised(values: list[Tensor]) -> list[Tensor]:
    """(x - mean) / (std + 1e-8) over all values together."""
    flat = torch.cat(values)
    return [(x - flat.mean()) / (flat.std(unbiased=False) + 1e-8) for x in values]


@supplies("stream:adv", "stream:returns")
def mixed_advantages(multipliers: SquashedMultipliers, *, gamma: float = 1.0, lam: float = 0.95) -> Part:
    """A = (N - sum_i mu_i) A_KL + sum_i mu_i A_i, every A by GAE from its own value head and standardised before.

        reward i: r_i at the last token, head i;   KL: r_t = -(log pi_old - log ref)(t), head N

    Constrained RLHF (arXiv 2310.04373). Stream "value" is [T, N + 1] and so is "returns". The multipliers move after
    they are used, by the mean of each reward over the batch.
    """
    names = list(multipliers.thresholds)

    def streams_of(trace: Trace, mask: Tensor) -> Tensor:
        """[t, N + 1]: the token rewards of each head."""
        rewards = torch.zeros(int(mask.sum()), len(names) + 1)
        rewards[-1, :-1] = torch.tensor([named_reward(trace, name) for name in names])
        rewards[:, -1] = trace.streams["ref"][mask] - trace.streams["old"][mask]
        return rewards

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces if bool(trace.by("policy").any())]
        masks = [trace.by("policy") for trace in traces]
        if not traces:
            return groups
        found = []
        for trace, mask in zip(traces, masks, strict=True):
            rewards, values = streams_of(trace, mask), trace.streams["value"][mask]
            heads = [advantages_and_returns(r, v, gamma, lam) for r, v in zip(rewards.T, values.T, strict=True)]
            trace.streams["returns"] = torch.full((len(trace), len(heads)), float("nan"))
            trace.streams["returns"][mask] = torch.stack([returns for _, returns in heads], dim=1)
            found.append([adv for adv, _ in heads])
            step.notes.add("kl", -float(rewards[:, -1].sum()), int(mask.sum()))
        by_head = [standardised([heads[k] for heads in found]) for k in range(len(names) + 1)]
        weights = [multipliers.value(name) for name in names]
        weights.append(len(names) - sum(weights))
        for i, (trace, mask) in enumerate(zip(traces, masks, strict=True)):
            trace.streams["adv"] = torch.full((len(trace),), float("nan"))
            trace.streams["adv"][mask] = torch.stack([w * x[i] for w, x in zip(weights, by_head, strict=True)]).sum(0)
        _learn_multipliers(multipliers, traces, step)
        return groups

    return Part(
        name=f"mixed_advantages({', '.join(names)})",
        call=call,
        reads=frozenset({"score:reward", "tokens:policy", "stream:old", "stream:ref", "stream:value"}),
        writes=frozenset({"stream:adv", "stream:returns"}),
        state=(multipliers,),
    )


def _learn_multipliers(multipliers: SquashedMultipliers, traces: list[Trace], step: Step) -> None:
    for name in multipliers.thresholds:
        step.notes.add(f"multiplier/{name}", multipliers.value(name))
    names = multipliers.thresholds
    multipliers.heard({name: sum(named_reward(t, name) for t in traces) / len(traces) for name in names})
