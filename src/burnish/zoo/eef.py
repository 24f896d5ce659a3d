"""Exploring Expert Failures Improves LLM Agent Tuning (arXiv 2504.13145).

A recorded episode, played again in its environment.

Failed episodes of an expert that the policy takes over, from states along them.

Tasks of an environment with an episode that someone recorded of each: `burnish train eef --expert games.jsonl`.

A row has `messages`, a conversation as in tasks/data/episodes.py, and `task`, the number of its task among the training
tasks of the source. Without `task` it belongs to the task with the same prompt, where a source has finitely many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import torch

from burnish import credit, draw, learn, score
from burnish.core.messages import Message, as_messages, text_of
from burnish.core.parts import Rollout, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.envs.protocol import Observed, Outcome
from burnish.method import Method, Option, Trace, frozen, method, roles
from burnish.methods import register
from burnish.papers import Paper
from burnish.rollout.episode import Episode
from burnish.rollout.play import note_episodes, of_episodes, play_on
from burnish.rollout.replays import branched
from burnish.rollout.trajectories import episode_trace
from burnish.tasks.data.files import read_file, reader_of
from burnish.tasks.data.messages import conversation
from burnish.tasks.source import Source
from burnish.tasks.task_set import MadeTasks

Win = Annotated[float, Option("The least reward of a won episode, where the environment does not say how it ended.")]
EEF = Paper("eef", "2504.13145", "Exploring Expert Failures Improves LLM Agent Tuning")

METRICS = (("expert_failed", "What was kept", "share of the episodes of the expert that failed"),)


RECORDED = "recorded"  # in Task.given: the messages of the recorded episode

NOTES = {"harmful": "which of its turns led away from success"}


def is_file_of_episodes(name: str) -> bool:
    """Whether a name is that of a file with rows, by its ending."""
    return reader_of(Path(name).name) is not None


class Recorded(MadeTasks):
    """The training tasks of which a file has an episode, each with it in given["recorded"]; held-out tasks as they are.

    Several rows may have the same task: each is a task of its own then.
    """

    def __init__(self, source: Source, file: str) -> None:
        if "env" not in source.gives:
            raise ValueError(f"task {source.name!r} has no environment to play an episode of {file} again in")
        super().__init__(source)
        if not Path(file).is_file():
            raise ValueError(f"there is no file {file} with recorded episodes; write one row per episode into it")
        self.file, self.gives = file, source.gives | {RECORDED}
        self.rows = [self._row(row, f"{file}, row {i}") for i, row in enumerate(read_file(Path(file)), 1)]
        if not self.rows:
            raise ValueError(f"{file} has no episodes; write one row per episode into it")

    def size(self, split: str) -> int | None:
        return len(self.rows) if split == "train" else self.source.size(split)

    def task(self, split: str, index: int) -> Task:
        if split != "train":
            return self.source.task(split, index)
        number, messages = self.rows[index]
        found = self.source.task("train", number)
        key = f"{found.key} | row {index}"  # two rows of one task are two tasks, which sample apart
        return replace(found, given={**found.given, RECORDED: messages}, key=key)

    def _row(self, row: Any, where: str) -> tuple[int, tuple[Message, ...]]:
        messages = conversation(row.get("messages"), where) if isinstance(row, Mapping) else None
        if not messages or not any(message["role"] == "assistant" for message in messages):
            raise ValueError(f"{where}: has no 'messages' with a reply of the assistant; an episode is a conversation")
        number, size = row.get("task"), self.source.size("train")
        if number is None:
            return self._of_prompt(messages, where), messages
        if (
            not isinstance(number, int)
            or isinstance(number, bool)
            or number < 0
            or (size is not None and number >= size)
        ):
            among = "a whole number from 0" if size is None else f"a whole number from 0 to {size - 1}"
            raise ValueError(f"{where}: 'task' is {number!r}; it is the number of a training task, {among}")
        return number, messages

    def _of_prompt(self, messages: tuple[Message, ...], where: str) -> int:
        """The number of the task with the same prompt."""
        found = self._numbers.get(_opening(messages), [])
        if len(found) != 1:
            many = "more than one training task has" if found else "no training task is known with"
            raise ValueError(f"{where}: {many} its prompt; give the row 'task', the number of its task")
        return found[0]

    @cached_property
    def _numbers(self) -> dict[str, list[int]]:
        """The numbers of the training tasks by prompt; none where there are endless tasks."""
        found: dict[str, list[int]] = {}
        for number in range(self.source.size("train") or 0):
            prompt = self.source.task("train", number).prompt
            asked = ({"role": "user", "content": prompt},) if isinstance(prompt, str) else prompt
            found.setdefault(_opening(asked), []).append(number)
        return found


def _opening(messages: tuple[Message, ...]) -> str:
    """What stands before the first reply."""
    first = next((i for i, message in enumerate(messages) if message["role"] == "assistant"), len(messages))
    return "\n".join(f"{message['role']}: {text_of(message)}" for message in messages[:first])


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


def spaced(turns: int, starts: int) -> list[int]:
    """At most `starts` of the turns 0 .. turns - 1, evenly spaced, the first among them."""
    return sorted({k * turns // starts for k in range(starts)}) if turns else []


def harmful(starts: list[int], won: list[bool]) -> set[int]:
    """The turns of the expert between a state from which the policy won and the next start, from which it did not."""
    steps = zip(zip(starts, won, strict=True), zip(starts[1:], won[1:], strict=True), strict=False)
    return {k for (a, before), (b, after) in steps if before and not after for k in range(a, b)}


@supplies("tokens:*", "tag:takeover")
def takeovers(
    n: int,
    starts: int,
    win: float,
    *,
    who: str = "policy",
    expert: str = "expert",
    recorded: str | None = None,
) -> Rollout:
    """n episodes of the policy, one of the expert, and, where that one fails, takeovers: the policy plays it to the end
    from at most `starts` evenly spaced states.

    recorded: the key in Task.given of the expert's episode, whose actions are played again in the environment; without
    it, the model `expert` plays. Either way its turns have the author `expert`, and the environment rewards them.
    An episode fails if its reward is below `win`. A takeover (tag "takeover") shares the expert's turns up to its
    start; its note["harmful"] lists those of them (as places among its turns) that led from a state from which the
    policy won to one from which it did not.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        masters = [_master(task, step) for task in tasks]
        own = [[Episode(task, 1 + i, step, who) for i in range(n)] for task in tasks]
        for episode in [*masters, *(e for some in own for e in some)]:
            if not episode.begun:
                episode.begin()
        if recorded is None:
            play_on(masters, step, step.settings.turns)
        play_on([e for some in own for e in some], step, step.settings.turns)
        places = [[] if m.failure or m.earned >= win else spaced(m.replies, starts) for m in masters]
        both = list(zip(masters, places, strict=True))
        new = iter(branched([(master, 1 + n + j, k) for master, at in both for j, k in enumerate(at)]))
        taken = [[_handed(next(new), who, step) for _ in at] for at in places]
        play_on([e for some in taken for e in some], step, step.settings.turns)
        note_episodes([*(masters if recorded else ()), *(e for some in (*own, *taken) for e in some)], step)
        step.notes.add("expert_failed", sum(m.earned < win for m in masters), max(1, len(masters)))
        groups = []
        for task, master, mine, at, some in zip(tasks, masters, own, places, taken, strict=True):
            wrong = harmful(at, [e.earned >= win and not e.failure for e in some])
            traces = [e.trace(True) for e in (master, *mine) if e.replies]
            traces += [_takeover(e, expert, wrong) for e in some if e.replies]
            groups.append(Group(task, traces))
        return groups

    def _master(task: Task, step: Step) -> Episode:
        if recorded is None:
            return Episode(task, 0, step, expert, keep=True)
        return played_again(task, recorded, step, who, expert)

    if recorded is None:
        return of_episodes(f"takeovers({n}, {starts})", call, who, expert, writes={"tag:takeover"})
    given = {f"given:{recorded}"}
    return of_episodes(f"takeovers({n}, {starts})", call, who, reads=given, writes={"tag:takeover", f"tokens:{expert}"})


def _handed(episode: Episode, who: str, step: Step) -> Episode:
    """The episode with another player from here on."""
    episode.hand_to(who)
    return episode


def _takeover(episode: Episode, expert: str, wrong: set[int]) -> Trace:
    trace = episode.trace(True)
    places = [i for i, turn in enumerate(trace.turns) if turn.author == expert]
    trace.note["harmful"] = [places[k] for k in sorted(wrong) if k < len(places)]
    trace.tags |= {"takeover"}
    return trace


@register(
    EEF,
    family="agents",
    summary="Imitate won episodes, also those that the policy took over from an expert who was failing.",
    when="An expert fails on the hard tasks, and its first steps are good all the same.",
    example="burnish train eef --expert runs/DIR/model --task guess",
    trial={"task": "guess", "n": 2, "starts": 2, "win": 2.0, "expert": "tiny"},
)
def eef(
    task: draw.Source,
    *,
    expert: Annotated[
        str,
        Option(
            "The expert: a model's name or directory, with the policy's tokenizer, which plays; or a file of its "
            "recorded episodes (.jsonl), one row each with `messages` and `task`, the number of the training task."
        ),
    ],
    n: Annotated[int, Option("Episodes of the policy's own for each task.", at_least=1)] = 4,
    starts: Annotated[int, Option("States of a failed episode that are taken over.", at_least=1)] = 4,
    win: Win = 1.0,
) -> Method:
    """Exploring expert failures: rejection-sampling fine-tuning with takeovers.

    An expert plays each task. Where it fails, the policy takes over from at most `starts` evenly spaced states.
    L = -(1/N) sum of log pi over the N tokens of: the policy in episodes that were won, taken over or not; the expert
    in episodes that it won; the expert's steps before a takeover that was won, but for harmful ones

    A step of the expert is harmful if it lies between a start from which the policy won and the next, from which it
    did not. What is harmful depends on the policy of now and is found anew in each step. Without failures of the expert
    it is rejection sampling on both players' episodes. Reconstructed from second-hand text: the number of starts, their
    spacing and the rule of harmful steps.

    Recorded episodes are the paper's data: their actions are played again, the environment rewards them, and only the
    tasks of the file are drawn. A model that plays gives new episodes in every step.
    """
    recorded = is_file_of_episodes(expert)
    return method(
        draw=draw.prompts(Recorded(task, expert) if recorded else task, "env"),
        rollout=takeovers(n, starts, win, recorded=RECORDED if recorded else None),
        score=score.outcomes(win),
        credit=credit.claim("sft", "policy", "expert", tag="won", where=_not_harmful, needs=("tag:takeover",)),
        learn=learn.Learn(learn.imitate(on=learn.CLAIMED), logp_temperature=1.0),
        models=roles() if recorded else roles(expert=frozen(expert)),
    )


def _not_harmful(trace: Trace) -> torch.Tensor:
    """[T]: the tokens of turns that are not harmful."""
    found = torch.ones(len(trace), dtype=torch.bool)
    for i, (_, start, end) in enumerate(trace.spans()):
        found[start:end] = i not in trace.note.get("harmful", ())
    return found
