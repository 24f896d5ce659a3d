"""Scalable Reinforcement Post-Training Beyond Static Human Prompts: Evolving Alignment via Asymmetric Self-Play
(arXiv 2411.00062).
"""

from __future__ import annotations

from burnish import credit, draw, learn, rollout, score, select
from burnish.judges.rewrites import Words
from burnish.method import Method, frozen, method, roles
from burnish.methods import curricula, opt, papers, register


@register(
    papers.EVA,
    family="preference",
    summary="DPO on best and worst of the policy's replies, to prompts that evolve where replies score differently.",
    when="Few prompts, a reward that can score any prompt, and a model that can rewrite them.",
    example="burnish train eva --every 10 --words brief",
    trial={"n": 4, "every": 1, "words": "brief", "creator": "policy(temperature=1, max_tokens=8)"},
)
def eva(
    task: draw.Source,
    *,
    n: opt.GroupSize = 6,
    beta: opt.Beta = 0.1,
    creator: curricula.Creator = "policy(temperature=1)",
    every: curricula.Every = 50,
    subset: curricula.Subset = 0.25,
    variants: curricula.Variants = 4,
    evolved: curricula.Evolved = 0.8,
    words: Words = "full",
    reward_model: opt.RewardModel = None,
) -> Method:
    """Evolving alignment by asymmetric self-play, with DPO as the solver.

    info(x) = max_i r_i - min_i r_i over n replies;  L = -log s( beta [lr_w - lr_l] ),  w and l the best and the worst
    reply, lr = log pi(y|x) - log ref(y|x);  mean over pairs

    After a round of `every` steps, `subset` of its prompts, drawn in proportion to info, are rewritten in depth and in
    breadth; a prompt of the next batches is an evolved one with chance `evolved`. evolved = 0 is online DPO. The
    paper's RLOO solver is burnish train rloo --draw eva. Departures: rounds are steps of one run, and the reference
    stays the starting policy; beta is DPO's.
    """
    solver = method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        select=select.best_vs_worst(),
        credit=credit.ref(),
        learn=learn.Learn(learn.dpo(beta)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
    evolve = curricula.eva(creator=creator, every=every, subset=subset, variants=variants, evolved=evolved, words=words)
    return evolve(solver, task)
