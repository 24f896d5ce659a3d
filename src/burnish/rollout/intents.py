"""Episodes with intents that were written for them afterwards, and near misses of them: data for a reward model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from burnish.core import randomness
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.models.chat import Chat
from burnish.rollout.episode import Episode
from burnish.rollout.play import note_episodes, play_on, take_turn
from burnish.rollout.sample import continue_from
from burnish.score.words import asked, told

INTENT = "Write the instruction that the agent carries out here, in one sentence."
MISS = "Write another last step for the agent, with which it just fails this instruction: "


@supplies("tag:chosen", "tag:rejected")
def intents(*, who: str = "start", writer: str = "writer", temperature: float | None = None) -> Rollout:
    """Two traces per task: an episode of `who` under the intent that the writer reads off it (tag "chosen"), and a near
    miss of it under the same intent (tag "rejected").

    The writer is shown the episode and writes the intent, which stands in place of the prompt. The near miss is the
    episode up to a drawn step, in whose place the environment gets one that the writer has written so that the intent
    fails; then `who` plays on to the end. An episode whose step the writer repeats, or whose state cannot be reached
    again, has no near miss and is left out.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        played = [Episode(task, 0, step, who, keep=True) for task in tasks]
        for episode in played:
            episode.begin()
        play_on(played, step, step.settings.turns, temperature=temperature)
        kept = [(e, e.trace(True)) for e in played if e.replies and not e.failure]
        chat = step.models[writer].chat
        stories = [told(trace.turns, chat) for _, trace in kept]
        found = written(
            [(e.task, f"{story}\n{INTENT}") for (e, _), story in zip(kept, stories, strict=True)], writer, step
        )
        goals = [chat.text(turn.tokens) or e.task.key for turn, (e, _) in zip(found, kept, strict=True)]
        near = [_before_a_step(episode, step) for episode, _ in kept]
        asks = [(e.task, f"{told(e.turns, chat)}\n{MISS}{goal}") for e, goal in zip(near, goals, strict=True)]
        steps = [replace(said, parent=e.turns[-1]) for said, e in zip(written(asks, writer, step), near, strict=True)]
        able = [i for i, episode in enumerate(near) if not episode.over]
        take_turn([near[i] for i in able], [Trace((*near[i].turns, steps[i])) for i in able])
        play_on(near, step, step.settings.turns, temperature=temperature)
        note_episodes([*played, *near], step)
        return [
            Group(first.task, _pair(trace, second, Turn(chat.prompt(replace(first.task, prompt=goal)), "task")))
            for (first, trace), second, said, goal in zip(kept, near, steps, goals, strict=True)
            if not second.failure and _differs(trace, second, said, chat)
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


def _before_a_step(episode: Episode, step: Step) -> Episode:
    """The episode as it stood before a drawn step."""
    dice = randomness.rng(step.clock.seed, "near miss", step.clock.step, step.clock.tick, episode.task.key)
    return episode.branch(1, dice.randrange(episode.replies))


def _differs(trace: Trace, second: Episode, said: Turn, chat: Chat) -> bool:
    """Whether the written step is another one than the episode's own in its place."""
    at = next(i for i, turn in enumerate(second.turns) if turn.author == said.author)
    return chat.text(trace.turns[at].tokens).strip() != chat.text(said.tokens).strip()


def _pair(trace: Trace, second: Episode, goal: Turn) -> list[Trace]:
    good, near = (goal, *trace.turns[1:]), (goal, *second.trace(True).turns[1:])
    return [Trace(good, 0, tags=frozenset({"chosen"})), Trace(near, 1, tags=frozenset({"rejected"}))]
