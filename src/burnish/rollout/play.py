"""Episodes of several turns: the policy and an environment take turns, token in, token out.

What the policy sampled is never tokenised again: a turn of the environment is encoded as what the chat template writes
after a reply. An episode whose environment has answered is sampled on while the environments of others still think. A
reply depends on its own key alone, so the traces do not depend on who answers when.
"""

from __future__ import annotations

import math
import queue
import time
from concurrent.futures import Future
from typing import Any

from burnish.envs.guarded import Failure, GuardedEnv
from burnish.envs.protocol import Outcome
from burnish.envs.tools import TAG
from burnish.parts import Rollout, names, supplies
from burnish.rollout.starts import Reply, Start, sample_key, write_arriving
from burnish.scorer import mark_failed
from burnish.step import Step
from burnish.types import Group, Sampling, Task, Trace, Turn

PLAY = "play"  # the tag of traces that an environment rewards, and of the noise of all replies in episodes
GATHER = 0.002  # seconds in which episodes gather before the first of them are sampled


@supplies("tokens:env", "turn_score:reward", "score:reward")
def play(
    n: int = 1,
    *,
    turns: int | None = None,
    temperature: float = 1.0,
    who: str = "policy",
    paid: bool = True,
    judged: str = TAG,
) -> Rollout:
    """n episodes per task, of at most `turns` replies each (by default those of the run's settings).

    The environment's reward for a reply stands on the turn (turn_scores["reward"]); their sum is scores["reward"].
    Episodes of one task have the same seed. note["keys"] names the state before each reply, where the environment
    has names for them. An environment that raises, hangs or answers nonsense ends its episode, which counts as failed
    with the reason.
    paid: whether environments reward; if not, episodes are judged by what follows in score
    judged: the tag of episodes that environments do not reward: of TAG the last reply is judged, else the whole
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        most = turns or step.settings.turns
        episodes = [Episode(task, i, step, who, most, temperature) for task in tasks for i in range(n)]
        try:
            write_arriving(Episodes(episodes), who, step)
        finally:
            for episode in episodes:
                episode.env.close()
        _note(episodes, step)
        return [
            Group(task, [episode.trace(paid, tag) for episode in episodes[k * n : (k + 1) * n]])
            for k, task in enumerate(tasks)
        ]

    tag = PLAY if paid else judged
    rewards = frozenset({"turn_score:reward", "score:reward"} if paid else ())
    return Rollout(
        name=f"play({n})",
        call=call,
        reads=frozenset({"task:prompt", "given:env", f"model:{who}.generate"}),
        writes=names("tokens", ("task", "env", who)) | names("mu", who) | rewards | {f"tag:{tag}"},
    )


class Episode:
    """One episode: an environment, the turns so far, and the reward of each.

    call  the reset or step of its environment that runs, or has run
    """

    def __init__(self, task: Task, index: int, step: Step, who: str, most: int, temperature: float) -> None:
        self.task, self.index, self.who, self.most = task, index, who, most
        self.model, self.room, self.clock = step.models[who], step.settings.max_new_tokens, step.clock
        self.settings = Sampling(temperature)
        self.env = GuardedEnv(task.given["env"], step.settings.env_timeout)
        self.turns: list[Turn] = []
        self.rewards: list[float] = []
        self.keys: list[str | None] = []
        self.over, self.why, self.failure = False, "turns", ""
        self.call: Future[Any] = self.env.begin_reset(task.given.get("task"), task.given.get("seed", 0))

    def go_on(self) -> Reply | None:
        """The environment has answered, or run out of time: the next reply that is asked for; None at the end."""
        self._answer() if self.turns else self._begin()
        if self.over or self.replies() >= self.most:
            return None
        number = self.index * 1000 + len(self.turns)  # differs for every reply of every episode of the task
        key = sample_key(self.clock, self.task, number, PLAY)
        return Reply(Start(self.task, tuple(self.turns), number, key, self.who, self.who, PLAY, self.settings))

    def _begin(self) -> None:
        """The prompt, once the environment is ready: it is the task's, which is what `reset` says."""
        self.turns.append(Turn(self.model.chat.prompt(self.task), "task"))
        self.rewards.append(math.nan)
        try:
            self.env.observed(self.call)
            self.keys.append(self.env.key())
        except Failure as failure:
            self._fail(str(failure))

    def reply(self, said: Turn) -> None:
        """The policy has replied: the environment begins to step."""
        self.turns.append(said)
        self.rewards.append(0.0)
        self.call = self.env.begin_step(self.model.chat.action(said.tokens))

    def replies(self) -> int:
        return sum(turn.author not in ("task", "env") for turn in self.turns)

    def _answer(self) -> None:
        """What the environment made of the reply."""
        try:
            found: Outcome = self.env.outcome(self.call)
            self.rewards[-1] = found.reward or 0.0
            if found.over:
                self._end("done" if found.terminated else "truncated")
                return
            words = Turn(self.model.chat.observation(found.observation), "env", parent=self.turns[-1])
            self.keys.append(self.env.key())
        except (Failure, ValueError) as failure:
            self._fail(str(failure))
            return
        if len(Trace(tuple(self.turns))) + len(words) + self.room > self.model.context:
            self._end("context")
            return
        self.turns.append(words)
        self.rewards.append(math.nan)

    def _end(self, why: str) -> None:
        self.over, self.why = True, why
        self.env.close()  # now, not when all have ended: it may hold a process or a connection

    def _fail(self, why: str) -> None:
        self.failure = why
        self._end("failed")

    def trace(self, paid: bool, tag: str) -> Trace:
        """The episode as a trace, which ends with the policy's last reply."""
        spoken = self.turns[-1].author != "env"
        turns, rewards = (self.turns, self.rewards) if spoken else (self.turns[:-1], self.rewards[:-1])
        earned = sum(reward for reward in rewards if not math.isnan(reward))
        replies = self.replies()
        note: dict[str, Any] = {"stopped": self.why, "done": self.why == "done", "turns": replies}
        if any(key is not None for key in self.keys):
            note["keys"] = self.keys[:replies]
        trace = Trace(
            tuple(turns),
            self.index,
            {"reward": earned} if paid else {},
            {"reward": rewards} if paid else {},
            tags=frozenset({tag}),
            note=note,
        )
        if self.failure:
            mark_failed(trace, self.failure)
        return trace


class Episodes:
    """Episodes whose next replies are asked for as their environments answer (rollout/starts.py: Arrivals)."""

    def __init__(self, episodes: list[Episode]) -> None:
        self.rows = len(episodes)
        self._answered: queue.SimpleQueue[Episode] = queue.SimpleQueue()
        self._thinking: dict[Episode, None] = {}
        self._of: dict[Reply, Episode] = {}
        for episode in episodes:
            self._wait_for(episode)

    def take(self, wait: bool) -> list[Reply]:
        """The next replies of the episodes whose environments have answered."""
        found: list[Reply] = []
        while True:
            for episode in self._answers(wait and not found):
                reply = episode.go_on()
                if reply is not None:
                    self._of[reply] = episode
                    found.append(reply)
            if found or not wait or not self._thinking:
                return found

    def wrote(self, reply: Reply) -> None:
        """The environment of the reply's episode begins to step."""
        assert reply.said is not None
        episode = self._of.pop(reply)
        episode.reply(reply.said)
        self._wait_for(episode)

    def _wait_for(self, episode: Episode) -> None:
        self._thinking[episode] = None
        call = episode.call
        call.add_done_callback(lambda _: self._answered.put(episode))

    def _answers(self, wait: bool) -> list[Episode]:
        """Episodes whose environments have answered or run out of time; wait: until there is one, and a moment more."""
        found: dict[Episode, None] = {}
        until = min((episode.env.due for episode in self._thinking), default=0.0) if wait else 0.0
        while True:
            left = until - time.monotonic()
            try:
                found[self._answered.get(timeout=left) if left > 0 else self._answered.get_nowait()] = None
            except queue.Empty:
                break
            until = min(until, time.monotonic() + GATHER)
        now = time.monotonic()
        found |= {episode: None for episode in self._thinking if episode.env.due <= now}
        answered = [episode for episode in found if episode in self._thinking]  # not those that ran out of time before
        for episode in answered:
            del self._thinking[episode]
        return answered


def _note(episodes: list[Episode], step: Step) -> None:
    """Metrics of the episodes: turns, how they ended. Raises ValueError where every environment failed."""
    failed = [episode.failure for episode in episodes if episode.failure]
    if episodes and len(failed) == len(episodes):
        raise ValueError(f"every environment failed; the first: {failed[0]}")
    for episode in episodes:
        step.notes.add("turns", episode.replies())
        step.notes.add("episode_ended", float(episode.why == "done"))
    if failed:
        step.notes.count("env_failures", len(failed))
