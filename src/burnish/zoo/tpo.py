"""Triple Preference Optimization: Achieving Better Alignment with Less Data in a Single Step Optimization (arXiv
2405.16681).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.compositions import ListOptions
from burnish.papers import Paper
from burnish.select.pairs import ranking

TPO = Paper(
    "tpo",
    "2405.16681",
    "Triple Preference Optimization: Achieving Better Alignment with Less Data in a Single Step Optimization",
)

Scale = Annotated[float, Option("Scale of the margin.", above=0)]


@supplies("pairs", "tag:gold")
def gold_and_pair(score: str = "reward") -> Part:
    """TPO's triple: the best reply is the gold one (tag "gold"), the second best is preferred to the worst.

    Groups of fewer than three replies, or whose second best scores like the worst, are dropped, other replies as well.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            ranked = ranking([trace.scores[score] for trace in group.traces])
            if len(ranked) < 3 or group.traces[ranked[1]].scores[score] <= group.traces[ranked[-1]].scores[score]:
                continue
            group.traces = [group.traces[i] for i in (ranked[0], ranked[1], ranked[-1])]
            group.traces[0].tags |= {"gold"}
            group.pairs = [(1, 2)]
            kept.append(group)
        step.notes.add("dropped/no_preference", len(groups) - len(kept), len(groups))
        return kept

    return Part(
        name="gold_and_pair", call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"pairs", "tag:gold"})
    )


@register(
    TPO,
    family="preference",
    summary="Imitate the best of several replies and contrast two others, in one stage and without a reference.",
    when="Several scored replies a prompt, and no SFT stage before.",
    trial={"n": 6},
)
def tpo(
    task: draw.Source,
    *,
    n: Annotated[int, Option("Replies sampled for each prompt.", at_least=3)] = 5,
    beta: Scale = 0.01,
    alpha: Annotated[float, Option("Weight of imitating the gold reply.", at_least=0)] = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """TPO (triple preference optimisation).

    gold, w, l = the best, the second best and the worst of a row's rated replies; of n sampled ones where it has none
    L = mean over pairs of -log s( beta [log pi(y_w|x) - log pi(y_l|x)] ) + alpha mean over gold tokens of -log pi

    Rated replies are columns `responses` with `scores` or `ranks` (the paper's UltraFeedback; --reward-model rates them
    instead); sampled ones are the starting policy's, scored by the verifier. beta and alpha are those of its base
    models (0.05 for instruction-tuned ones). Prompts whose second best scores like the worst are dropped. alpha = 0 is
    CPO without SFT.
    """
    replies = ListOptions.of(task, rollout.sample(n, who="start"), "start", reward_model)
    writer = {"start": frozen("policy")} if replies.author == "start" else {}
    return method(
        draw=draw.prompts(task),
        rollout=replies.rollout,
        score=replies.score,
        select=gold_and_pair(),
        credit=credit.claim("gold", replies.author, tag="gold"),
        learn=learn.Learn(
            pairs.uniform_reference(beta, on=replies.author), learn.imitate(coef=alpha, on=learn.CLAIMED, name="gold")
        ),
        models=roles(**writer, **score.rm_role(reward_model)),
        lr_share=0.1,
    )
