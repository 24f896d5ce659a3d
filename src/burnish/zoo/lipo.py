"""LiPO: Listwise Preference Optimization through Learning-to-Rank (arXiv 2402.01878)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.core.schedules import Schedule
from burnish.credit import by_bradley_terry, by_comparison
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import list_term
from burnish.method import Method, Sampling, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.compositions import ListOptions
from burnish.papers import Paper

LIPO = Paper("lipo", "2402.01878", "LiPO: Listwise Preference Optimization through Learning-to-Rank")


def lambda_weights(scores: Tensor, labels: Tensor) -> Tensor:
    """Delta_ij = |2^psi_i - 2^psi_j| |1/log(1 + tau_i) - 1/log(1 + tau_j)|, tau the rank by score, 1 the highest.

    Shape [K, K].

    The change of DCG if i and j swap their places. No gradient passes.
    """
    held = scores.detach()
    rank = torch.empty_like(held)
    rank[torch.argsort(held, descending=True, stable=True)] = torch.arange(
        1, len(held) + 1, dtype=held.dtype, device=held.device
    )
    gain, discount = torch.exp2(labels.to(held)), 1 / torch.log1p(rank)
    return (gain[:, None] - gain[None]).abs() * (discount[:, None] - discount[None]).abs()


def lipo_lambda(logratio: Tensor, labels: Tensor, beta: float) -> Tensor:
    """LiPO-lambda (Liu et al., arXiv 2402.01878): sum over psi_i > psi_j of Delta_ij log(1 + e^-(s_i - s_j)).

    K = 2 is DPO times |2^psi_1 - 2^psi_2| (1/log 2 - 1/log 3).
    """
    scores = beta * logratio
    better = labels[:, None] > labels[None]
    losses = -F.logsigmoid(scores[:, None] - scores[None]) * lambda_weights(scores, labels)
    return torch.where(better, losses, torch.zeros_like(losses)).sum()


def lambda_rank(beta: Schedule, *, on: Authors = "policy") -> Term:
    """LiPO-lambda on the lists, labels in stream "psi"."""
    return list_term(lambda one, beta: lipo_lambda(one.logratio, one["psi"], beta), beta=beta, marks=("psi",), on=on)


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
        learn=learn.Learn(lambda_rank(beta, on=replies.author), logp_temperature=1.0),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
        sampling=Sampling(0.7, top_k=40),
    )
