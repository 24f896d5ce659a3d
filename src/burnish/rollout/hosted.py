"""Episodes of agents that are programs of their own: they ask the policy through an OpenAI-compatible endpoint.

    def agent(task, base_url, api_key): ...         returns a reward, or None: the task's verifier judges the last reply

Each episode is a call of the agent in a thread, with a base URL of its own; or a program from outside pulls it
(serve/pulled.py). Requests are answered by one call of the engine, which takes those that arrive while others are being
answered. Token ids, log-probs and the weights version are recorded when they are sampled.
Every conversation of an episode is a trace; all of them get its reward.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from burnish.core.parts import Rollout, names, supplies
from burnish.core.scorer import mark_failed
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.envs.tools import TAG
from burnish.rollout.asking import TAG as HOSTED
from burnish.rollout.asking import Asker, Questions
from burnish.serve import ChatServer, Session
from burnish.serve.pulled import ADDRESS, Pulled
from burnish.serve.server import HOST
from burnish.util.failures import place_of, said

Agent = Callable[..., Any]
Runs = Callable[[Session, dict[str, Any], str, str], Any]  # session, row, base URL, API key -> what the agent returns


@supplies("tokens:env", "score:reward")
def hosted(
    agent: Agent | Pulled,
    n: int = 1,
    *,
    temperature: float | None = None,
    who: str = "policy",
    paid: bool = True,
    one_trace: bool = False,
) -> Rollout:
    """n episodes of the agent for each task.

    paid: whether the agent gives rewards; if not, its last reply is judged by what follows in score
    one_trace: an episode is its last conversation alone, with an empty reply where there was none
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        server = agent.server if isinstance(agent, Pulled) else _server(step.settings.env_timeout)
        if isinstance(agent, Pulled):  # requests that belong to no episode
            server.sessions["default"].state = Asker(step, Task("question", "", {}, "served"), 0, who)
        how = how_to_run(agent, one_trace)
        try:
            episodes = [_Episode(task, i, step, who, temperature, how, server) for task in tasks for i in range(n)]
            _answer_all(episodes, server, step, who)
        finally:
            if not isinstance(agent, Pulled):
                server.end()
        for episode in episodes:
            episode.settle(paid)
        _note(episodes, step)
        groups = [
            Group(task, _numbered([t for one in episodes[k * n : (k + 1) * n] for t in one.traces(paid, one_trace)]))
            for k, task in enumerate(tasks)
        ]
        found = [group for group in groups if group.traces]
        if groups and not found:
            raise ValueError(
                "no episode of the agent asked the policy anything, so there is nothing to learn from; send its "
                "requests to the base_url that it is given"
            )
        return found

    tag = HOSTED if paid else TAG
    return Rollout(
        name=f"hosted({n})",
        call=call,
        reads=frozenset({"task:prompt", f"model:{who}.generate"}),
        writes=names("tokens", ("task", "env", who))
        | names("mu", who)
        | frozenset({f"tag:{tag}", *(["score:reward"] if paid else [])}),
    )


def _server(seconds: float) -> ChatServer:
    return ChatServer(seconds=seconds, host=os.environ.get(ADDRESS, HOST))


def how_to_run(agent: Agent | Pulled, evaluation: bool) -> Runs:
    """What the thread of an episode does: call the agent's function, or wait for a program that pulls the episode."""
    if isinstance(agent, Pulled):
        return lambda session, row, base_url, api_key: agent.wait_for(session, row, evaluation)

    def run(session: Session, row: dict[str, Any], base_url: str, api_key: str) -> Any:
        session.begun = time.monotonic()
        return agent(row, base_url, api_key)

    return run


class _Episode:
    """One call of the agent, in a thread, and the conversations that it had."""

    def __init__(
        self, task: Task, index: int, step: Step, who: str, temperature: float | None, how: Runs, server: ChatServer
    ) -> None:
        self.task, self.index = task, index
        self.asker = Asker(step, task, index, who, temperature, step.settings.turns)
        self.session = server.open(self.asker)
        self.result: Any = None
        self.failure = ""
        self.seconds = step.settings.env_timeout
        address = server.base_url(self.session), server.token
        self.thread = threading.Thread(target=self._run, args=(how, *address), daemon=True, name="agent")
        self.thread.start()

    def _run(self, how: Runs, base_url: str, api_key: str) -> None:
        try:
            row = {"prompt": self.task.prompt, **self.task.given}
            found = how(self.session, row, base_url, api_key)
            self.result = asyncio.run(found) if inspect.iscoroutine(found) else found
        except BaseException as error:  # noqa: BLE001 - SystemExit too: an agent must not end the run
            self.failure = f"the agent raised {type(error).__name__}: {said(error)[:300]}{place_of(error)}"

    @property
    def over(self) -> bool:
        """Whether the agent has returned, or run out of time."""
        begun = self.session.begun  # one that has not been pulled yet has all its time
        if self.thread.is_alive() and begun is not None and time.monotonic() > begun + self.seconds:
            self.failure = self.failure or f"the agent had not returned after {self.seconds:g} s"
        return not self.thread.is_alive() or bool(self.failure)

    def reward(self) -> float | None:
        """What was posted, or returned; None where neither is a number."""
        given = self.session.reward if self.session.reward is not None else self.result
        if isinstance(given, bool | int | float) and math.isfinite(given):
            return float(given)
        return None

    def settle(self, paid: bool) -> None:
        """The agent is done: an episode without the reward that it owes has failed."""
        if paid and self.reward() is None and not self.session.paid and not self.failure:
            self.failure = f"the agent returned {str(self.result)[:60]!r}, which is no reward"

    def traces(self, paid: bool, one: bool) -> list[Trace]:
        """One for each conversation in which the policy replied, or `one` for the last."""
        ended = [(c.turns if c.turns[-1].author != "env" else c.turns[:-1], c) for c in self.asker.talk.all]
        spoken = [self._trace(turns, paid, sum(c.cut), c.ids) for turns, c in ended if len(turns) > 1]
        if one:
            silent = Turn(torch.zeros(0, dtype=torch.long), self.asker.who)
            prompt = Turn(self.asker.talk.chat.prompt(self.task), "task")
            return spoken[-1:] or [self._trace([prompt, silent], paid)]
        return spoken

    def _trace(self, turns: list[Turn], paid: bool, cut: int = 0, ids: Sequence[str] = ()) -> Trace:
        """A conversation. ids: of its replies, by which the client may have paid for single ones."""
        earned = [self.session.paid.get(name.partition("-")[2], 0.0) for name in ids]
        reward = (self.reward() or 0.0) + sum(earned)
        scores = {"reward": reward} if paid else {}
        by_turn: dict[str, list[float]] = {}
        if paid and self.session.paid:
            own = iter(earned)
            rewards = [next(own, 0.0) if turn.author == self.asker.who else math.nan for turn in turns]
            rewards[-1] += reward - sum(earned)
            by_turn = {"reward": rewards}
        note: dict[str, object] = {"stopped": "failed" if self.failure else "done", "done": not self.failure}
        if cut:
            note["cut"] = cut
        trace = Trace(tuple(turns), self.index, scores, by_turn, tags=frozenset({HOSTED if paid else TAG}), note=note)
        if self.failure:
            mark_failed(trace, self.failure)
        return trace


def _answer_all(episodes: list[_Episode], server: ChatServer, step: Step, who: str) -> None:
    """Answer the questions of all episodes until every agent is done; later ones join those being answered."""
    try:
        Questions(server, step, lambda: all(e.over for e in episodes), len(episodes)).write(who)
    finally:
        for episode in episodes:
            episode.session.ended.set()  # the thread of a pulled episode may end
            server.close(episode.session)


def _numbered(traces: list[Trace]) -> list[Trace]:
    for i, trace in enumerate(traces):
        trace.index = i
    return traces


def _note(episodes: list[_Episode], step: Step) -> None:
    failed = [episode.failure for episode in episodes if episode.failure]
    if episodes and len(failed) == len(episodes):
        raise ValueError(f"every episode of the agent failed; the first: {failed[0]}")
    for episode in episodes:
        step.notes.add("turns", episode.asker.calls)
        step.notes.add("episode_ended", float(not episode.failure))
        step.notes.add("restarts", episode.asker.talk.restarts, max(1, episode.asker.calls))
        cut = sum(sum(conversation.cut) for conversation in episode.asker.talk.all)
        step.notes.add("cut_turns", cut, max(1, episode.asker.calls))
    if failed:
        step.notes.count("env_failures", len(failed))
