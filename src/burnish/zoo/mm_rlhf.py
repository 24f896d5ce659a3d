"""MM-RLHF: The Next Step Forward in Multimodal LLM Alignment, its MM-DPO (arXiv 2502.10391)."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.learn.maths.preference import Replies, logistic
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

MM_RLHF = Paper("mm-rlhf", "2502.10391", "MM-RLHF: The Next Step Forward in Multimodal LLM Alignment")
LEAST = 1e-3  # the released floor of beta


def scaled_beta(beta: float, margin: Tensor, weight: float, steepness: float) -> Tensor:
    """[P]: beta (1 + w (1 - exp(-k margin))), at least 1e-3."""
    return (beta * (1 + weight * (1 - (-steepness * margin).exp()))).clamp(min=LEAST)


def dynamic_pairs(beta: float, weight: float, steepness: float) -> learn.Term:
    """DPO whose beta grows with the margin of the rewards, in stream "reward"."""

    def loss(chosen: Replies, rejected: Replies, beta: float) -> Tensor:
        by = scaled_beta(beta, chosen.marks["reward"] - rejected.marks["reward"], weight, steepness)
        return logistic(by.to(chosen.logratio.dtype) * (chosen.logratio - rejected.logratio))

    return learn.pair_term(loss, beta=beta, marks=("reward",), on="demo")


@register(
    MM_RLHF,
    family="preference",
    summary="DPO whose beta is larger for pairs that a reward model finds far apart.",
    when="You have pairs of mixed quality, of text or about pictures, and a reward model that can tell.",
    trial={"beta": 0.1},
)
def mm_dpo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    weight: Annotated[float, Option("How much larger beta becomes for the surest pairs.", at_least=0)] = 0.5,
    steepness: Annotated[float, Option("How fast it grows with the margin.", above=0)] = 0.5,
    reward_model: opt.RewardModel = None,
) -> Method:
    """L = -log sigmoid( beta_i [ log pi(y_w)/ref(y_w) - log pi(y_l)/ref(y_l) ] ),  mean over pairs
    beta_i = beta (1 + w (1 - exp(-k (r_w - r_l)))), at least 0.001

    r is the reward model's score; without one it is 1 and 0, so that all pairs have one beta. The floor and the form
    beta (1 + w f) are those of the released code (C), f the design's reading of the paper (S), w and k ours (R). With
    weight 0 it is `dpo`. The paper's critique-based reward model is not here.
    """
    own = score.reward_model(author="demo") if reward_model else score.given_order("chosen", "rejected")
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=own,
        select=select.given_pairs(),
        credit=chain(credit.cached_ref(task), credit.shared("reward", "reward")),
        learn=learn.Learn(dynamic_pairs(beta, weight, steepness)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
