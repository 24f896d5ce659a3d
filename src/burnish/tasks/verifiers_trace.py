"""A conversation as a trace of verifiers v1, which the `@reward` methods of a task read."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from burnish.core.messages import Message
from burnish.core.task import NoVerifier


def library(name: str = "verifiers") -> ModuleType:
    """The package; ValueError where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ValueError("verifiers tasks need verifiers; install it with: pip install 'burnish[verifiers]'") from None


class VerifiersTrace:
    """The trace of one episode. found: the task of verifiers; state: what its tools share with its rewards."""

    def __init__(self, found: Any, prompt: str | Iterable[Message]) -> None:
        v1, traces = library("verifiers.v1"), library("verifiers.v1.trace")
        states = library("verifiers.v1.state")
        self.task = found
        self.given = traces.Trace(
            task=traces.TraceTask(type=type(found).__name__, data=found.data, key=found.key, hash=found.hash),
            agent=traces.AgentInfo(config=v1.AgentConfig()),
            state=states.state_cls(type(found))(),
        )
        for message in [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt:
            self.add(message)

    @property
    def state(self) -> Any:
        return self.given.state

    def add(self, message: Message) -> None:
        """A message at the end; those of the assistant are replies of the policy."""
        graph, types = library("verifiers.v1.graph"), library("verifiers.v1.types")
        kinds = {
            "system": types.SystemMessage,
            "user": types.UserMessage,
            "assistant": types.AssistantMessage,
            "tool": types.ToolMessage,
        }
        made = kinds[message["role"]].model_validate(dict(message))
        nodes = self.given.nodes
        node = graph.MessageNode(parent=len(nodes) - 1 if nodes else None, message=made)
        node.sampled = message["role"] == "assistant"
        nodes.append(node)

    async def stopped(self) -> bool:
        """Whether a `@stop` method of the task that reads the trace ends the episode."""
        session = library("verifiers.v1.session")
        kind = library("verifiers.v1.trace").Trace
        return any([await session.call_hook(hook, {kind: self.given}) for hook in self.task.hooks("stop")])

    async def score(self) -> float:
        """The sum of the rewards of the task's own methods."""
        self.given.is_completed = self.given.ok = True
        await self.task.score(self.given)
        if not self.given.rewards:
            kind = type(self.task).__name__
            raise NoVerifier(f"tasks of the class {kind} have no @reward method that runs without a sandbox")
        return float(self.given.reward)
