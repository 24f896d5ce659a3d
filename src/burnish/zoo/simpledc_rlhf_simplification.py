"""Health Text Simplification: An Annotated Corpus for Digestive Cancer Education and Novel Strategies for
Reinforcement Learning (arXiv 2401.15043).
"""

from __future__ import annotations

from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.learn.maths.preference import Replies, logistic
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import unpaired_term
from burnish.method import Method, chain, method, roles, trained
from burnish.methods import papers, register

END = credit.claim("end", "demo", positions="end")


def score_labels(*, trainee: str = "rm", on: Authors = "policy", name: str = "end") -> Term:
    """-log sigmoid(label r) for replies that are good (label 1) or bad (-1) by themselves: r is their log-odds."""

    def loss(replies: Replies, _: float) -> Tensor:
        return logistic(replies["label"].sign() * replies.score)

    return unpaired_term(loss, anchor=None, output="score", trainee=trainee, on=on, name=name)


@register(
    papers.SIMPLEDC_RLHF_SIMPLIFICATION,
    family="reward",
    summary="A classifier of two kinds of text; its chance for the wanted kind is a reward.",
    when="You have texts of the wanted kind and of another (simplified and original), and no comparisons.",
)
def discriminator(task: draw.Source) -> Method:
    """A binary classifier as a reward model.

    L = -log s( r(x, y) ) for replies of the wanted kind, -log s( -r(x, y) ) for the others;  mean over replies

    The wanted kind is the chosen reply of a pair, or the demonstration (else a row's label says). r is the log-odds;
    the scorer `discriminated` gives s(r), and 0 to replies that are too short, because a classifier takes an empty text
    for a simple one. Departure: of the paper the abstract was available; its classifier's architecture is not known.
    """
    if draw.has_labels(task):
        drawn, replies, labels = draw.labelled_replies(task), rollout.given("demo", reader="rm"), score.given_label()
    else:
        drawn, replies = draw.pairs(task), rollout.given("chosen", "rejected", reader="rm")
        labels = score.given_order("chosen", "rejected")
    return method(
        draw=drawn,
        rollout=replies,
        score=labels,
        credit=chain(END, credit.label()),
        learn=learn.Learn(score_labels(on=learn.CLAIMED)),
        models=roles("rm", rm=trained(outputs=1)),
        product="rm",
    )
