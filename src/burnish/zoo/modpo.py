"""Beyond One-Preference-Fits-All Alignment: Multi-Objective Direct Preference Optimization (arXiv 2310.03708)."""

from __future__ import annotations

from typing import Annotated

import torch.nn.functional as F
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.learn.terms.compared import pair_term
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.score.lengths import reply_length

MODPO = Paper(
    "modpo", "2310.03708", "Beyond One-Preference-Fits-All Alignment: Multi-Objective Direct Preference Optimization"
)


def multi_objective(logratio_w: Tensor, logratio_l: Tensor, gap: Tensor, beta: float, weight: float) -> Tensor:
    """MODPO (Zhou et al., arXiv 2310.03708): -log s( [beta (lr_w - lr_l) - (1 - weight) gap] / weight ), per pair.

    gap  the other objective's reward of w less that of l, held. weight = 1 is `dpo_logistic`. Shapes: [P].
    """
    return -F.logsigmoid((beta * (logratio_w - logratio_l) - (1 - weight) * gap.detach().to(logratio_w)) / weight)


@supplies("score:reward")
def implicit_score(who: str, beta: float, *, ref: str = "ref", author: str = "policy") -> Part:
    """scores["reward"] = beta (log pi_who - log pi_ref)(y), summed over the author's tokens: a DPO policy's reward."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        masks = [trace.by(author) for trace in traces]
        found = [
            step.models[name].streams(traces, masks, {"logp"}, step.settings.token_budget, 1.0) for name in (who, ref)
        ]
        for trace, mask, mine, theirs in zip(traces, masks, *found, strict=True):
            gap = (mine["logp"][mask].double() - theirs["logp"][mask].double()).sum() if bool(mask.any()) else 0.0
            trace.scores["reward"] = beta * float(gap)
        return groups

    return Part(
        name=f"implicit_score({who})",
        call=call,
        reads=frozenset({f"tokens:{author}", f"model:{who}.logp", f"model:{ref}.logp"}),
        writes=frozenset({"score:reward"}),
    )


@supplies("score:reward")
def brevity(*, author: str = "policy") -> Part:
    """scores["reward"] = minus the reply's tokens over the longest reply of the run."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.scores["reward"] = -reply_length(trace, author) / step.settings.max_new_tokens

    return per_trace(write, name="brevity", reads=frozenset({f"tokens:{author}"}), writes=frozenset({"score:reward"}))


@register(
    MODPO,
    family="preference",
    summary="DPO with the other objectives' rewards as a margin.",
    when="Two objectives with preferences of their own, and a weight between them.",
    trial={"other": "tiny"},
    example="burnish train modpo --other runs/DIR/model",
)
def modpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    weight: Annotated[
        float, Option("Weight of the objective of the data; the other has the rest.", above=0, at_most=1)
    ] = 0.5,
    other: Annotated[
        str | None, Option("A policy of the other objective (DPO); its reward is beta log(pi / ref).")
    ] = None,
    reward_model: Annotated[str | None, Option("A reward model of the other objective, in place of a policy.")] = None,
) -> Method:
    """Multi-objective DPO.

    L = -log s( 1/w [ beta (lr_w - lr_l) - (1 - w) (r(x, y_w) - r(x, y_l)) ] ),  lr = log pi / ref summed over the reply

    r is another objective's reward, held: beta log(pi_other / ref) of a policy that DPO trained for it, or a reward
    model's score, which must be on that scale. Without either it is brevity: minus the share of the longest reply. Mean
    over pairs. w = 1 is DPO; 1/w makes the gradient large where w is small.
    """
    if other and reward_model:
        raise ValueError("the other objective is --other (a DPO policy) or --reward-model, not both; leave one out")
    scored, members = brevity(author="demo"), {}
    if reward_model:
        scored, members = score.reward_model(author="demo"), score.rm_role(reward_model)
    elif other:
        scored, members = implicit_score("other", beta, author="demo"), {"other": frozen(other)}
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=scored,
        select=select.given_pairs(),
        credit=chain(credit.ref(), credit.shared("reward", "objective")),
        learn=learn.Learn(
            pair_term(
                lambda w, r, beta: multi_objective(
                    w.logratio, r.logratio, w["objective"] - r["objective"], beta, weight
                ),
                beta=beta,
                marks=("objective",),
                on="demo",
            )
        ),
        models=roles(ref=frozen("policy"), **members),
        lr_share=0.1,
    )
