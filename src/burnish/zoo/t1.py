"""T1: Advancing Language Model Reasoning through Reinforcement Learning and Inference Scaling (arXiv 2501.11651).

A penalty for degenerate replies: cut off, or repetitive.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.method import Method, Option, Sampling, chain, ema, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

T1 = Paper(
    "t1", "2501.11651", "T1: Advancing Language Model Reasoning through Reinforcement Learning and Inference Scaling"
)


def repeats(tokens: Tensor, n: int) -> int:
    """The count of the most frequent n-gram of tokens."""
    ids = tokens.tolist()
    grams = Counter(tuple(ids[i : i + n]) for i in range(len(ids) - n + 1))
    return max(grams.values(), default=0)


@supplies("score:sane")
def price_astray(price: float, *, n: int, times: int, score: str = "reward", author: str = "policy") -> Part:
    """scores["sane"] = r - price if the reply was cut off or an n-gram occurs more than `times` times; else r."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        astray = trace.note.get("stopped") == "length" or repeats(trace.tokens[trace.by(author)], n) > times
        trace.scores["sane"] = trace.scores[score] - (price if astray else 0.0)
        step.notes.add("astray", astray)

    return per_trace(
        write,
        name=f"price_astray({price:g})",
        reads=frozenset({f"score:{score}", f"tokens:{author}"}),
        writes=frozenset({"score:sane"}),
    )


@register(
    T1,
    family="policy",
    summary="Many hot samples, an entropy bonus, and a KL to a moving average of the policy.",
    when="You can sample many hot replies a prompt, and fear that the policy stops exploring.",
)
def t1(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    beta: Annotated[float, Option("Coefficient of the KL to the anchor.", at_least=0)] = 0.01,
    decay: Annotated[
        float, Option("Share of itself that the anchor keeps at each step.", at_least=0, at_most=1)
    ] = 0.99,
    entropy: opt.EntropyCoef = 0.001,
    price: Annotated[float, Option("What a reply that is cut off or repeats itself loses.", at_least=0)] = 1.0,
    ngram: Annotated[int, Option("Length of a repetition, in tokens.", at_least=1)] = 8,
    times: Annotated[int, Option("Repetitions that are still free.", at_least=0)] = 4,
    reward_model: opt.RewardModel = None,
) -> Method:
    """The reinforcement learning of T1; its first stage, SFT on long thoughts with trial and error, is `sft`.

    R_i = r_i - price [cut off or repeating itself] - beta log(pi_old / anchor)(y_i)
    A_i = R_i - mean of the other n - 1
    L = mean over replies of -A_i log pi(y_i) - entropy (mean over tokens of the policy's entropy)
    anchor <- decay anchor + (1 - decay) pi after every step

    From the paper: oversampling at a high temperature (64 replies), the entropy bonus as an auxiliary loss, the
    dynamic anchor, penalties on repetition and over-length. Its constants and the place of its KL were not found:
    the leave-one-out baseline is `rloo`'s and centres the KL over the group; garbage text is not looked for.
    Inference scaling is no part of training. The paper samples 64 replies.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(score.scoring(task, reward_model), price_astray(price, n=ngram, times=times)),
        credit=chain(
            credit.behaviour(),
            credit.ref("anchor"),
            credit.kl_in_score(beta, score="sane"),
            credit.leave_one_out(score="penalised"),
        ),
        learn=learn.Learn(learn.pg_reinforce(), learn.entropy_bonus(coef=entropy)),
        models=roles(anchor=ema("policy", decay), **score.rm_role(reward_model)),
        sampling=Sampling(1.2),
    )
