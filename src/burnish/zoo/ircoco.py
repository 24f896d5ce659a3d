"""IRCoCo: Immediate Rewards-Guided Deep Reinforcement Learning for Code Completion (arXiv 2401.16637)."""

from __future__ import annotations

import math
from typing import Annotated

from burnish import draw, learn, rollout
from burnish.method import Method, Option, method, roles, trained
from burnish.methods import papers, register
from burnish.methods.process_reward import labelled_steps

_Separator = Annotated[str, Option("The text between two steps, where a row has no separator of its own.")]


@register(
    papers.IRCOCO,
    papers.PRM_GUIDED_CODE_RL,
    family="reward",
    summary="A model that predicts a number at the end of each step: the final metric, or a line's label.",
    when="The labels of steps are numbers to be predicted as they are, such as the final score of the whole reply.",
    example="burnish train process_regression --task steps.jsonl",
)
def process_regression(task: draw.Source, *, separator: _Separator = "\n") -> Method:
    """A model of prefixes, trained by regression: a linear head, read at the end of each step.

    L = mean over labelled steps of (s - y)^2,   s the head after the step's last token

    With y the metric of the whole reply at every step it is IRCoCo's evaluator (arXiv 2401.16637), which predicts from
    a partial completion how good the finished one will be: burnish steps --rule outcome makes such data from replies of
    the policy. With y = 1, -1 or 0 for right, wrong and neutral lines it is the line model of arXiv 2410.17621.
    """
    return method(
        draw=draw.labelled_steps(task),
        rollout=rollout.given_steps(separator=separator, reader="prm"),
        credit=labelled_steps(-math.inf, math.inf),
        learn=learn.Learn(learn.step_regression()),
        models=roles("prm", prm=trained(outputs=1)),
        product="prm",
    )
