"""One episode of several turns: an environment, its players, and what each of them saw, said and earned.

What a player sampled is never tokenised again: a turn of the environment is encoded as what the chat template writes
after a reply.

An environment may have several players (envs/protocol.py). The policy has the first seat, or the one that the task
names (given["policy_seat"]); the model that it names (given["opponent_model"], tasks/task_set.py) has the others, or
one for each, or the policy where none is named. Each seat of a model that is trained gives a trace of its own, in which
that model is the "policy". What other players say reaches it as text of the environment, which is not trained on.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from burnish.core.messages import Message, as_messages
from burnish.core.scorer import mark_failed
from burnish.core.step import Step
from burnish.core.types import Task, Trace, Turn
from burnish.envs.guarded import Failure, GuardedEnv
from burnish.envs.protocol import Observed, Outcome
from burnish.envs.tools import TAG
from burnish.models.reply_end import following, was_cut
from burnish.rollout.starts import Reply, Start, sample_key
from burnish.tasks.task_set import OPPONENT, SEAT

LONGEST_ANSWER = 20_000  # characters of what an environment says that the answer was (a patch), in a trace's note
PLAY = "play"  # the tag of traces that an environment rewards, and of the noise of all replies in episodes


@dataclass(eq=False)
class Player:
    """One seat of an episode: the model that plays it, what it saw and said, the reward of each turn, its states."""

    who: str
    turns: list[Turn] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    valid: list[bool | None] = field(default_factory=list)  # whether each reply was executed, where info says so
    cut: list[bool] = field(default_factory=list)  # whether each reply was cut before its end of turn
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

    @property
    def earned(self) -> float:
        """The sum of its rewards."""
        return self.before + sum(reward for reward in self.rewards if not math.isnan(reward))

    def until(self, k: int) -> Player:
        """The player as it stood before its reply number k."""
        places = [i for i, turn in enumerate(self.turns) if turn.author not in ("task", "env")]
        cut = places[k] if k < len(places) else len(self.turns)
        return replace(
            self,
            turns=self.turns[:cut],
            rewards=self.rewards[:cut],
            keys=self.keys[: k + 1],
            valid=self.valid[:k],
            cut=self.cut[:k],
            replies=min(k, self.replies),
        )


class Episode:
    """One episode. `player` has the turn.

    call     the reset or step of its environment that runs, or has run
    lineage  the indices of the episodes that it branched from, and its own
    keep     states are kept by the environment's fork(), so that `branch` can return to any of them
    """

    def __init__(
        self,
        task: Task,
        index: int,
        step: Step,
        who: str,
        *,
        most: int | None = None,
        temperature: float | None = None,
        keep: bool = False,
    ) -> None:
        self.task, self.index, self.who, self.keep = task, index, who, keep
        self.lineage: tuple[int, ...] = (index,)
        self.models, self.room, self.clock = step.models, step.settings.max_new_tokens, step.clock
        self.most, self.settings = most or step.settings.turns, step.sampling(temperature)
        self.ends_cut = step.settings.cut_turn == "end"
        self.other: str | Mapping[str, str] | None = task.given.get(OPPONENT)
        self.seat: str | None = task.given.get(SEAT)  # the policy's; None: the first
        self.players: dict[str, Player] = {}
        self.player = Player(who)
        self.metrics: dict[str, float] = {}
        self.begun = self.over = self.heard = False  # heard: the answer to the last reply, or the reset
        self.why, self.failure, self.outcome, self.answered = "turns", "", "", ""
        self.env = GuardedEnv(task.given["env"], step.settings.env_timeout)
        seated = self.other is not None
        reader = self.models[who].chat.reader
        self.call = self.env.begin_reset(task.given.get("task"), task.given.get("seed", 0), seated, reader)

    @property
    def turns(self) -> list[Turn]:
        """What the player who has the turn saw and said."""
        return self.player.turns

    @property
    def replies(self) -> int:
        """How many replies the player who has the turn has made."""
        return self.player.replies

    @property
    def earned(self) -> float:
        """What the player who has the turn has earned."""
        return self.player.earned

    def branch(self, index: int, k: int | None = None) -> Episode:
        """A copy that stands before its reply number k (0 is the first; by default the next one) and goes its own way.

        It shares the turns up to there and has an environment of its own in the same state (`GuardedEnv.at`). Where
        that state cannot be reached again, the copy is over and has failed with the reason.
        """
        if len(self.players) > 1:
            raise ValueError("an episode of several players cannot branch; use a task with one")
        k = self.replies if k is None else k
        assert k < self.replies or not self.over, "an episode that is over has no next reply"
        found = copy.copy(self)
        found.index, found.lineage = index, (*self.lineage, index)
        found.players = {seat: player.until(k) for seat, player in self.players.items()}
        found.player = next(iter(found.players.values()), Player(self.who))
        found.over, found.why, found.failure, found.outcome = False, "turns", "", ""
        try:
            found.env = self.env.at(k)
        except Failure as failure:
            found.env = GuardedEnv(self.task.given["env"], self.env.seconds)
            found.fail(str(failure))
        return found

    def hand_to(self, who: str) -> None:
        """Another model plays on."""
        self.who = self.player.who = who

    def begin(self) -> None:
        """What `reset` says, once the environment is ready, to the player who begins."""
        self.begun = True
        try:
            seen = self.env.observed(self.call)
            self.players = {seat: self._seated(seat) for seat in [self.own_seat()]}
            self._hand_over(seen)
        except (Failure, ValueError) as failure:
            self.fail(str(failure))

    def go_on(self) -> Reply | None:
        """The environment has answered, or run out of time: the next reply that is asked for; None at the end."""
        self.hear()
        if not self.goes_on():
            return None
        number = self.number()
        key = sample_key(self.clock, self.task, number, PLAY)
        who, author = self.player.who, self.author
        return Reply(Start(self.task, tuple(self.turns), number, key, who, author, PLAY, self.settings))

    @property
    def author(self) -> str:
        """Under which name the player who has the turn writes: in the traces of a model that learns, the policy's."""
        return self.who if self._learns(self.player) else self.player.who

    def own_seat(self) -> str:
        """The policy's seat."""
        return self.env.seats()[0] if self.seat is None else self.seat

    def _learns(self, player: Player) -> bool:
        return player.who == self.who or self.models[player.who].role.liveness == "trained"

    def hear(self) -> None:
        """Take the environment's answer, once."""
        if not self.heard:
            self.heard = True
            self.answer() if self.begun else self.begin()

    def goes_on(self, limit: int | None = None) -> bool:
        """Whether another reply is to be sampled; ends the episode where its player has replied `limit` times."""
        if not self.over and self.replies >= (limit or self.most):
            self._end("turns")
        return not self.over

    def number(self) -> int:
        """A sample index that differs for every reply of every episode of the task."""
        return self.index * 1000 + sum(len(player.turns) for player in self.players.values())

    def reply(self, said: Turn) -> None:
        """The player has replied: the environment begins to step."""
        self.player.add(said, 0.0)
        self.player.replies += 1
        self.heard = False
        chat = self.models[self.player.who].chat
        self.player.cut.append(was_cut(chat, said.tokens))
        self.call = self.env.begin_step(chat.action(said.tokens))

    def answer(self) -> None:
        """What the environment made of the reply."""
        try:
            found: Outcome = self.env.outcome(self.call)
            self.player.pay(found.reward or 0.0)
            self.player.valid.append(found.valid)
            self.outcome, self.metrics = str(found.info.get("outcome", "")), self.metrics | found.metrics()
            self.answered = str(found.info.get("answer", ""))[:LONGEST_ANSWER]
            for seat, reward in found.rewards.items():
                if seat not in self.env.seats():
                    raise Failure(f"step() of the environment rewards {seat!r}, which is none of its seats")
                self.players.setdefault(seat, self._seated(seat)).pay(reward)
            if found.over:
                self._end("done" if found.terminated else "truncated")
                return
            if self.ends_cut and self.player.cut[-1]:
                self._end("cut")
                return
            self._hand_over(found.observation)
        except (Failure, ValueError) as failure:
            self.fail(str(failure))

    def trained(self) -> list[str]:
        """The seats that models which learn have: the policy's own, and others in which one has had a turn."""
        own = self.own_seat()
        mine = {seat: player for seat, player in self.players.items() if self._learns(player)}
        return [seat for seat, player in mine.items() if seat == own or player.turns]

    def _seated(self, seat: str) -> Player:
        if self.other is None or seat == self.own_seat():
            return Player(self.who)
        return Player(self.other.get(seat, self.who) if isinstance(self.other, Mapping) else self.other)

    def _hand_over(self, seen: Observed) -> None:
        """The player whose turn it is sees what happened since its last reply; the first time, its prompt."""
        seat = self.env.seat()
        player = self.player = self.players.setdefault(seat, self._seated(seat))
        chat, context = self.models[player.who].chat, self.models[player.who].context
        if player.turns:
            before = player.turns[-1]
            words = Turn(following(chat, before.tokens, seen), "env", parent=before)
        else:
            player.asked = as_messages(seen) if seat else ()
            words = Turn(chat.prompt(replace(self.task, prompt=player.asked) if seat else self.task), "task")
        if not player.turns and len(words) >= context:
            raise Failure(f"the prompt has {len(words)} tokens, but the context of {player.who!r} holds {context}")
        key = self.env.key()
        if player.turns and sum(map(len, player.turns)) + len(words) + self.room > context:
            self._end("context")
            return
        player.keys.append(key)
        player.add(words)
        if self.keep:
            self.env.keep()

    def _end(self, why: str) -> None:
        self.over, self.why = True, why
        self.env.close()  # now, not when all have ended: it may hold a process or a connection

    def fail(self, why: str) -> None:
        """End the episode as one that failed, with the reason."""
        self.failure = why
        self._end("failed")

    def trace(self, paid: bool = True, tag: str | None = None, seat: str | None = None) -> Trace:
        """The episode as a seat's trace, which ends with its last reply; the prompt alone where it has none.

        tag: by default that of episodes that an environment rewards, or of those whose last reply is judged
        seat: by default the policy's own
        """
        if not self.over:
            self._end("turns")
        seat = self.own_seat() if seat is None else seat
        player = self.players.get(seat) or Player(self.who)
        if not player.turns:
            model = self.models[self.who]
            player.add(Turn(model.chat.prompt(self.task)[: model.context - 1], "task"))
        spoken = player.turns[-1].author != "env"
        turns, rewards = (player.turns, player.rewards) if spoken else (player.turns[:-1], player.rewards[:-1])
        trace = Trace(
            tuple(turns),
            self.index,
            {"reward": player.earned} if paid else {},
            {"reward": rewards} if paid else {},
            tags=frozenset({tag or (PLAY if paid else TAG)}),
            note=self._notes(seat, player),
        )
        if self.failure:
            mark_failed(trace, self.failure)
        return trace

    def _notes(self, seat: str, player: Player) -> dict[str, object]:
        note: dict[str, object] = {"stopped": self.why, "done": self.why == "done", "turns": player.replies}
        if any(key is not None for key in player.keys):
            note["keys"] = player.keys[: player.replies]
        if any(player.cut):
            note["cut"] = sum(player.cut)
        if any(valid is not None for valid in player.valid):
            note["valid"] = [valid is not False for valid in player.valid]
        more = {
            "outcome": self.outcome,
            "answer": self.answered,
            "metrics": self.metrics,
            "seat": seat,
            "against": self.other,
        }
        return note | {name: value for name, value in more.items() if value}
