"""A recorded episode, played again in its environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from burnish.core.messages import as_messages, text_of
from burnish.core.step import Step
from burnish.core.types import Task
from burnish.envs.protocol import Observed, Outcome
from burnish.rollout.episode import Episode
from burnish.rollout.trajectories import episode_trace


def played_again(task: Task, column: str, step: Step, who: str, author: str) -> Episode:
    """The episode in a column of a task, whose actions the environment takes again; states are kept for `branch`.

    Its replies are by `author`, in the tokens of the model `who`; `who` plays on from a branch. Observations and
    rewards are those of the environment. Where it says something else than was recorded, the episode has failed with
    the reason: it would not be the expert's episode.
    """
    model = step.models[who]
    trace = episode_trace(task, column, author, model.chat, limit=1 << 62)  # the episode itself ends with the context
    replies = [turn for turn in trace.turns if turn.author == author]
    between = _between(task.given[column])
    episode = Episode(task, 0, step, who, keep=True)
    episode.begin()
    for k, reply in enumerate(replies):
        if not episode.over and (odd := _difference(episode.env.seen[k], between[k])):
            episode.fail(f"the recorded episode of task {task.key[:60]!r} differs before reply {k + 1}: {odd}")
        if episode.over:
            break
        episode.reply(reply)
        episode.answer()
    return episode


def _between(messages: Sequence[Any]) -> list[list[str]]:
    """What stands before each reply, as texts."""
    found: list[list[str]] = [[]]
    for message in messages:
        if message["role"] == "assistant":
            found.append([])
        else:
            found[-1].append(text_of(message))
    return found


def _difference(seen: Observed | Outcome, recorded: list[str]) -> str:
    """How an observation differs from what was recorded; empty where it does not."""
    said = seen.observation if isinstance(seen, Outcome) else seen
    now = " | ".join(text_of(message) for message in as_messages(said))
    then = " | ".join(recorded)
    if now.strip() == then.strip():
        return ""
    return f"{now[:60]!r} now, {then[:60]!r} recorded; give each row the task that it is of"
