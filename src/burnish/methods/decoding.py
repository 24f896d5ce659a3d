"""Choosing among samples: nothing is trained, or only what was chosen is imitated."""

from __future__ import annotations

from burnish.cast.roles import stage
from burnish.credit.members import member
from burnish.draw.tasks import prompts
from burnish.learn.learn import Learn
from burnish.learn.terms import imitate
from burnish.method import Method, method
from burnish.methods.table import register
from burnish.rollout.sample import sample
from burnish.score.model import rm_role, scoring
from burnish.select.compare import keep_best
from burnish.tasks.source import Source

_NOTE = "Learning to summarize from human feedback"


@register(
    family="decoding",
    catalogue=("best-of-n",),
    title=_NOTE,
    arxiv="2009.01325",
    summary="Sample n replies and keep the best-scored: no training.",
    when="You may not train, and can spend n times the compute on every answer.",
    trial={"n": 4},
)
def best_of_n(task: Source, *, n: int = 16, temperature: float = 1.0, reward_model: str | None = None) -> Method:
    """Best-of-n decoding: y = argmax over n samples of the score.

    KL(best-of-n || policy) <= log n - (n - 1)/n (arXiv 2401.01879). There is no loss; the run records what was chosen and the
    score before and after choosing. Scored by the verifier itself, the chosen score is pass@n.
    n: replies sampled for each prompt. reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        select=keep_best(1),
        learn=Learn(),
        cast=stage(**rm_role(reward_model)),
    )


@register(
    family="decoding",
    catalogue=("best-of-n",),
    title=_NOTE,
    arxiv="2009.01325",
    summary="Imitate the best of n samples.",
    when="Best-of-n works for you and you want its answers at the price of one.",
    trial={"n": 4},
)
def best_of_n_distill(
    task: Source, *, n: int = 16, temperature: float = 1.0, reward_model: str | None = None
) -> Method:
    """Best-of-n distillation: SFT on the best-scored of n fresh samples (rejection-sampling fine-tuning, one best reply a prompt).

    L = -(1/N) sum over the N tokens of the chosen replies of log pi

    n: replies sampled for each prompt. reward_model: the directory of a reward model, in place of the task's own verifier.
    """
    return method(
        draw=prompts(task),
        rollout=sample(n, temperature=temperature),
        score=scoring(task, reward_model),
        select=keep_best(1),
        credit=member("sft", "policy"),
        learn=Learn(imitate()),
        cast=stage(**rm_role(reward_model)),
    )
