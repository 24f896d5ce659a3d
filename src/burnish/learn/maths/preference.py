"""Losses on compared replies. w is preferred to l.

log pi(y | x)  = sum over the reply's tokens of log pi(y_t | x, y_<t)
logratio       = log pi(y | x) - log ref(y | x), summed over the reply
margin         = beta (logratio_w - logratio_l), the difference of the implicit rewards
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch.nn.functional as F
from torch import Tensor

from burnish.learn.maths.shapes import AnyShape, PerPair


@dataclass(frozen=True)
class Replies:
    """n replies as a preference loss sees them: one number each, shape [n].

    logp      log pi(y | x): the sum over the reply's tokens, or their mean where lengths are normalised
    logratio  log pi(y | x) - log anchor(y | x), reduced in the same way; logp itself where there is no anchor
    tokens    |y|, the number of tokens that are counted
    streams   name -> a stream reduced like logp: log-probs of another anchor, token rewards
    marks     name -> a number that stands on every token of the reply: a label, a margin, a win rate, a baseline

    replies["name"] is a stream or a mark. For a reward model `score` is its number and `logp` and `logratio` are it
    too.
    """

    logp: Tensor
    logratio: Tensor
    tokens: Tensor
    streams: Mapping[str, Tensor] = field(default_factory=dict)
    marks: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def score(self) -> Tensor:
        return self.logp

    def __len__(self) -> int:
        return len(self.logp)

    def __getitem__(self, name: str) -> Tensor:
        return self.marks[name] if name in self.marks else self.streams[name]

    def at(self, index: Tensor) -> Replies:
        """Some of the replies, in the order of the index [m]."""
        streams = {name: x[index] for name, x in self.streams.items()}
        marks = {name: x[index] for name, x in self.marks.items()}
        return Replies(self.logp[index], self.logratio[index], self.tokens[index], streams, marks)

    def detach(self) -> Replies:
        """The same numbers without gradient."""
        return replace(self, logp=self.logp.detach(), logratio=self.logratio.detach())


def logistic(margin: AnyShape, label_smoothing: float | AnyShape = 0.0) -> AnyShape:
    """-log sigmoid(margin); with label smoothing e: -(1 - e) log sigmoid(margin) - e log sigmoid(-margin).

    Any shape; e is a number or a tensor of that shape.
    """
    return -(1 - label_smoothing) * F.logsigmoid(margin) - label_smoothing * F.logsigmoid(-margin)


def dpo_logistic(logratio_w: PerPair, logratio_l: PerPair, beta: float, label_smoothing: float = 0.0) -> PerPair:
    """Direct preference optimisation (Rafailov et al., arXiv 2305.18290), Eq. 7, per pair.

        logratio = log pi(y | x) - log ref(y | x), summed over the reply
        L = -log sigmoid(beta (logratio_w - logratio_l))

    label_smoothing e > 0 is cDPO: (1 - e) L(w, l) + e L(l, w). Shapes: [P].
    """
    assert logratio_w.shape == logratio_l.shape
    return logistic(beta * (logratio_w - logratio_l), label_smoothing)


def bradley_terry(
    score_w: PerPair,
    score_l: PerPair,
    centre: float = 0.0,
    *,
    margin: float | PerPair = 0.0,
    label_smoothing: float | PerPair = 0.0,
    shrink: float = 0.0,
) -> PerPair:
    """The Bradley-Terry reward-model loss (Ouyang et al., arXiv 2203.02155, Eq. 1), per pair.

        L = l(r_w - r_l - margin) + centre (r_w + r_l)^2 + shrink (r_w^2 + r_l^2) / 2
        l(d) = -(1 - e) log sigmoid(d) - e log sigmoid(-d),  e the label smoothing

    margin  how far apart the scores must be: fixed, or by the grade of the preference (Llama 2, arXiv 2307.09288)
    centre  keeps scores around 0 (arXiv 2312.09244); shrink keeps each of them small (Open-Assistant: 0.001)
    All four at 0 are the published loss. Shapes: [P].
    """
    assert score_w.shape == score_l.shape
    loss = logistic(score_w - score_l - margin, label_smoothing) + centre * (score_w + score_l).square()
    return loss + shrink * (score_w.square() + score_l.square()) / 2
