"""What methods share that search a tree of steps: options, and how a searched tree teaches or answers."""

from __future__ import annotations

from typing import Annotated, Literal

from torch import Tensor

from burnish import credit, draw, learn, score, select
from burnish.credit.step_labels import turn_labels
from burnish.learn.term import Term
from burnish.method import Method, Option, Part, Rollout, Trace, chain, frozen, method, roles, trained

Rounds = Annotated[int, Option("Visits to each tree.", at_least=1)]
Width = Annotated[int, Option("Next steps that are proposed at each node.", at_least=2)]
Depth = Annotated[int, Option("Steps of a reply, at most; the last goes to its end.", at_least=1)]
Explore = Annotated[float, Option("How strongly the search prefers what it has visited less.", at_least=0)]
StepBy = Annotated[str, Option("What a step is: lines, paragraphs, after:TEXT.")]
Start = Annotated[
    str | None, Option("The model of values that is trained on; unset: the run's model, with a new head.")
]
Scorer = Annotated[str, Option("A model of values, as the method that trains it saves it with --saves.")]
Saves = Annotated[Literal["policy", "prm"], Option("Which of the two trained models the run saves.")]
PATHS = ("tag:path", "tag:right", "turn_score:value")
SMALL = {"rounds": 3, "width": 3}


def taught() -> Part:
    """The labels of steps as a stream, and what is trained on: right paths by "sft", the ends of labelled steps by
    "step". A step that several paths share counts once.
    """

    def labelled(trace: Trace) -> Tensor:
        return ~trace.streams["label"].isnan()

    return chain(
        turn_labels("value"),
        credit.claim("step", "policy", positions="last", where=labelled, needs=("stream:label",)),
        credit.claim("sft", "policy", tag="right"),
    )


def self_taught(
    task: draw.Source, searched: Rollout, steps: Term, *, sft: float, prm: str | None, prm_lr: float, saves: str
) -> Method:
    """A search whose trees teach both models: the policy by right paths, the model of values by the term `steps`."""
    return method(
        draw=draw.prompts(task),
        rollout=searched,
        credit=taught(),
        learn=learn.Learn(learn.imitate(coef=sft, on=learn.CLAIMED), steps, logp_temperature=1.0),
        models=roles(prm=trained(prm or "base", outputs=1, lr=prm_lr)),
        product=saves,
    )


def answered(task: draw.Source, searched: Rollout, directory: str) -> Method:
    """A search that answers, with a model of values that is not trained."""
    return method(
        draw=draw.prompts(task),
        rollout=searched,
        score=score.scoring(task, None),
        select=select.keep_best(1),  # the answer; its score is noted
        learn=learn.Learn(),
        models=roles(prm=frozen(directory, outputs=1)),
    )
