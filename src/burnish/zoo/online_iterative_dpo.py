"""RLHF Workflow: From Reward Modeling to Online RLHF (arXiv 2405.07863)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import Part, chain, per_trace, supplies
from burnish.core.roles import snapshot
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.method import Method, Option, Phase, frozen, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.score.lengths import reply_length

ONLINE_ITERATIVE_DPO = Paper("online-iterative-dpo", "2405.07863", "RLHF Workflow: From Reward Modeling to Online RLHF")

ROUND = {"n": 4, "sync": 1}


@supplies("score:net")
def less_length(price: float, *, score: str = "reward", author: str = "policy") -> Part:
    """scores["net"] = score - price |y|, |y| the tokens of the reply: RLHFlow's length penalty (arXiv 2405.07863)."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.scores["net"] = trace.scores[score] - price * reply_length(trace, author)

    return per_trace(
        write,
        name=f"less_length({price:g})",
        reads=frozenset({f"score:{score}", f"tokens:{author}"}),
        writes=frozenset({"score:net"}),
    )


@register(
    ONLINE_ITERATIVE_DPO,
    family="preference",
    summary="Rounds of DPO on the best and the worst of n, long replies priced, old pairs used again.",
    when="A reward model for chat, and a recipe that is known to work.",
    trial=ROUND,
)
def online_iterative_dpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    beta: opt.Beta = 0.1,
    price: Annotated[float, Option("Reward that a token of a reply costs.", at_least=0)] = 0.001,
    remembered: Annotated[int, Option("Prompts whose pairs are kept for later rounds.", at_least=1)] = 2048,
    sync: opt.Sync = 1 / 3,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Online iterative DPO (RLHFlow).

    y_1..y_n ~ pi_t, scored less price |y|;  w, l = the best and the worst;  pairs of all rounds are kept
    L = -log s( beta [lr_w - lr_l] ),  lr = log pi(y|x) - log ref(y|x), ref the starting policy,  mean over pairs

    Each step makes one update on new pairs and one on as many old ones. beta and n are the paper's (three rounds), the
    price is ours.
    """
    kept = select.Store("pairs", remembered)
    rule = select.best_vs_worst("net")
    fresh = Phase(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="past"),
        score=chain(score.scoring(task, reward_model, author="past"), less_length(price, author="past")),
        select=chain(rule, select.remember(kept, "pairs")),
        credit=credit.ref(),
        learn=learn.Learn(learn.dpo(beta, on="past")),
    )
    again = Phase(
        name="replay",
        draw=draw.stored(kept),
        rollout=rollout.recalled(author="past"),
        score=less_length(price, author="past"),
        select=rule,
        credit=credit.ref(),
        learn=learn.Learn(learn.dpo(beta, on="past")),
    )
    models = roles(ref=frozen("policy"), past=snapshot("policy", sync), **score.rm_role(reward_model))
    return Method(models=models, phases=(fresh, again), lr_share=0.1)
