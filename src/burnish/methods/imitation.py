"""Learning from demonstrations."""

from __future__ import annotations

from burnish.cast.roles import stage
from burnish.credit.members import member
from burnish.draw.tasks import demos
from burnish.learn.learn import Learn
from burnish.learn.terms import imitate
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.rollout.given import given
from burnish.tasks.source import Source


@register(
    family="imitation",
    catalogue=("sft",),
    title="Supervised fine-tuning",
    summary="Raise the likelihood of demonstrated replies.",
)
def sft(task: Source, *, epochs: int = 1) -> Method:
    """Supervised fine-tuning on demonstrations.

    L = -(1 / N) sum over the N demonstrated reply tokens of log pi(y_t | x, y_<t)

    The mean is over all reply tokens of the batch; prompt tokens are not trained.
    epochs: updates on each batch.
    """
    return method(
        draw=demos(task),
        rollout=given("demo"),
        credit=member("sft", "demo"),
        learn=Learn(imitate(), epochs=epochs),
        cast=stage(),
    )
