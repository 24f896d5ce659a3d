"""Recursive Introspection: Teaching Language Model Agents How to Self-Improve (arXiv 2407.18219)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.select.improved import RULES
from burnish.tasks.attempts import Attempt, Attempts

RISE = Paper("rise", "2407.18219", "Recursive Introspection: Teaching Language Model Agents How to Self-Improve")


@register(
    RISE,
    family="agents",
    summary="Try again until right; in every state reached, imitate the best of many replies, weighed by its reward.",
    when="A model should get better from attempt to attempt, and you have single questions with a verifier.",
    example="burnish train rise --task sort",
    trial={"n": 1, "attempts": 2, "candidates": 2, "updates": 1},
)
def rise(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    attempts: Annotated[int, Option("The most attempts of an episode.", at_least=1)] = 5,
    candidates: Annotated[int, Option("Replies sampled in each state, of which the best is kept.", at_least=1)] = 16,
    tau: Annotated[float, Option("Temperature of the weights.", above=0, unlimited=True)] = 0.4,
    rule: Annotated[str, Option("Which of the best replies are trained on.", choices=tuple(RULES))] = "all",
    expert: Annotated[
        str | None, Option("A stronger model that writes the replies: a name or directory, same tokenizer.")
    ] = None,
    updates: opt.Updates = 1,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Recursive introspection: reward-weighted regression on improved replies in the states that the policy visits.

    Attempts at a question, each after "try again", until one is right; s_k: the conversation before attempt k
    a*_k = the best of `candidates` replies in s_k, by the policy itself or by `expert`;  w_k = exp(r(a*_k) / tau)
    L = -(1 / N) sum over the N tokens of all a*_k of w_k log pi;  the attempts themselves are not trained on

    Weights are not normalised: a reply with r 0 weighs 1, one with r 1 exp(1 / 0.4) = 12.2. tau = inf is SFT on all
    the improved replies. rule: all, better than the attempt before, best so far, or only right ones. Departures: a step
    plays new episodes and makes one pass, where the paper builds a data set in each round; the text between attempts is
    ours. Left out: the majority over attempts in inference, which is a matter of asking.
    """

    def own_score(made: Sequence[Attempt], over: bool) -> float:
        return made[-1].score

    improver = "policy" if expert is None else "expert"
    return method(
        draw=draw.prompts(Attempts(task, attempts, own_score), "env"),
        rollout=rollout.improved(n, candidates, turns=attempts, temperature=temperature, improver=improver),
        score=score.verify(task, author=improver),
        select=select.best_of_states(rule),
        credit=chain(credit.reward_weights(tau), credit.last_turn("sft", "improved")),
        learn=learn.Learn(learn.imitate_weighted(on=learn.CLAIMED), updates=updates, logp_temperature=1.0),
        models=roles() if expert is None else roles(expert=frozen(expert)),
    )
