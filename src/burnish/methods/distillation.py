"""Learning from a teacher's whole distributions."""

from __future__ import annotations

from burnish.cast.roles import frozen, stage
from burnish.credit.members import member
from burnish.draw.tasks import demos
from burnish.learn.learn import Learn
from burnish.learn.terms import distil
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.rollout.given import given
from burnish.rollout.sample import either, sample
from burnish.tasks.source import Source


@register(
    family="hybrid",
    catalogue=("gkd",),
    title="On-Policy Distillation of Language Models: Learning from Self-Generated Mistakes",
    arxiv="2306.13649",
    summary="Match a teacher's next-token distributions on the student's own samples.",
    example="burnish train gkd --teacher runs/DIR/model",
    trial={"lam": 1.0, "teacher": "tiny"},
)
def gkd(task: Source, *, teacher: str, lam: float = 0.5, beta: float = 0.5, temperature: float = 1.0) -> Method:
    """Generalised knowledge distillation.

    With probability lam a batch holds the student's own samples, else demonstrations; no gradient through sampling.
    L = mean over reply tokens of beta KL(P || M) + (1 - beta) KL(Q || M),  M = beta P + (1 - beta) Q,  P teacher, Q student
    beta = 0 stands for the forward KL(P || Q), beta = 1 for the reverse KL(Q || P)

    The paper leaves lam and beta to the task and finds on-policy data (lam near 1) best.
    teacher: a model's name or directory, with the student's tokenizer. lam: chance of a batch of the student's samples.
    beta: between the forward KL (0) and the reverse KL (1). temperature: divides the logits, in sampling and in the loss.
    """
    return method(
        draw=demos(task),
        rollout=either(lam, sample(1, temperature=temperature), given("demo")),
        credit=member("distil", "policy", "demo"),
        learn=Learn(distil(beta), temperature=temperature),
        cast=stage(teacher=frozen(teacher)),
    )
