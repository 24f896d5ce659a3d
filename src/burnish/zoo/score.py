"""Training Language Models to Self-Correct via Reinforcement Learning (arXiv 2409.12917)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Annotated

import torch

from burnish import credit, draw, learn, rollout
from burnish.core.parts import Part, supplies
from burnish.core.schedules import after, before
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.turns import turn_returns
from burnish.method import Method, Option, Phase, Trace, chain, frozen, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.tasks.attempts import Attempt, Attempts

SCORE = Paper("score", "2409.12917", "Training Language Models to Self-Correct via Reinforcement Learning")

Episodes = Annotated[int, Option("Episodes of each task, which are compared with each other.", at_least=2)]


@supplies("stream:adv")
def own_turns(*, author: str = "policy") -> Part:
    """A = r_k - mean r_k on the tokens of the k-th turn, over the episodes of a group that have one: no discounting,
    each turn is credited with its own reward alone.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            step.notes.add("zero_variance_groups", len({trace.scores["reward"] for trace in group.traces}) == 1)
            rewards = [[reward for *_, reward in turn_returns(trace, 0.0, author)] for trace in group.traces]
            longest = max((len(own) for own in rewards), default=0)
            means = [statistics.fmean([own[k] for own in rewards if len(own) > k]) for k in range(longest)]
            for trace in group.traces:
                trace.streams["adv"] = torch.zeros(len(trace))
                for k, (start, end, _, reward) in enumerate(turn_returns(trace, 0.0, author)):
                    trace.streams["adv"][start:end] = reward - means[k]
        return groups

    return Part(
        name="own_turns",
        call=call,
        reads=frozenset({"score:reward", "turn_score:reward", f"tokens:{author}"}),
        writes=frozenset({"stream:adv"}),
    )


@register(
    SCORE,
    family="agents",
    summary="Two attempts at a question; the second is paid for being better than the first.",
    when="You want a model that corrects itself without being told what was wrong.",
    example="burnish train score --task sort",
    trial={"n": 3, "first_stage": 0},
)
def score(
    task: draw.Source,
    *,
    n: Episodes = 8,
    alpha: Annotated[float, Option("Reward of the change from the first attempt to the second.", at_least=0)] = 10.0,
    beta: opt.KLCoef = 0.01,
    hold: Annotated[float, Option("KL coefficient that holds the first attempt in the first stage.", at_least=0)] = 0.1,
    first_stage: Annotated[int, Option("Steps of the first stage.", at_least=0)] = 20,
) -> Method:
    """SCoRe: self-correction by multi-turn RL in two stages.

    Stage I   A on the second attempt only, from r(y2);  L = REINFORCE + beta KL on both + hold KL on the first attempt
    Stage II  rewards r(y1) and r(y2) + alpha (r(y2) - r(y1)), each credited to its own attempt (gamma = 0); beta KL

    A = reward of the attempt - mean over the episodes of the task;  KL to the starting policy by k3 at the tokens
    alpha = 0 is two-turn REINFORCE in stage II. The paper's alpha is 10, beta 0.01 and hold 0.1 (mathematics) or 0.25
    (code); its stages have 1,500 to 3,000 steps together. Departures: the paper does not name its baseline, the mean of
    the group is ours; its estimator of the KL is not said; the text between the attempts is ours.
    """

    def second_only(made: Sequence[Attempt], over: bool) -> float:
        return made[-1].score if over else 0.0

    def progress(made: Sequence[Attempt], over: bool) -> float:
        return made[-1].score + (alpha * (made[-1].score - made[0].score) if over else 0.0)

    again = "There might be an error in the answer above. Correct it, and answer again."
    sources = [Attempts(task, 2, pay, until_right=False, again=again) for pay in (second_only, progress)]
    plays = [rollout.play(n, turns=2) for _ in sources]
    draws = [draw.prompts(source, "env") for source in sources]
    surrogate = learn.pg_reinforce(norm=learn.seq_sum_mean)
    first = Phase(
        name="first",
        times=before(first_stage),
        draw=draws[0],
        rollout=plays[0],
        credit=chain(own_turns(), credit.ref(), credit.claim("hold", "policy", where=_first_reply)),
        learn=learn.Learn(
            surrogate,
            learn.kl_k3(coef=beta, norm=learn.seq_sum_mean),
            learn.kl_k3(coef=hold, norm=learn.seq_sum_mean, on=learn.CLAIMED, name="hold"),
        ),
    )
    main = Phase(
        times=after(first_stage),
        draw=draws[1],
        rollout=plays[1],
        credit=chain(own_turns(), credit.ref()),
        learn=learn.Learn(surrogate, learn.kl_k3(coef=beta, norm=learn.seq_sum_mean)),
    )
    return Method(models=roles(ref=frozen("policy")), phases=(first, main))


def _first_reply(trace: Trace) -> torch.Tensor:
    """[T]: the tokens of the policy's first turn."""
    found = torch.zeros(len(trace), dtype=torch.bool)
    for turn, start, end in trace.spans():
        if turn.author == "policy":
            found[start:end] = True
            break
    return found
