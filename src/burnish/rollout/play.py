"""Episodes of several turns: the policy and an environment take turns, token in, token out.

What the policy sampled is never tokenised again: a turn of the environment is encoded as what the chat template writes
after a reply. Replies of all running episodes are sampled together; their environments then step at the same time.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
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
    has names for them. An environment that raises, hangs or answers nonsense ends its episode, which counts as failed
    with the reason.
    paid: whether environments reward; if not (tools), the last reply is judged by what follows in score.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        episodes = [Episode(task, i, step, who) for task in tasks for i in range(n)]
        for episode in episodes:
            episode.begin()
        play_on(episodes, step, turns or step.settings.turns, temperature=temperature)
        note_episodes(episodes, step)
        return [
            Group(task, [episode.trace(paid) for episode in episodes[k * n : (k + 1) * n]])
            for k, task in enumerate(tasks)
        ]

    return of_episodes(f"play({n})", call, who, paid=paid)


def of_episodes(
    name: str,
    call: Callable[[list[Task], Step], list[Group]],
    *who: str,
    paid: bool = True,
    reads: Iterable[str] = (),
    writes: Iterable[str] = (),
) -> Rollout:
    """A rollout of episodes that these models play, which reads and writes what `play` does, and more where named."""
    rewards = {"turn_score:reward", "score:reward"} if paid else set()
    return Rollout(
        name=name,
        call=call,
        reads=frozenset({"task:prompt", "given:env", *(f"model:{one}.generate" for one in who), *reads}),
        writes=names("tokens", ("task", "env", *who))
        | names("mu", who)
        | rewards
        | {f"tag:{PLAY if paid else TAG}"}
        | frozenset(writes),
    )


def play_on(episodes: Sequence[Episode], step: Step, turns: int, *, temperature: float = 1.0) -> None:
    """Play episodes on until they are over or have `turns` replies each."""
    while running := [episode for episode in episodes if not episode.over and episode.replies < turns]:
        take_turn(running, replies_to(running, step, temperature=temperature))


def replies_to(episodes: Sequence[Episode], step: Step, *, temperature: float = 1.0) -> list[Trace]:
    """The next reply of each episode, all sampled together by the model whose episodes they are."""
    if not episodes:
        return []
    starts = [(episode.task, tuple(episode.turns), episode.number()) for episode in episodes]
    return continue_from(starts, episodes[0].who, step, tag="play", temperature=temperature)


def take_turn(episodes: Sequence[Episode], replies: Sequence[Trace]) -> None:
    """Each episode takes its reply; their environments then step at the same time."""
    for episode, trace in zip(episodes, replies, strict=True):
        episode.reply(trace)
    for episode in episodes:
        episode.answer()


class Episode:
    """One episode: an environment, the turns so far, and the reward of each.

    keep: states are kept by the environment's fork(), so that `branch` can return to any of them
    """

    def __init__(self, task: Task, index: int, step: Step, who: str, *, keep: bool = False) -> None:
        self.task, self.index, self.who, self.keep = task, index, who, keep
        self.lineage: tuple[int, ...] = (index,)  # the indices of the episodes that it branched from, and its own
        self.model, self.room = step.models[who], step.settings.max_new_tokens
        self.env = GuardedEnv(task.given["env"], step.settings.env_timeout)
        self._call: Any = self.env.begin_reset(task.given.get("task"), task.given.get("seed", 0))
        self.turns: list[Turn] = []
        self.rewards: list[float] = []
        self.keys: list[str | None] = []
        self.over, self.why, self.failure, self.outcome = False, "turns", "", ""

    @property
    def replies(self) -> int:
        """How many replies it has."""
        return sum(turn.author not in ("task", "env") for turn in self.turns)

    @property
    def earned(self) -> float:
        """The sum of its rewards."""
        return sum(reward for reward in self.rewards if not math.isnan(reward))

    def branch(self, index: int, k: int | None = None) -> Episode:
        """A copy that stands before its reply number k (0 is the first; by default the next one) and goes its own way.

        It shares the turns up to there and has an environment of its own in the same state (`GuardedEnv.at`). Where
        that state cannot be reached again, the copy is over and has failed with the reason.
        """
        places = [i for i, turn in enumerate(self.turns) if turn.author not in ("task", "env")]
        k = len(places) if k is None else k
        assert k < len(places) or not self.over, "an episode that is over has no next reply"
        cut = places[k] if k < len(places) else len(self.turns)
        found = copy.copy(self)
        found.index, found.lineage = index, (*self.lineage, index)
        found.turns, found.rewards, found.keys = self.turns[:cut], self.rewards[:cut], self.keys[: k + 1]
        found.over, found.why, found.failure, found.outcome = False, "turns", "", ""
        try:
            found.env = self.env.at(k)
        except Failure as failure:
            found.env = GuardedEnv(self.task.given["env"], self.env.seconds)
            found._fail(str(failure))
        return found

    def begin(self) -> None:
        """The prompt, once the environment is ready: it is the task's, which is what `reset` says."""
        self.turns.append(Turn(self.model.chat.prompt(self.task), "task"))
        self.rewards.append(math.nan)
        try:
            self.env.observed(self._call)
            self._stand()
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
            self.outcome = str(found.info.get("outcome", ""))
            if found.over:
                self._end("done" if found.terminated else "truncated")
                return
            words = Turn(self.model.chat.observation(found.observation), "env", parent=self.turns[-1])
            self._stand()
        except (Failure, ValueError) as failure:
            self._fail(str(failure))
            return
        if len(Trace(tuple(self.turns))) + len(words) + self.room > self.model.context:
            self._end("context")
            return
        self.turns.append(words)
        self.rewards.append(math.nan)

    def _stand(self) -> None:
        """Take down the state in which the next reply is made."""
        self.keys.append(self.env.key())
        if self.keep:
            self.env.keep()

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
        replies = self.replies
        note: dict[str, Any] = {"stopped": self.why, "done": self.why == "done", "turns": replies}
        if self.outcome:
            note["outcome"] = self.outcome
        if any(key is not None for key in self.keys):
            note["keys"] = self.keys[:replies]
        trace = Trace(
            tuple(turns),
            self.index,
            {"reward": self.earned} if paid else {},
            {"reward": rewards} if paid else {},
            tags=frozenset({PLAY if paid else TAG}),
            note=note,
        )
        if self.failure:
            mark_failed(trace, self.failure)
        return trace


def note_episodes(episodes: Sequence[Episode], step: Step) -> None:
    """Metrics of the episodes: turns, how they ended. Raises ValueError where every environment failed."""
    failed = [episode.failure for episode in episodes if episode.failure]
    if episodes and len(failed) == len(episodes):
        raise ValueError(f"every environment failed; the first: {failed[0]}")
    for episode in episodes:
        step.notes.add("turns", episode.replies)
        step.notes.add("episode_ended", float(episode.why == "done"))
    if failed:
        step.notes.count("env_failures", len(failed))
