"""Boosting Tool Use of Large Language Models via Iterative Reinforced Fine-Tuning (arXiv 2501.09766)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.core.schedules import after, before
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, Phase, roles
from burnish.methods import opt, register
from burnish.papers import Paper

ITOOL = Paper("itool", "2501.09766", "Boosting Tool Use of Large Language Models via Iterative Reinforced Fine-Tuning")

Rounds = Annotated[int, Option("Visits to each tree.", at_least=1)]
Width = Annotated[int, Option("Replies that are proposed in each state.", at_least=2)]
Explore = Annotated[float, Option("How strongly the search prefers what it has visited less.", at_least=0)]


@register(
    ITOOL,
    family="agents",
    summary="SFT from easy to hard, then tree search over fragments of wrong replies and SimPO on siblings.",
    when="Tool calls with a gold answer: SFT has stopped to help, and replies go wrong at single fragments.",
    example="burnish train itool --task sort",
    trial={"warmup": 0, "rounds": 6, "width": 3, "size": 4, "enough": 2.0},
)
def itool(
    task: draw.Source,
    *,
    warmup: Annotated[int, Option("Steps of SFT from easy to hard.", at_least=0)] = 20,
    rounds: Rounds = 16,
    width: Width = 3,
    size: Annotated[int, Option("Tokens of a fragment.", at_least=1)] = 8,
    enough: Annotated[float, Option("A task whose sampled reply scores this much is not searched.")] = 1.0,
    gap: Annotated[float, Option("The least distance of the values of a pair.", at_least=0)] = 0.1,
    c: Explore = 1.0,
    beta: opt.Beta = 2.0,
    gamma: Annotated[float, Option("SimPO's margin.", at_least=0)] = 1.0,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """iTool: a warm-up, then iterated tree search and preference learning.

    Warm-up: SFT on demonstrations in three stages, the shortest third of those drawn first, the longest last
    Then, for tasks whose sampled reply scores less than `enough`: a tree over fragments, values by the verifier's
    score of completed replies;  pairs (w, l) of siblings whose values differ by more than gap
    L = -log s( beta/|w| log pi(w) - beta/|l| log pi(l) - gamma ),  over the fragments' tokens,  mean over pairs

    The loss is SimPO's (the paper's best choice). Its constants could not be read: all numbers here are ours, and
    difficulty by length is too. The score is the task's: a graded match of calls is a reward (--reward). Without a
    tree (size as large as a reply) it is SimPO on sampled replies.
    """
    first = Phase(
        name="warmup",
        times=before(warmup),
        draw=draw.easier_first(draw.demos(task), 3, warmup),
        rollout=rollout.given("demo"),
        learn=learn.Learn(learn.imitate(on="demo")),
    )
    main = Phase(
        times=after(warmup),
        draw=draw.prompts(task),
        rollout=rollout.fragments(
            task, rounds, width, size, rule=rollout.uct(c), enough=enough, temperature=temperature
        ),
        select=select.sibling_pairs(gap),
        credit=credit.last_turn("reply", "node"),
        learn=learn.Learn(pairs.simpo(beta, gamma, on=learn.CLAIMED), logp_temperature=1.0),
    )
    return Method(models=roles(), phases=(first, main), lr_share=0.1)
