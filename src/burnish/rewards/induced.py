"""The token reward that a frozen language model implies."""

from __future__ import annotations

import math
from typing import Annotated

import torch

from burnish import papers
from burnish.core.method import Group, Option, Step, Trace, frozen, per_trace
from burnish.rewards import DENSE, Scorer, register_reward
from burnish.score.induced import VALUES, induced_rewards
from burnish.score.reading import require_same_tokens
from burnish.tasks.source import Source


@register_reward(
    papers.TEACHER_FORCING_INDUCED_REWARD,
    summary="The token reward that a model trained by teacher forcing implies: its logits are read as Q-values.",
    when="You have a good SFT model and prompts without references, and no other reward.",
    example="burnish train reinforce --reward 'induced(runs/DIR/model)*0.01'",
)
def induced(
    task: Source,
    model: Annotated[str, Option("The frozen language model; policy is the policy at the start.")] = "policy",
    *,
    value: Annotated[str, Option("The value of a state, from the logits there.", choices=tuple(VALUES))] = "max",
    gamma: Annotated[float, Option("Discount per token.", at_least=0, at_most=1)] = 1.0,
) -> Scorer:
    """r_t = f(a_t | s_t) - gamma V(s_{t+1}), V(s) = max over a of f(a | s), 0 after the end (arXiv 2210.08708).

    f are the model's logits less their mean over the vocabulary: the centring changes the reward, although no softmax
    sees it. The released code takes the mean of f under a softmax for V, and by mistake the softmax of the step before;
    value=softmax is the mean that is meant. The paper divides returns by 100 (the weight 0.01), clips them to [-1, 1],
    weighs them by importance against a copy of the policy that is renewed every 5,000 updates, and adds an entropy
    bonus of 0.1; here the method does such things (reinforce is the nearest). A reply that was cut off counts as ended.
    With weight 0 the policy stays the SFT model. Cost: one forward of the frozen model with all logits, a reply at a
    time.
    """
    name = f"{DENSE}induced"

    def write(trace: Trace, group: Group, step: Step) -> None:
        require_same_tokens("induced", "policy", step)
        mask = trace.by("policy")
        trace.streams[name] = torch.full((len(trace),), math.nan)
        if not bool(mask.any()):
            return
        (found,) = step.models["induced"].streams([trace], [mask], {"logits"}, step.settings.token_budget, 1.0)
        trace.streams[name][mask] = induced_rewards(found["logits"][mask], trace.tokens[mask], VALUES[value], gamma)

    reads = frozenset({"tokens:policy", "model:induced.logits"})
    part = per_trace(write, name=f"induced({value})", reads=reads, writes=frozenset({f"stream:{name}"}))
    return Scorer(part=part, models={"induced": frozen(model)}, dense=True)
