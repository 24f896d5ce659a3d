"""GDPO: Group reward-Decoupled Normalization Policy Optimization for Multi-reward RL Optimization (arXiv
2601.05242).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.baselines import spread
from burnish.credit.components import normalised
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, papers, register
from burnish.score.lengths import reply_length


def decoupled(weights: Mapping[str, float], *, eps: float = 1e-4) -> Part:
    """A_i = norm over the batch of sum_k w_k norm over the group of r_k,i, with norm x = (x - mean) / (std + eps).

    `weights` names the scores and their weights. Normalising first keeps apart replies that a sum of raw scores would
    give one advantage. With one score the batch is not normalised: GRPO's advantage, times its weight.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        totals = [0.0] * len(traces)
        for name, weight in weights.items():
            parts = [normalised([trace.scores[name] for trace in group.traces], eps) for group in groups]
            found = [x for part in parts for x in part]
            totals = [total + weight * x for total, x in zip(totals, found, strict=True)]
            step.notes.add(f"score/{name}", sum(trace.scores[name] for trace in traces), len(traces))
        for trace, advantage in zip(traces, normalised(totals, eps) if len(weights) > 1 else totals, strict=True):
            spread(trace, advantage)
        return groups

    return Part(
        name=f"decoupled({', '.join(weights)})",
        call=call,
        reads=frozenset(f"score:{name}" for name in weights),
        writes=frozenset({"stream:adv"}),
    )


@supplies("score:within")
def within(share: float, *, author: str = "policy") -> Part:
    """scores["within"] = 1 if the reply has at most share x max_new_tokens tokens, else 0."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        limit = share * step.settings.max_new_tokens
        trace.scores["within"] = float(reply_length(trace, author) <= limit)

    return per_trace(
        write,
        name=f"within({share:g})",
        reads=frozenset({f"tokens:{author}"}),
        writes=frozenset({"score:within"}),
    )


@register(
    papers.GDPO,
    family="policy",
    summary="Several rewards, each normalised in its group before they are added.",
    when="Replies are scored on several counts at once, and one would drown the others if they were added first.",
)
def gdpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    correct_weight: Annotated[float, Option("Weight of the scorer's reward.", at_least=0)] = 1.0,
    length_weight: Annotated[float, Option("Weight of the length reward.", at_least=0)] = 1.0,
    within_share: Annotated[float, Option("The limit of length, as a share of the longest.", above=0, at_most=1)] = 0.5,
    updates: opt.Updates = 1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """GDPO with two rewards: being right (r_1, the scorer's) and being short (r_2 = 1 within a limit, else 0).

    a_k,i = (r_k,i - mean) / (std + 1e-4) over the replies to the prompt;   s_i = sum_k w_k a_k,i
    A_i = (s_i - mean s) / (std s + 1e-4) over all replies of the batch
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)

    The batch normalisation is over replies, as in the paper's equation (one of its two codes whitens tokens). No
    KL. The released recipes sample 4 and 16 replies.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(score.scoring(task, reward_model), within(within_share)),
        credit=chain(decoupled({"reward": correct_weight, "within": length_weight}), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps), updates=updates),
        models=roles(**score.rm_role(reward_model)),
    )
