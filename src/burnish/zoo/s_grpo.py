"""S-GRPO: Early Exit via Reinforcement Learning in Reasoning Models (arXiv 2505.07686)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

S_GRPO = Paper("s-grpo", "2505.07686", "S-GRPO: Early Exit via Reinforcement Learning in Reasoning Models")

EXIT = "Time is limited, stop thinking and start answering.\n</think>\n\n"


@register(
    S_GRPO,
    family="policy",
    summary="One thought, answered early at several places: the sooner right, the better.",
    when="Replies are right but think too long, and most of the thought comes after the answer is known.",
    trial={"exits": 3},
)
def s_grpo(
    task: draw.Source,
    *,
    exits: Annotated[int, Option("Early exits of each reply; the group is one larger.", at_least=1)] = 7,
    eps: opt.ClipRange = 0.2,
    phrase: Annotated[str, Option("What ends a thought early.")] = EXIT,
    temperature: opt.Temperature = 1.0,
    updates: opt.Updates = 1,
) -> Method:
    """S-GRPO: a serial group. One reply is sampled whole; at `exits` random places of it an answer is asked for.

    From the earliest exit to the whole reply: r_i = 1 / 2^(k - 1) for the k-th right answer, 0 for a wrong one
    A_i = r_i - mean r (no std)
    L = mean over replies of mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)

    No KL. A reply's tokens are the policy's: its share of the thought, and its answer; the phrase is not trained.
    The number of exits and eps are not printed. Departure: where a reply marks no end of its thought (</think>),
    all of it counts as thought.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.early_exits(exits, phrase, temperature=temperature),
        score=chain(score.verify(task), score.halved_after_each_right()),
        credit=chain(credit.group_relative(std=False, score="early"), credit.behaviour()),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.seq_mean), updates=updates),
        models=roles(),
    )
