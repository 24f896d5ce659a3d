"""Values of single tokens over a whole vocabulary: Q, expectiles, and the policy that they steer."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from burnish.learn.maths.shapes import AnyShape, OverVocabulary, PerToken


def q_values(logits: OverVocabulary, start: OverVocabulary) -> OverVocabulary:
    """Q(s, .) of a language model as a critic: its logits minus those of the model that it started from. [N, V].

    It is 0 everywhere at the start, as a value head whose last layer starts at 0 is.
    """
    assert logits.shape == start.shape
    return logits - start


def of_token(values: OverVocabulary, token: PerToken) -> PerToken:
    """Q(s, a): [N, V], [N] -> [N]."""
    return values.gather(-1, token.long()[:, None])[:, 0]


def smallest(values: Sequence[AnyShape]) -> AnyShape:
    """The elementwise minimum over critics."""
    return torch.stack(list(values)).amin(0)


def half_squared_error(value: AnyShape, target: AnyShape) -> AnyShape:
    """(value - target)^2 / 2, per token."""
    assert value.shape == target.shape, (value.shape, target.shape)
    return (value - target).square() / 2


def expectile_error(value: AnyShape, target: AnyShape, tau: float) -> AnyShape:
    """IQL's expectile loss (arXiv 2110.06169), per token: w (value - target)^2 / 2, w = tau where target >= value, else
    1 - tau. tau = 1/2 is a quarter of the squared error: V is then the mean of its targets. tau -> 1 is their maximum.
    """
    weight = torch.where(target >= value, tau, 1.0 - tau)
    return weight * half_squared_error(value, target)


def steered(start: OverVocabulary, values: OverVocabulary, beta: float) -> OverVocabulary:
    """log of pi(a|s) exp(beta Q(s, a)) / Z from the logits of pi and Q: [N, V]. beta = 0 is pi."""
    return torch.log_softmax(torch.log_softmax(start, -1) + beta * values, -1)
