"""Recorded episodes as traces: nothing is sampled."""

from __future__ import annotations

import math

from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace
from burnish.models.chat import Chat
from burnish.models.conversation import conversation_pieces
from burnish.rollout.demonstrated import demonstration_trace
from burnish.tasks.data.episodes import REWARD

NAME = "trajectories"


@supplies("tokens:*", "turn_score:reward", "score:reward")
def trajectories(column: str = "episode", *, author: str = "demo", reader: str = "policy") -> Rollout:
    """One trace per task: the episode in the column, its replies by `author`, what is between them by "env".

    The reward of a reply stands on its turn (turn_scores["reward"]), their sum is scores["reward"], as in `play`. An
    episode is never cut, because the reward of what is cut off would be lost.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        model = step.models[reader]
        limit = min(model.context, step.settings.max_length or model.context)
        return [Group(task, [episode_trace(task, column, author, model.chat, limit)]) for task in tasks]

    return Rollout(
        name=NAME,
        call=call,
        ahead=True,
        reads=frozenset({"task:prompt", f"given:{column}"}),
        writes=names("tokens", ("task", "env", author)) | {"turn_score:reward", "score:reward", f"tag:{NAME}"},
    )


def episode_trace(task: Task, column: str, author: str, chat: Chat, limit: int) -> Trace:
    """The episode in a column of a task as a trace, up to its last reply."""
    messages = task.given[column]
    where = f"task {task.key[:60]!r}"
    said = [message for message in messages if message["role"] == "assistant"]
    if not said:
        raise ValueError(f"{where}: its {column} has no reply; remove the row")
    weights = [float(message["role"] == "assistant") for message in messages]
    bare = [{key: value for key, value in message.items() if key != REWARD} for message in messages]
    samples = conversation_pieces(chat, bare, weights, task.given.get("tools"))
    if len(samples) != 1:
        raise ValueError(
            f"{where}: the model's chat template changes earlier messages of a conversation, so its {column} is not "
            "one sequence of tokens; use a template that keeps them (--chat-template)"
        )
    trace = demonstration_trace(samples[0], author, 0)
    if len(trace) > limit:
        raise ValueError(
            f"{where}: its {column} has {len(trace)} tokens, but at most {limit} fit, and an episode is not cut; use "
            "--on-long drop"
        )
    rewards = iter([float(message.get(REWARD, 0.0)) for message in said])
    on_turns = [next(rewards) if turn.author == author else math.nan for turn in trace.turns]
    total = sum(reward for reward in on_turns if not math.isnan(reward))
    trace.scores, trace.turn_scores, trace.tags = {"reward": total}, {"reward": on_turns}, frozenset({NAME})
    return trace
