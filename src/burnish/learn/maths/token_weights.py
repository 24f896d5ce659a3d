"""What one demonstrated token may count, beyond one."""

from __future__ import annotations

import torch

from burnish.learn.maths.shapes import OverVocabulary, PerToken


def probability_weight(logp: PerToken) -> PerToken:
    """DFT's token weight sg[p], p = pi(y_t) (arXiv 2508.05629): it turns the gradient of -log p into that of -p.

    SFT's gradient is a policy gradient with the reward 1/p; this weight takes the 1/p away. Shape [N], no gradient.
    """
    return logp.detach().exp()


def smoothed_nll(logits: OverVocabulary, logp: PerToken, smoothing: float) -> PerToken:
    """The negative log-likelihood against a target that keeps a share for every token, per token [N].

        L = -(1 - smoothing) log pi(y_t) - smoothing mean over the vocabulary of log pi(v)

    logits [N, V], logp [N]. smoothing = 0 is the plain negative log-likelihood.
    """
    assert logits.shape[:-1] == logp.shape
    everywhere = torch.log_softmax(logits, -1).mean(-1)
    return -(1 - smoothing) * logp - smoothing * everywhere
