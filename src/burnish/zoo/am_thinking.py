"""AM-Thinking-v1: Advancing the Frontier of Reasoning at 32B Scale (arXiv 2505.08311).

Advantages of replies that were cut off.
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, per_trace
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

AM_THINKING = Paper("am-thinking-v1", "2505.08311", "AM-Thinking-v1: Advancing the Frontier of Reasoning at 32B Scale")


def weigh_cut_off(weight: float = 0.0) -> Part:
    """A <- weight A for replies that were cut off at max_new_tokens.

    With 0 they have no gradient, while they count in the mean of their group (AM-Thinking-v1, arXiv 2505.08311); 1
    changes nothing.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        if trace.note.get("stopped") == "length":
            trace.streams["adv"] = weight * trace.streams["adv"]

    stream = frozenset({"stream:adv"})
    return per_trace(write, name=f"weigh_cut_off({weight:g})", reads=stream, updates=stream)


@register(
    AM_THINKING,
    family="policy",
    summary="GRPO without KL that learns nothing from replies which were cut off.",
    when="The longest reply is still too short for some problems, and their cut-off replies are no mistakes.",
    trial={"cut_off": 0.5},
)
def am_thinking(
    task: draw.Source,
    *,
    n: opt.GroupSize = 16,
    eps: opt.ClipRange = 0.2,
    cut_off: Annotated[float, Option("What a reply that was cut off weighs.", at_least=0, at_most=1)] = 0.0,
) -> Method:
    """The RL of AM-Thinking-v1: GRPO without KL, on-policy, cut-off replies excluded from the loss.

    A_i = (r_i - mean r) / std r over the n replies to one prompt, times cut_off for a reply that was cut off
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A);   one update a batch

    With cut_off = 0, the paper's, a reply that was cut off counts in the mean and the deviation of its group, and has
    no gradient; cut_off = 1 is GRPO without KL, with a token mean. Only reviews of the report could be read; the mean
    over tokens is ours.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), weigh_cut_off(cut_off), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.token_mean)),
        models=roles(),
    )
