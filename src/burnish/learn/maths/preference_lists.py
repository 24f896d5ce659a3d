"""Losses on ranked lists of replies.

Symbols: K replies of one prompt, best first;  s = beta lr, the scores of the policy;  lr = log pi - log ref of the
whole reply;  psi, r: labels and rewards. All tensors have shape [K], all results are one number.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


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


def pair_logistic(logratio: Tensor, labels: Tensor, beta: float) -> Tensor:
    """LiPO's pair-logistic loss: the sum over psi_i > psi_j of log(1 + e^-(s_i - s_j)). K = 2 is DPO."""
    scores = beta * logratio
    losses = -F.logsigmoid(scores[:, None] - scores[None])
    return torch.where(labels[:, None] > labels[None], losses, torch.zeros_like(losses)).sum()


def plackett_luce(scores: Tensor) -> Tensor:
    """List-MLE: minus the log-chance of the order itself, sum_k -log[ e^s_k / sum over i >= k of e^s_i ].

    K = 2 is logistic.
    """
    return (scores.flip(0).logcumsumexp(0).flip(0) - scores)[:-1].sum()


def pro_ranking(mean: Tensor, rewards: Tensor) -> Tensor:
    """PRO (Song et al., arXiv 2306.17492): a Plackett-Luce loss whose temperatures are the reward gaps.

        L = sum over k < K of -log[ e^(m_k / T_kk) / sum over i >= k of e^(m_i / T_ki) ]
        1 / T_ki = r_k - r_i for i > k,   1 / T_kk = max over i > k of r_k - r_i

    m is the mean log-prob of a token. Replies with equal rewards exclude nothing: their places k add 0 and are left
    out.
    """
    total = mean.sum() * 0
    for k in range(len(mean) - 1):
        gaps = (rewards[k] - rewards[k + 1 :]).to(mean)
        largest = gaps.max()
        if largest <= 0:
            continue
        scaled = torch.cat([(mean[k] * largest)[None], mean[k + 1 :] * gaps])
        total = total + torch.logsumexp(scaled, 0) - scaled[0]
    return total


def brain_kl(logp: Tensor, ref: Tensor, proposal: Tensor, rewards: Tensor, gamma: float) -> Tensor:
    """BRAIn (Pandey et al., arXiv 2402.02479): KL(a || b) over n samples of a proposal q'.

        a = softmax(log p_sft + r / gamma - log q'), held;   b = softmax(log pi - log q')

    Its gradient is -sum_i (a_i - b_i) grad log pi(y_i): self-normalised importance sampling with a self-normalised
    baseline. n = 2 with q' = p_sft and a = (1, 0) is DPO with beta = 1.
    """
    target = torch.log_softmax(ref + rewards.to(ref) / gamma - proposal, 0).detach()
    return (target.exp() * (target - torch.log_softmax(logp - proposal, 0))).sum()


def nca_list(logratio: Tensor, rewards: Tensor, beta: float, temperature: float) -> Tensor:
    """NCA with explicit rewards (Chen et al., arXiv 2402.05369): -sum c_i log s(r_i) - (1/K) sum log s(-r_i).

    c = softmax(reward / temperature), r_i = beta lr_i. K = 2 and temperature -> 0 is `nca_pair`.
    """
    implicit = beta * logratio
    share = torch.softmax(rewards.to(implicit) / temperature, 0)
    return -(share * F.logsigmoid(implicit)).sum() - F.logsigmoid(-implicit).mean()


def exo_list(logratio: Tensor, rewards: Tensor, beta: float, beta_reward: float) -> Tensor:
    """EXO with rewards (Ji et al., arXiv 2402.00856): KL( softmax(beta lr) || softmax(r / beta_reward) ).

    The policy's side comes first.
    """
    mine = torch.log_softmax(beta * logratio, 0)
    return (mine.exp() * (mine - torch.log_softmax(rewards.to(mine) / beta_reward, 0))).sum()
