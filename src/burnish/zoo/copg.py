"""Contrastive Policy Gradient: Aligning LLMs on sequence-level scores in a supervised-friendly fashion (arXiv
2406.19185).
"""

from __future__ import annotations

from burnish import credit, draw, learn, rollout, score, select
from burnish.learn.norms import Norm
from burnish.method import Method, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

COPG = Paper(
    "copg",
    "2406.19185",
    "Contrastive Policy Gradient: Aligning LLMs on sequence-level scores in a supervised-friendly fashion",
)


peer_mean = Norm(
    "mean over groups of the sum over pairs / (traces - 1)",
    lambda seq, group: 1.0,
    lambda n: n.comparing,
    compared=lambda traces: 1.0 / (traces - 1),
)


@register(
    COPG,
    family="policy",
    summary="Contrast two scored replies from anywhere; each is the other's baseline.",
    when="You have replies with scores from anywhere, and no log-probs of who wrote them.",
)
def copg(task: draw.Source, *, beta: opt.Beta = 0.1, reward_model: opt.RewardModel = None) -> Method:
    """CoPG on pairs of replies that came with the data: an off-policy policy gradient without importance weights.

    R_beta(y) = r(y) - beta log pi(y)/ref(y)
    L = mean over prompts of ( R_beta(y) - R_beta(y') )^2

    The loss is 0 where pi ~ ref exp(r / beta), whatever policy wrote the replies. No scale 1/(2 beta) stands before the
    square. The two replies are the task's chosen and rejected ones, scored like any other; only their scores'
    difference counts. No value of beta could be confirmed; 0.1 is DPO's.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.scoring(task, reward_model, author="demo"),
        select=select.every_contrast(),
        credit=chain(credit.ref(), credit.token_rewards(kl=None, author="demo")),
        learn=learn.Learn(learn.regress_rewards(beta, anchor="ref", on="demo")),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )


@register(
    COPG,
    family="policy",
    summary="CoPG on fresh samples, all pairs of a group contrasted.",
    when="As `copg`, with fresh samples.",
)
def copg_online(
    task: draw.Source,
    *,
    n: opt.GroupSize = 2,
    beta: opt.Beta = 0.1,
    updates: opt.Updates = 1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """CoPG on the policy's own samples.

    R_beta(y) = r(y) - beta log pi(y)/ref(y)
    L = mean over prompts of 1/(k-1) sum over pairs i > j of ( R_beta(y_i) - R_beta(y_j) )^2,  k replies of the prompt

    The rest is as in `copg`; the sum over k samples is that of Cohere's later report. k is n where no reply is left
    out.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        select=select.every_contrast(),
        credit=chain(credit.ref(), credit.token_rewards(kl=None)),
        learn=learn.Learn(learn.regress_rewards(beta, anchor="ref", norm=peer_mean), updates=updates),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
