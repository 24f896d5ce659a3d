"""Episodes with intents that were written for them afterwards, and near misses of them: data for a reward model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from burnish import randomness
from burnish.parts import Rollout, names, supplies
from burnish.rollout.episode import Episode
from burnish.rollout.play import note_episodes, play_on
from burnish.rollout.sample import continue_from
from burnish.score.words import asked, told
from burnish.step import Step
from burnish.types import Group, Task, Trace, Turn

INTENT = "Write the instruction that the agent carries out here, in one sentence."
MISS = "Write another last step for the agent, with which it just fails this instruction: "


@supplies("tag:chosen", "tag:rejected")
def intents(*, who: str = "start", writer: str = "writer", temperature: float = 1.0) -> Rollout:
    """Two traces per task: an episode of `who` under the intent that the writer reads off it (tag "chosen"), and a near
    miss of it under the same intent (tag "rejected").

    The writer is shown the episode and writes the intent, which stands in place of the prompt. The near miss is the
    episode up to one of its steps, which the writer has written anew so that the intent fails.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        played = [Episode(task, 0, step, who) for task in tasks]
        for episode in played:
            episode.begin()
        play_on(played, step, step.settings.turns, temperature=temperature)
        note_episodes(played, step)
        kept = [(e, e.trace(True)) for e in played if e.replies and not e.failure]
        chat = step.models[writer].chat
        stories = [told(trace.turns, chat) for _, trace in kept]
        found = written(
            [(e.task, f"{story}\n{INTENT}") for (e, _), story in zip(kept, stories, strict=True)], writer, step
        )
        goals = [chat.text(turn.tokens) or e.task.key for turn, (e, _) in zip(found, kept, strict=True)]
        cuts = [_cut(episode.task, trace, who, step) for episode, trace in kept]
        before = [told(trace.turns[:cut], chat) for (_, trace), cut in zip(kept, cuts, strict=True)]
        misses = written(
            [(e.task, f"{b}\n{MISS}{goal}") for (e, _), b, goal in zip(kept, before, goals, strict=True)], writer, step
        )
        return [
            Group(episode.task, _pair(trace, cut, miss, Turn(chat.prompt(replace(episode.task, prompt=goal)), "task")))
            for (episode, trace), cut, miss, goal in zip(kept, cuts, misses, goals, strict=True)
        ]

    return Rollout(
        name="intents",
        call=call,
        reads=frozenset({"task:prompt", "given:env", f"model:{who}.generate", f"model:{writer}.generate"}),
        writes=names("tokens", ("task", "env", who, writer)) | names("tag", ("chosen", "rejected")),
    )


def written(questions: Sequence[tuple[Task, str]], who: str, step: Step, *, tag: str = "written") -> list[Turn]:
    """What a model writes in answer to these questions; one that is too long for the context loses its beginning."""
    model = step.models[who]
    room = model.context - step.settings.max_new_tokens - 1
    starts = [(task, (asked(question, model.chat, room),), len(question)) for task, question in questions]
    return [trace.turns[-1] for trace in continue_from(starts, who, step, tag=tag)]


def _cut(task: Task, trace: Trace, who: str, step: Step) -> int:
    """The place of a drawn step among the turns."""
    dice = randomness.rng(step.clock.seed, "near miss", step.clock.step, step.clock.tick, task.key)
    return dice.choice([i for i, turn in enumerate(trace.turns) if turn.author == who])


def _pair(trace: Trace, cut: int, miss: Turn, goal: Turn) -> list[Trace]:
    good, near = (goal, *trace.turns[1:]), (goal, *trace.turns[1:cut], miss)
    return [Trace(good, 0, tags=frozenset({"chosen"})), Trace(near, 1, tags=frozenset({"rejected"}))]
