"""Alignment at decoding time: choosing among samples, and models that guide each other token by token."""

from __future__ import annotations

from burnish import draw, learn, rollout, score, select
from burnish.method import Method, method, roles
from burnish.methods import Arguments, opt, papers, register, variant
from burnish.methods.self_imitation import raft


@register(
    papers.BEST_OF_N,
    family="decoding",
    summary="Sample n replies and keep the best-scored: no training.",
    when="You may not train, and can spend n times the compute on every answer.",
)
def best_of_n(task: draw.Source, *, n: opt.Replies = 16, reward_model: opt.RewardModel = None) -> Method:
    """Best-of-n decoding: y = argmax over n samples of the score.

    KL(best-of-n || policy) <= log n - (n - 1)/n (arXiv 2401.01879). There is no loss; the run records what was
    chosen and the score before and after choosing. Scored by the verifier itself, the chosen score is pass@n.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        select=select.keep_best(1),
        learn=learn.Learn(),
        models=roles(**score.rm_role(reward_model)),
    )


@register(
    papers.BEST_OF_N,
    family="decoding",
    summary="Imitate the best of n samples.",
    when="Best-of-n works for you and you want its answers at the price of one.",
)
@variant(raft)
def best_of_n_distill(*, n: opt.Replies = 16) -> Arguments:
    """Best-of-n distillation: SFT on the best-scored of n fresh samples (rejection-sampling fine-tuning).

    L = -(1/N) sum over the N tokens of the chosen replies of log pi
    """
    return {"n": n, "best": 1, "updates": 1}
