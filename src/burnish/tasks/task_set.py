"""`TaskSet`: the tasks of a run, and everything that the run adds to them, in one record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from burnish.core.seeds import key_of
from burnish.core.task import Task, Verdict
from burnish.envs.protocol import offers
from burnish.envs.tools import Tool, ToolEnv
from burnish.reward_functions.load import RewardFunction
from burnish.reward_functions.reward import LocalReward, Reward
from burnish.serve.pulled import Pulled
from burnish.tasks.scoring import FunctionScoring, Sandboxed, SandboxScoring, ZeroScoring, is_sandboxed, scoring_of
from burnish.tasks.source import EagerScoring, Scoring, Source
from burnish.verifiers.verifier import SECONDS

OPPONENT = "opponent_model"  # in Task.given: the model that plays the seats besides the policy's, or models by seat
SEAT = "policy_seat"  # in Task.given: the policy's seat, where it is not the first
Playing = str | Mapping[str, str]  # a model for all seats besides the policy's, or models by seat
Change = Callable[[str, Task], Task]  # (split, task) -> task


@dataclass(frozen=True)
class Agent:
    """A program of its own that works on each task and asks the policy through an endpoint (rollout/hosted.py).

    pays: its return value, or the reward that it posted, is the reward; else the source's verifier judges.
    """

    call: Callable[..., Any] | Pulled
    pays: bool


@dataclass(frozen=True, eq=False)
class TaskSet:
    """The tasks of a source, what the run made of them, and how replies to them are scored.

    scoring      scores batches of replies
    rewarded_by  who gives the reward: the task itself, a reward function of the run, or its scorers (on top of 0)
    drop_failed  replies without a verdict are removed from the batch, instead of scored 0
    tools        may be called before the answer; the scoring judges the answer
    agent        a program that works on each task, in place of single replies
    opponents    split -> those that have the seats besides the policy's: each task is played against one of them
    changes      applied to each task of the source, in this order
    added        keys of Task.given that the changes add
    """

    source: Source
    scoring: Scoring
    rewarded_by: Literal["task", "function", "scorers"] = "task"
    drop_failed: bool = False
    tools: tuple[Tool, ...] = ()
    agent: Agent | None = None
    opponents: Mapping[str, Sequence[Playing]] | None = None
    changes: tuple[Change, ...] = ()
    added: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def summary(self) -> str:
        return self.source.summary

    @property
    def gives(self) -> frozenset[str]:
        return self.source.gives | self.added

    def sources(self) -> list[Source]:
        return [self.source]

    def size(self, split: str) -> int | None:
        return self.source.size(split)

    def task(self, split: str, index: int) -> Task:
        task = self.source.task(split, index)
        for change in self.changes:
            task = change(split, task)
        return task

    def changed(self, change: Change, *added: str) -> TaskSet:
        """The same set with a further change to each task, and the keys of Task.given that it adds."""
        return replace(self, changes=(*self.changes, change), added=self.added | set(added))

    def made_into(self, source: Source) -> TaskSet:
        """The same set with tasks that a source makes of it, which scores their replies if it can."""
        scoring = source if isinstance(source, Scoring) else self.scoring
        return replace(self, source=source, scoring=scoring, changes=(), added=frozenset())

    # --------------------------------------------------------------------------------------------------- the replies

    @property
    def eager(self) -> EagerScoring | None:
        """Episodes are scored when they have ended, other replies as soon as they can be."""
        played = self.tools or self.agent or self.opponents
        return None if played else self.scoring.eager

    def require_verifier(self, split: str) -> None:
        if self.agent is None or not self.agent.pays:
            self.scoring.require_verifier(split)

    def verdicts(self, tasks: list[Task], replies: list[str]) -> Sequence[Verdict]:
        return self.scoring.verdicts(tasks, replies)

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.scoring.verdicts([task], [reply])[0]


class MadeTasks:
    """Base of sources whose tasks a method makes of those of another. By default they are the same tasks."""

    def __init__(self, source: Source) -> None:
        self.source = task_set(source)
        self.name, self.summary, self.gives = source.name, source.summary, source.gives

    def sources(self) -> list[Source]:
        return [self.source]

    def size(self, split: str) -> int | None:
        return self.source.size(split)

    def task(self, split: str, index: int) -> Task:
        return self.source.task(split, index)

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.source.verify(task, reply)


def task_set(source: Source) -> TaskSet:
    """The record of a source. Tasks that a method makes of others have the tools, agent and scoring of those."""
    if isinstance(source, TaskSet):
        return source
    if isinstance(source, MadeTasks):
        return source.source.made_into(source)
    return TaskSet(source, scoring_of(source), drop_failed=getattr(source, "drop_failed", False))


def leaves(source: Source) -> list[Source]:
    """The sources from which tasks are taken in the end: those of each part of a mixture."""
    inner: Callable[[], list[Source]] | None = getattr(source, "sources", None)
    return [source] if inner is None else [leaf for one in inner() for leaf in leaves(one)]


def sandboxed(source: Source) -> Sandboxed | None:
    """The source whose verifier runs in the sandbox, if there is one."""
    inner = task_set(source).source
    return inner if is_sandboxed(inner) and isinstance(inner, Sandboxed) else None


# ------------------------------------------------------------------------------------------------ what a run may add


def rewarded(
    source: Source, reward: RewardFunction | Reward, *, drop_failed: bool = False, workers: int = 0
) -> TaskSet:
    """The tasks with a reward function in place of the verifier. workers: as in FunctionScoring."""
    scoring = FunctionScoring(reward if isinstance(reward, Reward) else LocalReward(reward), workers)
    return replace(task_set(source), scoring=scoring, rewarded_by="function", drop_failed=drop_failed)


def limited(source: Source, seconds: float = SECONDS, *, drop_failed: bool = False) -> TaskSet:
    """The tasks with another time limit for their verifier in the sandbox."""
    if seconds <= 0:
        raise ValueError(f"a time limit of {seconds:g} s is too short for any verifier; pass --reward-timeout 10")
    inner = sandboxed(source)
    if inner is None:
        raise ValueError(
            f"the verifier of {source.name!r} is a Python object in this process, which cannot be stopped; leave "
            "out --reward-timeout, or use --reward file.py:function"
        )
    return replace(task_set(source), scoring=SandboxScoring(inner, seconds), drop_failed=drop_failed)


def unscored(source: Source) -> TaskSet:
    """The tasks with a reward of 0 for every reply, to which the scorers of the run add theirs."""
    tasks = task_set(source)
    return replace(tasks, scoring=ZeroScoring(tasks.scoring), rewarded_by="scorers", drop_failed=False)


def with_tools(source: Source, tools: Sequence[Tool], seconds: float | None = None) -> TaskSet:
    """The tasks with tools, which the model may call before it answers; the chat template has their schemas.

    seconds: that one call may take; None: as long as a step of an environment
    """
    change = partial(_with_tools, tuple(tools), seconds)
    return replace(task_set(source), tools=tuple(tools)).changed(change, "env", "tools")


def _with_tools(tools: tuple[Tool, ...], seconds: float | None, split: str, task: Task) -> Task:
    schemas = [dict(tool.schema) for tool in tools]
    env = partial(ToolEnv, tools, seconds, {"prompt": task.prompt, **task.given})
    return replace(task, given={**task.given, "env": env, "tools": schemas})


def with_agent(source: Source, agent: Callable[..., object] | Pulled, pays: bool) -> TaskSet:
    """The tasks for an agent that is a program of its own: `--agent my_agent.py:run`."""
    tasks = task_set(source)
    return replace(tasks, agent=Agent(agent, pays), added=tasks.added | {"agent"})


def with_opponent(source: Source, train: Sequence[Playing], heldout: Playing, seat: str | None = None) -> TaskSet:
    """The tasks with models in the seats besides the policy's: one of these in training, one in evaluation.

    seat: the policy's; by default the first
    """
    make = source.task("train", 0).given["env"] if "env" in source.gives else None
    env = make() if make is not None else None
    if env is None or not offers(env, "seat"):
        raise ValueError(
            f"task {source.name!r} has no environment of several players, so there is no seat for --opponent; "
            "use nim, deal or twenty_questions, or an environment with seat() (docs/environments.md)"
        )
    seats = tuple(getattr(env, "seats", ()))
    if seat is not None and seat not in seats:
        raise ValueError(f"--seat is {seat!r}; task {source.name!r} has the seats {', '.join(seats)}")
    others = [name for name in seats if name != (seats[0] if seat is None else seat)]
    for one in (*train, heldout):
        if isinstance(one, Mapping) and (wrong := [name for name in one if name not in others]):
            raise ValueError(f"--opponent names the seat {wrong[0]!r}; task {source.name!r} has {', '.join(others)}")
    models = {"train": tuple(train), "heldout": (heldout,)}
    added = {} if seat is None else {SEAT: seat}
    return replace(task_set(source), opponents=models).changed(partial(_against, models, added))


def _against(models: Mapping[str, Sequence[Playing]], added: Mapping[str, str], split: str, task: Task) -> Task:
    """The task against one of them, which its key says: all its episodes have the same one."""
    playing = models[split]
    against = playing[key_of("league", task.key) % len(playing)]
    return replace(task, given={**task.given, OPPONENT: against, **added})
