"""Sequence to Sequence Reward Modeling: Improving RLHF by Language Feedback (arXiv 2409.00162).

Replies and their corrections, for a sequence-to-sequence reward model (arXiv 2409.00162).
"""

from __future__ import annotations

from dataclasses import replace

from burnish import draw, learn
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.method import Method, method, roles
from burnish.methods import papers, register
from burnish.rollout.given import given_trace
from burnish.score.written import correction


@supplies("tag:corrected")
def corrected(*, author: str = "demo", reader: str = "policy") -> Rollout:
    """Two traces per task: the rejected reply corrected to the chosen one, and the chosen reply kept as it is."""

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model, settings = step.models[reader], step.settings
        limit, cut = min(model.context, settings.max_length or model.context), settings.on_long == "truncate"
        groups = []
        for task in tasks:
            traces = [
                given_trace(correction(task, str(task.given[side])), "chosen", author, model.chat, limit, i, cut)
                for i, side in enumerate(("rejected", "chosen"))
            ]
            groups.append(Group(task, [replace(trace, tags=frozenset({"corrected"})) for trace in traces]))
        return groups

    return Rollout(
        name="corrected",
        call=call,
        reads=frozenset({"task:prompt", "given:chosen", "given:rejected"}),
        writes=names("tokens", ("task", author)) | names("tag", "corrected"),
    )


@register(
    papers.SEQ2SEQ_RM,
    family="reward",
    summary="A model that corrects replies; where it would change nothing, a reply is good, token by token.",
    when="A score for every token is wanted, from pairs alone.",
)
def seq2seq_rm(task: draw.Source) -> Method:
    """A sequence-to-sequence reward model: a language model trained to correct replies.

    L = -log pi(y_w | x, y_l) - log pi(y_w | x, y_w), mean over tokens: corrections and the identity, half each

    As a reward, `corrector(DIR)`: tokens up to the first that the model would change count 1, later ones -1 where it
    would say another token and 0 where it agrees. Departure: of the paper the abstract and a figure were available; the
    sizes of these rewards are reconstructed.
    """
    return method(
        draw=draw.pairs(task),
        rollout=corrected(),
        learn=learn.Learn(learn.imitate(on="demo")),
        models=roles(),
        product="policy",
    )
