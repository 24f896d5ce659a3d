"""Rewards from a model that predicts, from the beginning of a reply, how good the whole will be."""

from __future__ import annotations

from burnish import papers
from burnish.core.method import frozen
from burnish.rewards import Scorer, register_reward
from burnish.rewards.process import Steps
from burnish.score.process import dense_steps, number
from burnish.score.segments import segmentation
from burnish.score.step_rewards import Form, as_they_are, gains
from burnish.tasks.source import Source

TRAINED = "You have trained an evaluator of prefixes (burnish steps --rule outcome, burnish train process_regression)"


def _evaluated(name: str, model: str, steps: str | int, form: Form) -> Scorer:
    part = dense_steps("evaluator", segmentation(steps), form, name=name, read=number)
    return Scorer(part=part, models={"evaluator": frozen(model, outputs=1)}, dense=True)


@register_reward(
    papers.IRCOCO,
    summary="How much each token raises the quality that an evaluator foresees for the whole reply.",
    when=f"{TRAINED}, and want rewards at every token that cannot be raised by length.",
    example="burnish train a2c --reward 'prefix_gain(runs/DIR/model)'",
    trial={"model": "tiny"},
)
def prefix_gain(task: Source, model: str, *, steps: Steps = 1) -> Scorer:
    """r_t = e(y_1..t) - e(y_1..t-1), e(nothing) = 0, e the evaluator's number after token t (arXiv 2401.16637).

    The sum is the evaluator's number of the whole reply: a potential-based reward. steps=whole is that number at the
    end alone, a learned outcome reward. The evaluator must have learned from whole replies of the policy, not of the
    reference. The paper trains by actor-critic after SFT.
    """
    return _evaluated("prefix_gain", model, steps, gains)


@register_reward(
    papers.IRCOCO,
    summary="The quality that an evaluator foresees for the whole reply, at every token.",
    when="As the baseline of prefix_gain: its sum grows with the length of a reply.",
    example="burnish train a2c --reward 'prefix_score(runs/DIR/model)*0.01'",
    trial={"model": "tiny"},
)
def prefix_score(task: Source, model: str, *, steps: Steps = 1) -> Scorer:
    """r_t = e(y_1..t), e the evaluator's number after token t (the first reward of arXiv 2401.16637).

    Where e is positive, longer replies earn more: compare prefix_gain.
    """
    return _evaluated("prefix_score", model, steps, as_they_are)
