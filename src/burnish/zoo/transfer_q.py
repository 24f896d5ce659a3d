"""Transfer Q Star: Principled Decoding for LLM Alignment (arXiv 2405.20495)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score, select
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

TRANSFER_Q = Paper("transfer-q", "2405.20495", "Transfer Q Star: Principled Decoding for LLM Alignment")

Candidates = Annotated[int, Option("How many of the likeliest next tokens are tried.", at_least=1)]
Weight = Annotated[float, Option("How strongly the reward counts; at 0 nothing looks ahead.", at_least=0)]
Lookahead = Annotated[
    int, Option("Tokens that are written after a candidate before it is scored; 0 scores the text so far.", at_least=0)
]


@register(
    TRANSFER_Q,
    family="decoding",
    summary="Each likely next token is tried: an aligned model writes on, and the text's reward guides the choice.",
    when="You have a reward and an aligned model of the same tokenizer, and can pay k lookaheads for each token.",
    trial={"baseline": "tiny", "n": 2, "k": 2, "lookahead": 3},
)
def transfer_q(
    task: draw.Source,
    *,
    baseline: Annotated[str, Option("The aligned model that writes on, with the tokenizer of the run's model.")],
    k: Candidates = 10,
    lookahead: Lookahead = 20,
    weight: Weight = 1.0,
    n: opt.Replies = 1,
    temperature: Annotated[float, Option("The temperature of the choice among the k; 0 is greedy.", at_least=0)] = 0.7,
    reward_model: opt.RewardModel = None,
) -> Method:
    """Transfer Q* (direct transfer).

    log p(a) = log pi(a) + weight r( x, y_<t, a, the baseline's greedy continuation ) + const  over the k likeliest a

    Tokens outside of the k are cut. weight = 1 / alpha of the paper. weight = 0 is pi among its k likeliest tokens;
    with the run's model as the baseline it is controlled decoding by rollouts. k, lookahead and weight are those of
    the released code. Departures: that code takes one model for log-probs and continuations, here they are two, as in
    the paper; continuations are greedy, one for each candidate, where the paper has an expectation; the indirect
    transfer, from a baseline of another reward, is left out. Scored by the task's verifier or by a reward model.
    """
    scoring = score.scoring(task, reward_model)
    guide = rollout.by_lookahead(scoring, weight, k=k, length=lookahead, by="baseline")
    return method(
        draw=draw.prompts(task),
        rollout=rollout.by_candidates(n, guide, temperature=temperature),
        score=scoring,
        select=select.keep_best(n),  # all of them
        learn=learn.Learn(),
        models=roles(**({"baseline": frozen(baseline)} if weight else {}), **score.rm_role(reward_model)),
    )
