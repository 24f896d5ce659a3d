"""Training models that score the steps of replies."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor

from burnish import credit, draw, learn, rollout
from burnish.credit.step_labels import step_labels
from burnish.method import Method, Option, Part, Trace, chain, method, roles, trained
from burnish.methods import papers, register

_Separator = Annotated[str, Option("The text between two steps, where a row has no separator of its own.")]


def labelled_steps(low: float = 0.0, high: float = 1.0) -> Part:
    """The labels of steps as a stream, and their tokens claimed."""

    def where(trace: Trace) -> Tensor:
        return ~trace.streams["label"].isnan()

    return chain(step_labels(low=low, high=high), credit.claim("step", "demo", where=where, needs=("stream:label",)))


@register(
    papers.PRM,
    papers.ER_PRM,
    papers.PRLCODER,
    family="reward",
    summary="A process reward model: the chance that each step of a reply is right.",
    when="You have replies with labelled steps (burnish steps makes them), and want rewards inside a reply.",
    example="burnish train process_reward_model --task steps.jsonl",
)
def process_reward_model(task: draw.Source, *, separator: _Separator = "\n") -> Method:
    """A process reward model (arXiv 2211.14275, 2305.20050, 2312.08935): a linear head, read at the end of each step.

    L = mean over labelled steps of -y log sigmoid(s) - (1 - y) log sigmoid(-s)
    s = the head after the step's last token

    y is true or false (human labels, Math-Shepherd's hard labels), or a chance in [0, 1]: Math-Shepherd's share of
    right completions, ER-PRM's (1/eta) log mean exp(eta R) (arXiv 2412.11006), 0.5 for steps that say nothing. A
    step whose label is null is not trained on. A reply with a label on its last step alone trains an outcome reward
    model; so does a task with right and wrong replies in place of labelled steps.

    Departure: the papers' models predict the words + and - at the end of a step and take the softmax of these two; the
    head's sigmoid is that softmax as a function of the difference of the two. The product is saved as a
    sequence-classification model with one label; prm(DIR) and its relatives score with it (burnish rewards).
    """
    return method(
        draw=draw.labelled_steps(task),
        rollout=rollout.given_steps(separator=separator, reader="prm"),
        credit=labelled_steps(),
        learn=learn.Learn(learn.step_chance()),
        models=roles("prm", prm=trained(outputs=1)),
        product="prm",
    )
