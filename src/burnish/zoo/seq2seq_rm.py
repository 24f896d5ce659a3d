"""Sequence to Sequence Reward Modeling: Improving RLHF by Language Feedback (arXiv 2409.00162)."""

from __future__ import annotations

from burnish import draw, learn
from burnish.method import Method, method, roles
from burnish.methods import papers, register
from burnish.rollout.corrected import corrected


@register(
    papers.SEQ2SEQ_RM,
    family="reward",
    summary="A model that corrects replies; where it would change nothing, a reply is good, token by token.",
    when="A score for every token is wanted, from pairs alone.",
)
def seq2seq_rm(task: draw.Source) -> Method:
    """A sequence-to-sequence reward model: a language model trained to correct replies.

    L = -log pi(y_w | x, y_l) - log pi(y_w | x, y_w), mean over tokens: corrections and the identity, half each

    As a reward, `corrector(DIR)`: tokens up to the first that the model would change count 1, later ones -1 where it
    would say another token and 0 where it agrees. Departure: of the paper the abstract and a figure were available; the
    sizes of these rewards are reconstructed.
    """
    return method(
        draw=draw.pairs(task),
        rollout=corrected(),
        learn=learn.Learn(learn.imitate(on="demo")),
        models=roles(),
        product="policy",
    )
