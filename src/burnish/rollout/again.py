"""A remembered transition, and what the policy would say now in the same state."""

from __future__ import annotations

from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.rollout.sample import continue_from


@supplies("tag:past", "tag:fresh")
def again(*, who: str = "policy", temperature: float | None = None) -> Rollout:
    """Two traces per drawn transition (s, u, s').

    "past": the turns up to u, and the environment's answer to it (none where the episode ended with u); the reward of
    u stands on its turn, and note["ended"] says whether there is no s'.
    "fresh": the same state s with a new utterance sampled by the policy as it is now.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        past = [past_trace(task, k) for k, task in enumerate(tasks)]
        starts = [(task, _before(task), k) for k, task in enumerate(tasks)]
        fresh = continue_from(starts, who, step, tag="fresh", temperature=temperature)
        return [Group(task, [old, new]) for task, old, new in zip(tasks, past, fresh, strict=True)]

    return Rollout(
        name="again",
        call=call,
        whole=True,  # the noise of a new utterance is keyed by its place in the batch
        reads=names("given", ("trace", "turn")) | {f"model:{who}.generate"},
        writes=names("tokens", ("task", "env", who))
        | names("mu", who)
        | frozenset({"turn_score:reward", "tag:past", "tag:fresh"}),
    )


def _before(task: Task) -> tuple[Turn, ...]:
    trace: Trace = task.given["trace"]
    return trace.turns[: task.given["turn"]]


def past_trace(task: Task, index: int) -> Trace:
    """The turns of a drawn transition up to its utterance, and the environment's answer to it, if any."""
    whole: Trace = task.given["trace"]
    end = task.given["turn"] + 1
    ended = end >= len(whole.turns)
    turns = whole.turns[: end if ended else end + 1]
    rewards = {"reward": whole.turn_scores["reward"][: len(turns)]}
    return Trace(
        turns, index, turn_scores=rewards, tags=frozenset({"past"}), note={"ended": ended, "turn": task.given["turn"]}
    )
