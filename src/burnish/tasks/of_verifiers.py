"""`verifiers:NAME`: an environment of the package `verifiers`, of either generation.

Tasksets of v1 give prompts, and their `@reward` methods judge a reply: an ordinary source. One with toolsets is played
(tasks/verifiers_tools.py). Environments before that (`load_environment`) run themselves, turns and tools included: they
ask the policy through an endpoint, as an agent does (rollout/hosted.py), and their rubric pays.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from itertools import islice
from typing import Any

from burnish.core.messages import Message
from burnish.core.splits import in_split
from burnish.core.task import NoVerifier, Task, Verdict
from burnish.tasks.source import Source
from burnish.tasks.task_set import with_agent
from burnish.tasks.verifiers_tools import ToolsetSource
from burnish.tasks.verifiers_trace import VerifiersTrace, library

MOST = 100_000  # tasks that are read of an endless taskset


def verifiers_source(name: str, **options: object) -> Source:
    """The tasks of an installed environment."""
    root = library()
    if hasattr(root, "load_environment"):
        try:
            return of_environment(root.load_environment(name, **options), name)
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise ValueError(f"verifiers has no environment {name!r}: {str(error).splitlines()[0][:200]}") from error
    loaders = library("verifiers.v1.utils.loaders")
    try:
        config = loaders.taskset_config_type(name).model_validate({"id": name, **options})
        taskset = loaders.load_taskset(config)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ValueError(f"verifiers has no taskset {name!r}: {str(error).splitlines()[0][:200]}") from error
    return of_taskset(taskset, name)


def of_taskset(taskset: Any, name: str | None = None) -> Source:
    """A taskset of v1 as a task, with or without tools: `burnish.train(task=of_taskset(MyTaskset(config)))`."""
    shared = taskset.toolsets(taskset.config)
    if not shared and not type(taskset).task_type().toolsets(taskset.config.task):
        return TasksetSource(taskset, name)
    return ToolsetSource(TasksetSource(taskset, name), shared)


class TasksetSource:
    """A taskset of v1 whose tasks are answered by one reply. A tenth of them, by their keys, are held out."""

    def __init__(self, taskset: Any, name: str | None = None) -> None:
        self.name = name or type(taskset).__name__
        self.summary = (type(taskset).__doc__ or "a taskset of verifiers").strip().splitlines()[0]
        self.gives = frozenset({"verifiers_task"})
        self._tasks: dict[str, list[Any]] = {"train": [], "heldout": []}
        for task in islice(iter(taskset), MOST):
            self._tasks["heldout" if in_split("heldout", task.key) else "train"].append(task)
        if not self._tasks["train"]:
            raise ValueError(f"the taskset {self.name!r} has no tasks to train on")

    def size(self, split: str) -> int | None:
        return len(self._tasks[split])

    def task(self, split: str, index: int) -> Task:
        found = self._tasks[split][index]
        data = found.data
        asked = data.prompt
        said: list[Message] = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
        if isinstance(asked, str):
            said.append({"role": "user", "content": asked})
        else:
            said += [message.model_dump(exclude_none=True) for message in asked or ()]
        if not any(message["role"] == "user" for message in said):
            raise ValueError(f"task {found.key[:60]!r} of {self.name!r} has no prompt: its user opens the conversation")
        return Task("question", tuple(said), {"verifiers_task": found}, f"{self.name} {found.key}")

    def verify(self, task: Task, reply: str) -> Verdict:
        """The sum of the rewards of the task's own methods."""
        trace = VerifiersTrace(task.given["verifiers_task"], task.prompt)
        trace.add({"role": "assistant", "content": reply})
        return Verdict(score := asyncio.run(trace.score()), score >= 1.0)


class RowSource:
    """The rows of an environment before v1: its dataset, and its evaluation dataset as held-out tasks."""

    def __init__(self, env: Any, name: str) -> None:
        self.name, self.summary = name, f"the environment {name} of verifiers"
        self.gives = frozenset({"row"})
        train = list(env.get_dataset())
        heldout = list(env.get_eval_dataset())
        known = {str(row["prompt"]) for row in heldout}
        apart = [row for row in train if str(row["prompt"]) not in known]
        if not apart:  # some have one dataset for both
            apart = [row for row in train if not in_split("heldout", str(row["prompt"]))]
            heldout = [row for row in train if in_split("heldout", str(row["prompt"]))]
        self._rows: Mapping[str, list[Any]] = {"train": apart, "heldout": heldout}

    def size(self, split: str) -> int | None:
        return len(self._rows[split])

    def task(self, split: str, index: int) -> Task:
        row = dict(self._rows[split][index])
        prompt = row["prompt"] if isinstance(row["prompt"], list) else [{"role": "user", "content": str(row["prompt"])}]
        said = tuple({key: value for key, value in dict(m).items() if value is not None} for m in prompt)
        return Task("question", said, {"row": row}, f"{self.name} {split} {index} {str(said)[:200]}")

    def verify(self, task: Task, reply: str) -> Verdict:
        raise NoVerifier(f"{self.name!r} is an environment of verifiers: it is played, and its rubric pays")


def of_environment(env: Any, name: str | None = None) -> Source:
    """An environment object before v1 as a task: `burnish.train(task=of_environment(vf.SingleTurnEnv(...)))`."""

    async def agent(task: Mapping[str, Any], base_url: str, api_key: str) -> float:
        clients, openai = library("verifiers.clients"), importlib.import_module("openai")
        async with openai.AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0) as client:
            found = await env.run_rollout(
                task["row"], clients.OpenAIChatCompletionsClient(client), "burnish", {}, state_columns=[]
            )
        if found.get("error"):
            raise RuntimeError(f"the environment of verifiers failed: {str(found['error'])[:200]}")
        return float(found["reward"])

    return with_agent(RowSource(env, name or type(env).__name__), agent, pays=True)
