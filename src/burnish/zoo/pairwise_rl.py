"""A Unified Pairwise Framework for RLHF: Bridging Generative Reward Modeling and Policy Optimization (arXiv
2504.04950).
"""

from __future__ import annotations

from typing import Annotated, Literal

from burnish import draw, learn, rollout
from burnish.judges import templates
from burnish.method import Method, Option, method, roles
from burnish.methods import papers, register
from burnish.tasks.judged import VerdictDemos

Words = Annotated[Literal["full", "brief"], Option("How much a question says; brief is for small models.")]
_LETTER = {"full": templates.PAIRWISE, "brief": templates.PAIRWISE_BRIEF}
_SMALL = {"task": "sort:1", "words": "brief"}


@register(
    papers.PAIRWISE_RL,
    family="reward",
    summary="A generative judge of pairs: cross-entropy on the letter of the better reply, in both orders.",
    when="You have pairs; the reward `anchor` then compares replies with each row's answer.",
    trial=_SMALL,
)
def pairwise_rl(task: draw.Source, *, words: Words = "full") -> Method:
    """The pairwise reward model of Pairwise-RL as a language model.

    L = -(1 / N) sum over the N tokens of "A" or "B" (and the end of the turn) of log pi(. | question), both orders

    RECONSTRUCTED from the abstract and a review. Each row gives two tasks, one per order. The policy is then trained by
    burnish train ppo --reward "anchor(runs/DIR/model)": the chance to win against the row's answer.
    """
    source = VerdictDemos(task, _LETTER[words])
    return method(
        draw=draw.questions(source),
        rollout=rollout.given("demo"),
        learn=learn.Learn(learn.imitate(on="demo")),
        models=roles(),
    )
