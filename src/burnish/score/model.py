"""Scores from a reward model: one number at the last token of the trace."""

from __future__ import annotations

from torch import Tensor

from burnish.core.parts import Part, supplies
from burnish.core.roles import Role, frozen
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.score.reading import end_scores, in_words_of
from burnish.score.verify import verify
from burnish.tasks.source import Source


@supplies("score:reward")
def reward_model(model: str = "rm", *, author: str = "policy", name: str = "reward") -> Part:
    """scores[name] = the model's score at the last token of the trace (see `last_token`).

    A model with another tokenizer reads the same words in tokens and a chat template of its own.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        read = [trace for group in in_words_of(model, groups, author, step) for trace in group.traces]
        found = end_scores(read, step.models[model], step.settings.token_budget)
        for trace, score in zip(traces, found, strict=True):
            trace.scores[name] = only_score(score, model)
        return groups

    return Part(
        name=f"reward_model({model})",
        call=call,
        reads=frozenset({f"tokens:{author}", f"model:{model}.score"}),
        writes=frozenset({f"score:{name}"}),
    )


def only_score(score: Tensor, model: str) -> float:
    """The score of a model with one output; raises ValueError for one with several."""
    if score.numel() != 1:
        raise ValueError(
            f"the reward model {model!r} gives {score.numel()} scores, not one; say how they become one, for example "
            "with --reward 'ensemble(DIR, how=mean)'"
        )
    return float(score)


def scoring(source: Source, directory: str | None, *, author: str = "policy") -> Part:
    """The task's verifier, or the reward model in a directory (which also needs `rm_role` among the models)."""
    return reward_model(author=author) if directory else verify(source, author=author)


def rm_role(directory: str | None) -> dict[str, Role]:
    """The role of the reward model; empty if the task's verifier scores."""
    return {"rm": frozen(directory, outputs=1)} if directory else {}
