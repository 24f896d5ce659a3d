"""The reward of not refusing."""

from __future__ import annotations

from typing import Annotated, Literal

from burnish import papers
from burnish.core.method import frozen
from burnish.core.option import Option
from burnish.rewards import MEASURED, Scorer, register_reward
from burnish.score.refusals import no_refusal
from burnish.tasks.source import Source
from burnish.verifiers.refusal_categories import CANNOT, SHOULD_NOT, categories_of


@register_reward(
    papers.REFUSAL_COMPOSITION,
    summary="How sure a classifier is that a reply does not refuse, and why replies refuse, as metrics.",
    when="You have trained refusal_classifier, and replies refuse what they need not.",
    example="burnish train grpo --reward 'math,refusal(runs/DIR/model, branch=cannot)*0.2'",
    trial={"model": "tiny", "cannot": "a", "should_not": "b"},
)
def refusal(
    task: Source,
    model: str,
    *,
    branch: Annotated[
        Literal["any", "cannot", "should_not"],
        Option("Which refusals count: what cannot be done, what should not, any."),
    ] = "any",
    cannot: Annotated[str, Option("The categories that it was trained with.")] = ",".join(CANNOT),
    should_not: Annotated[str, Option("The categories that it was trained with.")] = ",".join(SHOULD_NOT),
) -> Scorer:
    """1 - the largest chance of a category of the branch; the metrics refused/CATEGORY are the composition."""
    categories = categories_of(cannot, should_not)
    part = no_refusal(categories, branch, name=f"{MEASURED}refusal")
    return Scorer(part=part, models={"refusal": frozen(model, outputs=len(categories.names))})
