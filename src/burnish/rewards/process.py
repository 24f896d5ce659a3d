"""Rewards from a process reward model: one number for a reply, or a reward at the end of each step.

The model scores the steps into which `steps` splits a reply (score/segments.py): use the split that it was trained on.
"""

from __future__ import annotations

from typing import Annotated

from burnish import papers
from burnish.core.method import frozen
from burnish.core.option import Option
from burnish.rewards import MEASURED, Scorer, register_reward
from burnish.score.process import Read, aggregated_steps, centred_chance, chance, dense_steps
from burnish.score.segments import segmentation
from burnish.score.step_rewards import AGGREGATES, Form, as_they_are, before_answer, chained, clipped, deltas, per_step
from burnish.tasks.source import Source

Steps = Annotated[
    str | int,
    Option("What a step is: lines, sentences, sub_sentences, paragraphs, whole, after:TEXT, or a number of tokens."),
]
AnswerSteps = Annotated[int, Option("Final steps that are the answer and earn nothing.", at_least=0)]
Limit = Annotated[float, Option("The score from which on a step earns nothing.", at_least=0, at_most=1)]
TRAINED = "You have trained a process reward model (burnish train process_reward_model)"


@register_reward(
    papers.PRM,
    papers.ER_PRM,
    summary="A process reward model's scores of the steps of a reply, as one number.",
    when=f"{TRAINED}, and choose or train on whole replies (best_of_n, grpo).",
    example="burnish train best_of_n --reward 'prm(runs/DIR/model, aggregate=min)'",
    trial={"model": "tiny"},
)
def prm(
    task: Source,
    model: str,
    aggregate: Annotated[str, Option("How the scores of steps become one.", choices=tuple(AGGREGATES))] = "min",
    *,
    steps: Steps = "lines",
) -> Scorer:
    """r(y) = aggregate over the steps k of s_k, s_k = sigmoid(head) at the last token of step k.

    min (Math-Shepherd, arXiv 2312.08935; ER-PRM, arXiv 2412.11006) ignores the number of steps; prod
    (PRM800K, arXiv 2305.20050) is the chance that all are right, and falls with their number; last is what an outcome
    model would say; mean rewards a right step as much as a wrong one costs. With steps=whole all four are the score of
    an outcome reward model (Uesato et al., arXiv 2211.14275).
    """
    part = aggregated_steps("prm", segmentation(steps), AGGREGATES[aggregate], name=f"{MEASURED}prm")
    return Scorer(part=part, models={"prm": frozen(model, outputs=1)})


def _dense(name: str, model: str, steps: str | int, form: Form, read: Read = chance) -> Scorer:
    """A scorer whose token rewards are a form of the model's scores of steps."""
    part = dense_steps("prm", segmentation(steps), form, name=name, read=read)
    return Scorer(part=part, models={"prm": frozen(model, outputs=1)}, dense=True)


@register_reward(
    papers.PRM,
    papers.PRLCODER,
    summary="A process reward model's score at the end of each step: the plain dense reward.",
    when="As the baseline of prm_delta: its sum grows with the number of steps.",
    example="burnish train ppo --reward 'success,prm_steps(runs/DIR/model)*0.1'",
    trial={"model": "tiny"},
)
def prm_steps(
    task: Source,
    model: str,
    *,
    low: Annotated[float, Option("The reward of a step that is surely wrong; a right one earns 1.", at_most=1)] = -1.0,
    steps: Steps = "lines",
) -> Scorer:
    """r_k = low + (1 - low) s_k at the last token of step k; s_k = sigmoid(head). With low = -1 it is 2 s_k - 1.

    With lines of programs it is the reward of PRLCoder (arXiv 2502.01715), whose formula has no outcome term: give it
    alone, without success. PRLCoder's penalty log(pi / pi_old) is 0 when a reply is sampled, because pi is pi_old then;
    that is ppo --kl 0. The usual choice is the frozen reference: ppo --kl 0.05. Every step with a positive reward
    adds to the sum, so a policy can raise it by writing more of them (arXiv 2410.15115): compare prm_delta and
    prm_per_line. With steps=whole it is an outcome reward.
    """
    return _dense("prm_steps", model, steps, as_they_are, lambda head: low + (1 - low) * head.sigmoid())


@register_reward(
    papers.CLIP_DELTA,
    summary="Steps that a process reward model scores below a limit lose; no step earns anything.",
    when=f"{TRAINED}, and long replies shall not earn more. Usually with delta: prm_clip_delta.",
    example="burnish train ppo --reward 'success,prm_clip(runs/DIR/model)*0.5'",
    trial={"model": "tiny"},
)
def prm_clip(
    task: Source, model: str, limit: Limit = 0.5, *, answer: AnswerSteps = 1, steps: Steps = "lines"
) -> Scorer:
    """r_k = min(s_k - limit, 0) for the process steps, 0 for the answer (Clip, arXiv 2410.15115).

    The paper chooses the limit so that most steps give 0; its value is not known to us, 0.5 is ours. The weight of the
    reward is the paper's alpha; with weight 0 the success reward alone is left.
    """
    return _dense("prm_clip", model, steps, before_answer(clipped(limit), answer))


@register_reward(
    papers.CLIP_DELTA,
    summary="Each step earns its process score minus the next one's: more steps earn nothing.",
    when=f"{TRAINED}, and train with token rewards (ppo) beside a success reward.",
    example="burnish train ppo --reward 'success,prm_delta(runs/DIR/model)*0.5'",
    trial={"model": "tiny"},
)
def prm_delta(task: Source, model: str, *, answer: AnswerSteps = 1, steps: Steps = "lines") -> Scorer:
    """r_k = s_k - s_{k+1} for the process steps, the last of them keeps its score, the answer earns 0 (Delta, arXiv
    2410.15115).

    The return from step k on is s_k, whatever follows: repeating steps earns nothing. That needs gamma = 1, the
    default of ppo. A method without token rewards adds the sum, which is s_1, the score of the first step.
    """
    return _dense("prm_delta", model, steps, before_answer(deltas, answer))


@register_reward(
    papers.CLIP_DELTA,
    summary="Clip, then delta: the return from a step on is at most 0, and more steps earn nothing.",
    when=f"{TRAINED}, and train with token rewards (ppo) beside a success reward: the combination of the paper.",
    example="burnish train ppo --reward 'success,prm_clip_delta(runs/DIR/model, limit=0.5)*0.5'",
    trial={"model": "tiny"},
)
def prm_clip_delta(
    task: Source, model: str, limit: Limit = 0.5, *, answer: AnswerSteps = 1, steps: Steps = "lines"
) -> Scorer:
    """c_k = min(s_k - limit, 0), r_k = c_k - c_{k+1}, the last process step keeps c_k, the answer earns 0.

    The return from step k on is c_k <= 0 (Clip and Delta combined, arXiv 2410.15115). limit 1 is delta less 1.
    """
    return _dense("prm_clip_delta", model, steps, before_answer(chained(clipped(limit), deltas), answer))


@register_reward(
    papers.PRM_GUIDED_CODE_RL,
    summary="A process reward model's score at the end of each line, divided by the number of lines.",
    when=f"{TRAINED} on lines of programs, and train with token rewards (ppo) beside the outcome of the tests.",
    example="burnish train ppo --reward 'success,prm_per_line(runs/DIR/model)' --critic runs/DIR/model",
    trial={"model": "tiny"},
)
def prm_per_line(task: Source, model: str, *, steps: Steps = "lines") -> Scorer:
    """r_k = (2 s_k - 1) / T at the last token of line k of T lines (arXiv 2410.17621).

    The sum is the mean score, so that more lines earn nothing. Labels of 1, -1 and 0 (comments, blank lines) are 1, 0
    and 0.5 in the data: burnish steps --rule first_error --neutral comments writes them. With one line it is an outcome
    reward. Departure: the model is trained by cross-entropy, the paper's by regression
    (burnish train process_regression does that).
    """
    return _dense("prm_per_line", model, steps, per_step, centred_chance)
