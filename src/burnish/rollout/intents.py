"""Episodes with intents that were written for them afterwards, and near misses of them: data for a reward model."""

from __future__ import annotations

from collections.abc import Sequence

from burnish.core.step import Step
from burnish.core.types import Task, Turn
from burnish.rollout.sample import continue_from
from burnish.score.words import asked


def written(questions: Sequence[tuple[Task, str]], who: str, step: Step, *, tag: str = "written") -> list[Turn]:
    """What a model writes in answer to these questions; one that is too long for the context loses its beginning."""
    model = step.models[who]
    room = model.context - step.settings.max_new_tokens - 1
    starts = [(task, (asked(question, model.chat, room),), len(question)) for task, question in questions]
    return [trace.turns[-1] for trace in continue_from(starts, who, step, tag=tag)]
