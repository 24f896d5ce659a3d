"""Direct Preference-based Policy Optimization without Reward Modeling (arXiv 2301.12842)."""

from __future__ import annotations

from typing import Annotated

import torch.nn.functional as F
from torch import Tensor

from burnish import draw
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.learn.terms.rows import row_mean
from burnish.method import Method, Option
from burnish.methods import register
from burnish.methods.given_pairs import from_pairs
from burnish.papers import Paper

DIRECT_PREFERENCE_PPO = Paper(
    "direct-preference-ppo", "2301.12842", "Direct Preference-based Policy Optimization without Reward Modeling"
)


def conservative_contrast(mean_w: Tensor, mean_l: Tensor, lam: float, temperature: float = 1.0) -> Tensor:
    """DPPO's contrast (An et al., arXiv 2301.12842): -log[ e^(S_w/T) / (e^(S_w/T) + e^(lam S_l/T)) ].

    The paper's score S is minus the mean distance between the policy's actions and a segment's; for a language model
    it is the mean log-prob of the reply. lam < 1 pushes the worse reply down less. lam = 1 is SimPO with beta = 1/T
    and gamma = 0.
    """
    return -F.logsigmoid((mean_w - lam * mean_l) / temperature)


def conservative(lam: float, temperature: float, *, on: Authors = "policy") -> Term:
    """DPPO: the contrast of mean log-probs in which the worse reply counts lam."""
    return pair_term(
        lambda w, r, _: conservative_contrast(w.logp, r.logp, lam, temperature),
        anchor=None,
        reduce=row_mean,
        on=on,
    )


@register(
    DIRECT_PREFERENCE_PPO,
    family="preference",
    summary="Contrast the likelihoods of a pair, the worse one with less weight.",
    when="Reference-free pairs, where rejected replies should not be pushed down as hard.",
)
def direct_preference_ppo(
    task: draw.Source,
    *,
    lam: Annotated[float, Option("Weight of the rejected reply's score.", at_least=0, at_most=1)] = 1.0,
    scale: Annotated[float, Option("Temperature of the contrast.", above=0)] = 0.1,
) -> Method:
    """DPPO: direct preference-based policy optimisation, adapted to language models.

    S(y) = log pi(y|x) / |y|;  L = -log[ e^(S(y_w)/scale) / (e^(S(y_w)/scale) + e^(lam S(y_l)/scale)) ],  mean

    The paper controls robots: its score is minus the mean distance between the policy's actions and a segment's, and a
    preference predictor labels more segments. Here the score is the mean log-prob of the reply, and labels are given.
    lam and scale are the defaults of the authors' code. lam = 1 is SimPO with beta = 1/scale and no margin.
    """
    return from_pairs(task, conservative(lam, scale, on="demo"))
