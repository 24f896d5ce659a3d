"""Decoding guided by the reward of what a model would write next."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, papers, register

Candidates = Annotated[int, Option("How many of the likeliest next tokens are tried.", at_least=1)]
Weight = Annotated[float, Option("How strongly the reward counts; at 0 nothing looks ahead.", at_least=0)]
Lookahead = Annotated[
    int, Option("Tokens that are written after a candidate before it is scored; 0 scores the text so far.", at_least=0)
]


@register(
    papers.TRANSFER_Q,
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


@register(
    papers.DEAL,
    family="decoding",
    summary="Beam search whose beams are ranked by log-prob and by the reward of a short lookahead.",
    when="Any reward or rule is to hold for replies of a model that you do not train, and compute is at hand.",
    trial={"beams": 2, "k": 2, "lookahead": 3},
)
def deal(
    task: draw.Source,
    *,
    beams: Annotated[int, Option("Beams that are kept after each token.", at_least=1)] = 4,
    k: Candidates = 10,
    lookahead: Lookahead = 32,
    weight: Weight = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """DeAL: decoding-time alignment as a search.

    score(y_<=t) = log pi(y_<=t | x) + weight h( y_<=t and the model's greedy continuation of `lookahead` tokens )

    Each beam is extended by its k likeliest tokens; of all extensions and finished beams the best `beams` are kept. The
    lookahead is discarded, and h counts once, not summed over tokens. The answer is the beam with the highest score.
    weight = 0 is beam search, without normalisation by length. h is the task's verifier, a reward function or a reward
    model. Departures: the paper's constants could not be checked, k and lookahead are common values; its start state,
    an alignment prompt, is --system-prompt.
    """
    scoring = score.scoring(task, reward_model)
    guide = rollout.by_lookahead(scoring, weight, k=k, length=lookahead, by="policy")
    return method(
        draw=draw.prompts(task),
        rollout=rollout.beams(beams, guide),
        score=scoring,
        select=chain(select.keep_best(1, "beam"), select.keep_best(1)),  # the answer; its own score is noted
        learn=learn.Learn(),
        models=roles(**score.rm_role(reward_model)),
    )
