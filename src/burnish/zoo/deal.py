"""DeAL: Decoding-time Alignment for Large Language Models (arXiv 2402.06147)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

DEAL = Paper("deal", "2402.06147", "DeAL: Decoding-time Alignment for Large Language Models")

Candidates = Annotated[int, Option("How many of the likeliest next tokens are tried.", at_least=1)]
Weight = Annotated[float, Option("How strongly the reward counts; at 0 nothing looks ahead.", at_least=0)]
Lookahead = Annotated[
    int, Option("Tokens that are written after a candidate before it is scored; 0 scores the text so far.", at_least=0)
]


@register(
    DEAL,
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
