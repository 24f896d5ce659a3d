"""LiPO: Listwise Preference Optimization through Learning-to-Rank (arXiv 2402.01878)."""

from __future__ import annotations

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.credit import by_bradley_terry, by_comparison
from burnish.learn.terms import preference_lists as lists
from burnish.method import Method, Sampling, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.compositions import ListOptions
from burnish.papers import Paper

LIPO = Paper("lipo", "2402.01878", "LiPO: Listwise Preference Optimization through Learning-to-Rank")


@register(
    LIPO,
    family="preference",
    summary="Learning to rank: a pair counts by how much swapping it would change the ranking's quality.",
    when="Several graded replies a prompt, whose order matters most at the top.",
)
def lipo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    beta: opt.Beta = 0.05,
    reward_model: opt.RewardModel = None,
) -> Method:
    """LiPO-lambda.

    s_i = beta [log pi(y_i|x) - log ref(y_i|x)];  psi_i = mean over the list of P(y_i > y_j);  tau_i = rank by s, held
    L = sum over psi_i > psi_j of |2^psi_i - 2^psi_j| |1/log(1+tau_i) - 1/log(1+tau_j)| log(1 + e^-(s_i - s_j))

    Mean over prompts. Replies are the reference's, as in the paper; P is a reward model's, or 1, 1/2, 0 by the
    verifier. With two replies it is DPO times a constant. n, beta, temperature and top_k are the paper's.
    """
    preference = by_bradley_terry if reward_model else by_comparison
    sampled = rollout.sample(n, who="ref")
    replies = ListOptions.of(task, sampled, "ref", reward_model)
    return method(
        draw=draw.prompts(task),
        rollout=replies.rollout,
        score=chain(replies.score, score.win_rates(preference)),
        select=select.whole_lists("wins"),
        credit=chain(credit.ref(logp_temperature=1.0), credit.shared("wins", "psi")),
        learn=learn.Learn(lists.lambda_rank(beta, on=replies.author), logp_temperature=1.0),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
        sampling=Sampling(0.7, top_k=40),
    )
