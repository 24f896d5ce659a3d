"""Episodes of several turns: the policy and an environment take turns, token in, token out.

What the policy sampled is never tokenised again: a turn of the environment is encoded as what the chat template writes
after a reply. Replies of all running episodes are sampled together; their environments then step at the same time.
"""

from __future__ import annotations

import math
from typing import Any

from burnish.envs.guarded import Failure, GuardedEnv
from burnish.envs.protocol import Outcome
from burnish.envs.tools import TAG
from burnish.parts import Rollout, names, supplies
from burnish.rollout.sample import continue_from
from burnish.scorer import mark_failed
from burnish.step import Step
from burnish.types import Group, Task, Trace, Turn

PLAY = "play"  # the tag of traces that an environment rewards


@supplies("tokens:env", "turn_score:reward", "score:reward")
def play(
    n: int = 1,
    *,
    turns: int | None = None,
    temperature: float = 1.0,
    who: str = "policy",
    paid: bool = True,
) -> Rollout:
    """n episodes per task, of at most `turns` replies each (by default those of the run's settings).

    The environment's reward for a reply stands on the turn (turn_scores["reward"]); their sum is scores["reward"].
    Episodes of one task have the same seed. note["keys"] names the state before each reply, where the environment
    has names for them; note["valid"] says which replies were executed, where its info says so ("valid"). An environment
    that raises, hangs or answers nonsense ends its episode, which counts as failed with the reason.
    paid: whether environments reward; if not (tools), the last reply is judged by what follows in score.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        episodes = [_Episode(task, i, step, who) for task in tasks for i in range(n)]
        for episode in episodes:
            episode.begin()
        for _ in range(turns or step.settings.turns):
            running = [episode for episode in episodes if not episode.over]
            if not running:
                break
            starts = [(episode.task, tuple(episode.turns), episode.number()) for episode in running]
            traces = continue_from(starts, who, step, tag="play", temperature=temperature)
            for episode, trace in zip(running, traces, strict=True):
                episode.reply(trace)
            for episode in running:
                episode.answer()
        _note(episodes, step)
        return [
            Group(task, [episode.trace(paid) for episode in episodes[k * n : (k + 1) * n]])
            for k, task in enumerate(tasks)
        ]

    tag = PLAY if paid else TAG
    rewards = frozenset({"turn_score:reward", "score:reward"} if paid else ())
    return Rollout(
        name=f"play({n})",
        call=call,
        reads=frozenset({"task:prompt", "given:env", f"model:{who}.generate"}),
        writes=names("tokens", ("task", "env", who)) | names("mu", who) | rewards | {f"tag:{tag}"},
    )


class _Episode:
    """One episode: an environment, the turns so far, and the reward of each."""

    def __init__(self, task: Task, index: int, step: Step, who: str) -> None:
        self.task, self.index = task, index
        self.model, self.room = step.models[who], step.settings.max_new_tokens
        self.env = GuardedEnv(task.given["env"], step.settings.env_timeout)
        self._call: Any = self.env.begin_reset(task.given.get("task"), task.given.get("seed", 0))
        self.turns: list[Turn] = []
        self.rewards: list[float] = []
        self.keys: list[str | None] = []
        self.valid: list[bool | None] = []
        self.over, self.why, self.failure = False, "turns", ""

    def begin(self) -> None:
        """The prompt, once the environment is ready: it is the task's, which is what `reset` says."""
        self.turns.append(Turn(self.model.chat.prompt(self.task), "task"))
        self.rewards.append(math.nan)
        try:
            self.env.observed(self._call)
            self.keys.append(self.env.key())
        except Failure as failure:
            self._fail(str(failure))

    def number(self) -> int:
        """A sample index that differs for every reply of every episode of the task."""
        return self.index * 1000 + len(self.turns)

    def reply(self, trace: Trace) -> None:
        """The policy has replied: the environment begins to step."""
        said = trace.turns[-1]
        self.turns.append(said)
        self.rewards.append(0.0)
        self._call = self.env.begin_step(self.model.chat.text(said.tokens))

    def answer(self) -> None:
        """What the environment made of the reply."""
        try:
            found: Outcome = self.env.outcome(self._call)
            self.rewards[-1] = found.reward or 0.0
            self.valid.append(found.info.get("valid"))
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
        self.env.close()

    def _fail(self, why: str) -> None:
        self.failure = why
        self._end("failed")

    def trace(self, paid: bool) -> Trace:
        """The episode as a trace, which ends with the policy's last reply."""
        if not self.over:
            self._end("turns")
        spoken = self.turns[-1].author != "env"
        turns, rewards = (self.turns, self.rewards) if spoken else (self.turns[:-1], self.rewards[:-1])
        earned = sum(reward for reward in rewards if not math.isnan(reward))
        replies = sum(turn.author not in ("task", "env") for turn in turns)
        note: dict[str, Any] = {"stopped": self.why, "done": self.why == "done", "turns": replies}
        if any(key is not None for key in self.keys):
            note["keys"] = self.keys[:replies]
        if any(valid is not None for valid in self.valid):
            note["valid"] = [valid is None or bool(valid) for valid in self.valid]
        trace = Trace(
            tuple(turns),
            self.index,
            {"reward": earned} if paid else {},
            {"reward": rewards} if paid else {},
            tags=frozenset({PLAY if paid else TAG}),
            note=note,
        )
        if self.failure:
            mark_failed(trace, self.failure)
        return trace


def _note(episodes: list[_Episode], step: Step) -> None:
    """Metrics of the episodes: turns, how they ended. Raises ValueError where every environment failed."""
    failed = [episode.failure for episode in episodes if episode.failure]
    if episodes and len(failed) == len(episodes):
        raise ValueError(f"every environment failed; the first: {failed[0]}")
    for episode in episodes:
        step.notes.add("turns", sum(turn.author not in ("task", "env") for turn in episode.turns))
        step.notes.add("episode_ended", float(episode.why == "done"))
    if failed:
        step.notes.count("env_failures", len(failed))
