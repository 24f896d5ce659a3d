"""Optimizing Test-Time Compute via Meta Reinforcement Fine-Tuning (arXiv 2503.07572)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, papers, register


@register(
    papers.MRT,
    family="policy",
    summary="Continuations of a prefix are compared with the answers that are forced right after it.",
    when="Replies think at length, and more thinking should pay only where it brings the answer nearer.",
    trial={"n": 2, "answers": 2},
    example="burnish train mrt --task multiply",
)
def mrt(
    task: draw.Source,
    *,
    n: opt.Replies = 4,
    answers: Annotated[int, Option("Answers that are forced after the prefix.", at_least=1)] = 4,
    alpha: Annotated[float, Option("Weight of progress; 0: the group's mean is the baseline.", at_least=0)] = 1.0,
    closing: Annotated[str, Option("The words that stop a thought; thinking models: </think>\\n.")] = "\\nanswer:",
    episodes: Annotated[str, Option("What an episode is: lines, paragraphs, sentences, after:TEXT.")] = "lines",
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Meta reinforcement fine-tuning, in the form of its released code.

    s = the prompt and a prefix of a reply that ends with an episode;  J(s) = mean reward of `answers` forced answers
    A_i = r_i - (1 - alpha) mean r - alpha J(s)  for n continuations of s, on the tokens after s
    L = mean over replies of mean over tokens of [ -min(rho A, clip(rho, 1-eps, 1+eps) A) + beta k3 ]

    alpha = 1 is the code's: the reward of the forced answer takes the place of the group's mean, so a continuation is
    right to go on only if that beats stopping. alpha = 0 is GRPO on continuations, without the division by the spread.
    Departures: the prefix is of this step's policy, where the code continues stale ones; J is a mean of several
    answers. The form with a bonus for each episode is the reward progress_bonus; the paper found it worse. Cost: a step
    samples one reply, n continuations and `answers` answers a prompt.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.continued_or_forced(
            n, answers, score.segmentation(episodes), closing.replace("\\n", "\n"), temperature=temperature
        ),
        score=score.verify(task),
        credit=chain(credit.over_forced(alpha), credit.behaviour(), credit.ref()),
        learn=learn.Learn(learn.pg_clip(eps, norm=learn.seq_mean), learn.kl_k3(coef=beta, norm=learn.seq_mean)),
        models=roles(ref=frozen("policy")),
    )
