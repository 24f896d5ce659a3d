"""Episodes of several turns: the policy and an environment take turns, token in, token out.

What the policy sampled is never tokenised again: a turn of the environment is encoded as what the chat template writes
after a reply. Replies of all running episodes are sampled together; their environments then step at the same time.

An environment may have several players (envs/protocol.py). The policy has the first seat; the model that the task
names (given["opponent_model"], tasks/seated.py) has the others, or the policy where none is named. Each seat of the
policy gives a trace of its own, with what this seat saw, said and earned. What other players say reaches it as text of
the environment, which is not trained on.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, replace
from typing import Any

from burnish.envs.expert import as_messages
from burnish.envs.guarded import Failure, GuardedEnv
from burnish.envs.protocol import Observed, Outcome
from burnish.envs.tools import TAG
from burnish.messages import Message, text_of
from burnish.parts import Rollout, names, supplies
from burnish.rollout.sample import continue_from
from burnish.scorer import mark_failed
from burnish.step import Step
from burnish.tasks.seated import OPPONENT
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
    has names for them. With several seats of the policy, a task gives a group for each. An environment that raises,
    hangs or answers nonsense ends its episode, which counts as failed with the reason.
    paid: whether environments reward; if not (tools), the last reply is judged by what follows in score.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        episodes = [_Episode(task, i, step, who) for task in tasks for i in range(n)]
        limit = turns or step.settings.turns
        for episode in episodes:
            episode.begin()
        while running := [episode for episode in episodes if episode.goes_on(limit)]:
            for model in dict.fromkeys(episode.player.who for episode in running):
                mine = [episode for episode in running if episode.player.who == model]
                starts = [(episode.task, tuple(episode.player.turns), episode.number()) for episode in mine]
                traces = continue_from(starts, model, step, tag="play", temperature=temperature)
                for episode, trace in zip(mine, traces, strict=True):
                    episode.reply(trace)
            for episode in running:
                episode.answer()
        _note(episodes, step)
        return [group for k in range(len(tasks)) for group in _groups(episodes[k * n : (k + 1) * n], paid)]

    tag = PLAY if paid else TAG
    rewards = frozenset({"turn_score:reward", "score:reward"} if paid else ())
    return Rollout(
        name=f"play({n})",
        call=call,
        reads=frozenset({"task:prompt", "given:env", f"model:{who}.generate"}),
        writes=names("tokens", ("task", "env", who)) | names("mu", who) | rewards | {f"tag:{tag}"},
    )


@dataclass(eq=False)
class _Player:
    """One seat of an episode: the model that plays it, what it saw and said, the reward of each turn, its states."""

    who: str
    turns: list[Turn] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    replies: int = 0
    before: float = 0.0  # reward that it got before its first reply
    asked: tuple[Message, ...] = ()  # its first view, where there are several seats

    def add(self, turn: Turn, reward: float = math.nan) -> None:
        self.turns.append(turn)
        self.rewards.append(reward)

    def pay(self, reward: float) -> None:
        """A reward for its last reply."""
        at = max((i for i, value in enumerate(self.rewards) if not math.isnan(value)), default=None)
        if at is None:
            self.before += reward
        else:
            self.rewards[at] += reward


class _Episode:
    """One episode: an environment and its players, of whom `player` has the turn."""

    def __init__(self, task: Task, index: int, step: Step, who: str) -> None:
        self.task, self.index, self.who = task, index, who
        self.models, self.room = step.models, step.settings.max_new_tokens
        self.other = task.given.get(OPPONENT)
        self.env = GuardedEnv(task.given["env"], step.settings.env_timeout)
        seed = task.given.get("seed", 0)
        self._call: Any = self.env.begin_reset(task.given.get("task"), seed, self.other is not None)
        self.players: dict[str, _Player] = {}
        self.player = _Player(who)
        self.over, self.why, self.failure = False, "turns", ""

    def begin(self) -> None:
        """What `reset` says, once the environment is ready, to the player who begins."""
        try:
            seen = self.env.observed(self._call)
            self.players = {seat: self._seated(seat) for seat in self.env.seats()[:1]}
            self._hand_over(seen)
        except (Failure, ValueError) as failure:
            self._fail(str(failure))

    def goes_on(self, limit: int) -> bool:
        """Whether another reply is to be sampled; ends the episode where its player has replied `limit` times."""
        if not self.over and self.player.replies >= limit:
            self._end("turns")
        return not self.over

    def number(self) -> int:
        """A sample index that differs for every reply of every episode of the task."""
        return self.index * 1000 + sum(len(player.turns) for player in self.players.values())

    def reply(self, trace: Trace) -> None:
        """The player has replied: the environment begins to step."""
        said = trace.turns[-1]
        self.player.add(said, 0.0)
        self.player.replies += 1
        self._call = self.env.begin_step(self.models[self.player.who].chat.text(said.tokens))

    def answer(self) -> None:
        """What the environment made of the reply."""
        try:
            found: Outcome = self.env.outcome(self._call)
            self.player.pay(found.reward or 0.0)
            for seat, reward in found.rewards.items():
                if seat not in self.env.seats():
                    raise Failure(f"step() of the environment rewards {seat!r}, which is none of its seats")
                self.players.setdefault(seat, self._seated(seat)).pay(reward)
            if found.over:
                self._end("done" if found.terminated else "truncated")
                return
            self._hand_over(found.observation)
        except (Failure, ValueError) as failure:
            self._fail(str(failure))

    def trained(self) -> list[str]:
        """The seats that the policy has: its own, and others in which it has had a turn."""
        first = self.env.seats()[0]
        mine = {seat: player for seat, player in self.players.items() if player.who == self.who}
        return [seat for seat, player in mine.items() if seat == first or player.turns]

    def _seated(self, seat: str) -> _Player:
        return _Player(self.who if self.other is None or seat == self.env.seats()[0] else self.other)

    def _hand_over(self, seen: Observed) -> None:
        """The player whose turn it is sees what happened since its last reply; the first time, its prompt."""
        seat = self.env.seat()
        player = self.player = self.players.setdefault(seat, self._seated(seat))
        chat, context = self.models[player.who].chat, self.models[player.who].context
        if player.turns:
            words = Turn(chat.observation(seen), "env", parent=player.turns[-1])
        else:
            player.asked = as_messages(seen) if seat else ()
            words = Turn(chat.prompt(replace(self.task, prompt=player.asked) if seat else self.task), "task")
        key = self.env.key()
        if player.turns and len(Trace(tuple(player.turns))) + len(words) + self.room > context:
            self._end("context")
            return
        player.keys.append(key)
        player.add(words)

    def _end(self, why: str) -> None:
        self.over, self.why = True, why
        self.env.close()

    def _fail(self, why: str) -> None:
        self.failure = why
        self._end("failed")

    def trace(self, seat: str, paid: bool) -> Trace:
        """The episode as one seat's trace, which ends with its last reply; the prompt alone where it has none."""
        player = self.players.get(seat) or _Player(self.who)
        if not player.turns:
            player.add(Turn(self.models[self.who].chat.prompt(self.task), "task"))
        spoken = player.turns[-1].author != "env"
        turns, rewards = (player.turns, player.rewards) if spoken else (player.turns[:-1], player.rewards[:-1])
        earned = player.before + sum(reward for reward in rewards if not math.isnan(reward))
        note: dict[str, Any] = {"stopped": self.why, "done": self.why == "done", "turns": player.replies}
        if any(key is not None for key in player.keys):
            note["keys"] = player.keys[: player.replies]
        if seat:
            note["seat"] = seat
        if self.other is not None:
            note["against"] = self.other
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


def _groups(episodes: list[_Episode], paid: bool) -> list[Group]:
    """The episodes of one task as groups: one for each seat of the policy, which is compared with itself alone."""
    task = episodes[0].task
    seats = list(dict.fromkeys(seat for episode in episodes for seat in episode.trained())) or [""]
    found = []
    for seat in seats:
        named = task if len(seats) == 1 else replace(task, key=f"{task.key} as {seat}")
        asked = [episode.players[seat].asked for episode in episodes if seat in episode.players]
        prompt = _shared([messages for messages in asked if messages]) or named.prompt
        found.append(Group(replace(named, prompt=prompt), [episode.trace(seat, paid) for episode in episodes]))
    return found


def _shared(prompts: list[tuple[Message, ...]]) -> tuple[Message, ...]:
    """What the first views of a seat have in common: they differ where another player began. Empty without any."""
    if len({str(prompt) for prompt in prompts}) < 2:
        return prompts[0] if prompts else ()
    common = os.path.commonprefix(["\n".join(map(text_of, prompt)) for prompt in prompts])
    return ({"role": "user", "content": f"{common.rstrip()} ..."},)


def _note(episodes: list[_Episode], step: Step) -> None:
    """Metrics of the episodes: turns, how they ended. Raises ValueError where every environment failed."""
    failed = [episode.failure for episode in episodes if episode.failure]
    if episodes and len(failed) == len(episodes):
        raise ValueError(f"every environment failed; the first: {failed[0]}")
    for episode in episodes:
        for seat in episode.trained():
            step.notes.add("turns", episode.players[seat].replies)
        step.notes.add("episode_ended", float(episode.why == "done"))
    if failed:
        step.notes.count("env_failures", len(failed))
