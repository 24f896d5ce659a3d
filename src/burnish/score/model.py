"""Scores from a model in the cast: a reward model reads the whole trace and gives one number at its last token."""

from __future__ import annotations

import torch

from burnish.cast.roles import Role, frozen
from burnish.nouns import Group
from burnish.parts import Part, supplies
from burnish.score.verify import verify
from burnish.step import Step
from burnish.tasks.source import Source


@supplies("score:reward")
def reward_model(member: str = "rm", *, author: str = "policy") -> Part:
    """scores["reward"] = the member's score after the last token of the trace."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        masks = [torch.arange(len(trace)) == len(trace) - 1 for trace in traces]
        for trace, found in zip(
            traces, step.cast[member].streams(traces, masks, {"score"}, step.settings.token_budget), strict=True
        ):
            trace.scores["reward"] = float(found["score"][-1])
        return groups

    return Part(
        name=f"reward_model({member})",
        call=call,
        reads=frozenset({f"tokens:{author}", f"cast:{member}.score"}),
        writes=frozenset({"score:reward"}),
    )


def scoring(source: Source, directory: str | None, *, author: str = "policy") -> Part:
    """How a method scores: by the task's verifier, or by the reward model in a directory (with `rm_role` in its cast)."""
    return reward_model(author=author) if directory else verify(source, author=author)


def rm_role(directory: str | None) -> dict[str, Role]:
    """The reward model's place in the cast; nothing where the task's verifier does the scoring."""
    return {"rm": frozen(directory, outputs=1)} if directory else {}
