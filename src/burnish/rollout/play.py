"""Episodes of several turns: the policy and an environment take turns, token in, token out (rollout/episode.py).

An episode whose environment has answered is sampled on while the environments of others still think. A reply depends
on its own key alone, so the traces do not depend on who answers when. Where other models speak, too, each writes what
is asked of it while the others wait. Replies of a blend are written in rounds.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from burnish.core.learners import SEAT_MODEL
from burnish.core.messages import Message, text_of
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.engine.mixture import Blend
from burnish.envs.tools import TAG
from burnish.rollout.episode import PLAY, Episode
from burnish.rollout.sample import continue_from
from burnish.rollout.starts import Reply, write_arriving

GATHER = 0.002  # seconds without an answer after which the episodes that have gathered are sampled
LONGEST = 0.02  # seconds in which episodes gather, at most
NAP = 0.0003  # seconds between two looks at those that gather
EpisodeStart = tuple[Task, tuple[Turn, ...], int]  # the task, the turns so far, a number for the sampling noise
Speak = Callable[[list[EpisodeStart], Step], list[Trace]]  # a trace for each, whose last turn is the reply


@dataclass(frozen=True)
class Playing:
    """How a rollout plays: what starts the episodes of tasks, and what makes groups of those of one task."""

    begin: Callable[[list[Task], Step], list[list[Episode]]]
    groups: Callable[[list[Episode]], list[Group]]


@supplies("tokens:env", "turn_score:reward", "score:reward")
def play(
    n: int = 1,
    *,
    turns: int | None = None,
    temperature: float | None = None,
    who: str = "policy",
    paid: bool = True,
    judged: str = TAG,
    blend: Blend | None = None,
) -> Rollout:
    """n episodes per task, of at most `turns` replies each (by default those of the run's settings).

    The environment's reward for a reply stands on the turn (turn_scores["reward"]); their sum is scores["reward"].
    Episodes of one task have the same seed. note["keys"] names the state before each reply, where the environment
    has names for them; note["valid"] says which replies were executed, where its info says so ("valid"). With several
    seats of the policy, a task gives a group for each. An environment that raises, hangs or answers nonsense ends its
    episode, which counts as failed with the reason.
    paid: whether environments reward; if not, episodes are judged by what follows in score
    judged: the tag of episodes that environments do not reward: of TAG the last reply is judged, else the whole
    blend: replies are sampled from `who` blended with other models
    """
    tag = PLAY if paid else judged

    def begin(tasks: list[Task], step: Step) -> list[list[Episode]]:
        how: dict[str, Any] = {"most": turns, "temperature": temperature}
        return [[Episode(task, i, step, who, **how) for i in range(n)] for task in tasks]

    def call(tasks: list[Task], step: Step) -> list[Group]:
        episodes = [episode for some in begin(tasks, step) for episode in some]
        try:
            if blend is not None:
                for episode in episodes:
                    episode.begin()
                play_on(episodes, step, temperature=temperature, blend=blend)
            else:
                play_arriving(Arriving(episodes), step)
        finally:
            for episode in episodes:
                episode.env.close()
        note_episodes(episodes, step)
        return [group for k in range(len(tasks)) for group in _groups(episodes[k * n : (k + 1) * n], paid, tag)]

    mixed = {f"model:{who}.mix", *(f"model:{other}.logits" for other in blend.others)} if blend else set()
    name = f"play({n}) from {blend.name}" if blend else f"play({n})"
    rollout = of_episodes(name, call, who, paid=paid, reads=mixed, tag=tag)
    if blend is not None:
        return rollout
    return replace(rollout, playing=Playing(begin, lambda episodes: _groups(episodes, paid, tag)))


def of_episodes(
    name: str,
    call: Callable[[list[Task], Step], list[Group]],
    *who: str,
    paid: bool = True,
    reads: Iterable[str] = (),
    writes: Iterable[str] = (),
    tag: str | None = None,
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
        | {f"tag:{tag or (PLAY if paid else TAG)}"}
        | frozenset(writes),
    )


def run_episodes(
    tasks: list[Task], n: int, step: Step, who: str, turns: int | None, speak: Speak, paid: bool = True
) -> list[Group]:
    """n episodes for each task, in which `speak` gives the replies; `who` has the chat template and the context."""
    episodes = [Episode(task, i, step, who, most=turns) for task in tasks for i in range(n)]
    for episode in episodes:
        episode.begin()
    while running := [episode for episode in episodes if episode.goes_on()]:
        starts = [(episode.task, tuple(episode.turns), episode.number()) for episode in running]
        take_turn(running, speak(starts, step))
    note_episodes(episodes, step)
    return [
        Group(task, [episode.trace(paid) for episode in episodes[k * n : (k + 1) * n]]) for k, task in enumerate(tasks)
    ]


def play_on(
    episodes: Sequence[Episode],
    step: Step,
    turns: int | None = None,
    *,
    temperature: float | None = None,
    blend: Blend | None = None,
) -> None:
    """Play episodes on in rounds until they are over or have `turns` replies each (by default as many as they may)."""
    while running := [
        episode for episode in episodes if not episode.over and episode.replies < (turns or episode.most)
    ]:
        take_turn(running, replies_to(running, step, temperature=temperature, blend=blend))


def replies_to(
    episodes: Sequence[Episode], step: Step, *, temperature: float | None = None, blend: Blend | None = None
) -> list[Trace]:
    """The next reply of each episode, all of one model sampled together."""
    found: dict[Episode, Trace] = {}
    for who in dict.fromkeys(episode.player.who for episode in episodes):
        mine = [episode for episode in episodes if episode.player.who == who]
        starts = [(episode.task, tuple(episode.turns), episode.number()) for episode in mine]
        mixed, author = blend if who == mine[0].who else None, mine[0].author
        said = continue_from(starts, who, step, author=author, blend=mixed, tag=PLAY, temperature=temperature)
        found |= dict(zip(mine, said, strict=True))
    return [found[episode] for episode in episodes]


def take_turn(episodes: Sequence[Episode], replies: Sequence[Trace]) -> None:
    """Each episode takes its reply; their environments then step at the same time."""
    for episode, trace in zip(episodes, replies, strict=True):
        episode.reply(trace.turns[-1])
    for episode in episodes:
        episode.answer()


class Arriving:
    """Episodes whose next replies are asked for as their environments answer; those of each model apart.

    One model writes at a time. It takes what is asked of it until more replies wait for another one than it is still
    writing; what it has begun it ends.
    """

    def __init__(self, episodes: list[Episode]) -> None:
        self.rows = len(episodes)
        self.deadline = math.inf  # when `ends` is asked again, though nothing has happened
        self._answered: queue.SimpleQueue[Episode] = queue.SimpleQueue()
        self._thinking: dict[Episode, None] = {}
        self._asked: dict[str, list[Reply]] = {}  # by model, those whose writing has not begun
        self._writing = 0
        self._of: dict[Reply, Episode] = {}
        for episode in episodes:
            self._wait_for(episode)

    def next_model(self) -> str | None:
        """The model of which most replies are asked, once there are any; None where no more will be."""
        self.hear(wait=True)
        return max(self._asked, key=lambda who: len(self._asked[who]), default=None)

    def take(self, who: str, wait: bool) -> list[Reply]:
        """The replies that are asked of a model; wait: until there is one, unless others are asked for."""
        self.hear(wait and not self._asked)
        others = max((len(replies) for other, replies in self._asked.items() if other != who), default=0)
        own = self._asked.pop(who, [])
        if others > max(self._writing, len(own)):
            self._asked |= {who: own} if own else {}
            return []
        self._writing += len(own)
        return own

    def hear(self, wait: bool) -> None:
        """Ask for the next replies of the episodes whose environments have answered. wait: until there is one."""
        while not self.ends():
            for episode in self._answers(wait):
                if self.waits(episode):
                    continue
                reply = episode.go_on()
                if reply is not None:
                    self._asked.setdefault(reply.start.who, []).append(reply)
                    self._of[reply] = episode
            if self._asked or not wait or not self._thinking:
                return

    def ends(self) -> bool:
        """Whether no more replies are asked for, though some episodes go on."""
        return False

    def waits(self, episode: Episode) -> bool:
        """Whether an episode is left as it is, with its environment's answer not yet taken."""
        return False

    def wrote(self, reply: Reply) -> None:
        """The environment of the reply's episode begins to step."""
        assert reply.said is not None
        self._writing -= 1
        episode = self._of.pop(reply)
        episode.reply(reply.said)
        self._wait_for(episode)

    def _wait_for(self, episode: Episode) -> None:
        self._thinking[episode] = None
        episode.call.then(lambda: self._answered.put(episode))

    def _answers(self, wait: bool) -> list[Episode]:
        """Episodes whose environments have answered or run out of time; wait: until there is one, and a moment more."""
        found: dict[Episode, None] = {}
        if wait and self._thinking:
            left = min([self.deadline, *(episode.env.due for episode in self._thinking)]) - time.monotonic()
            with contextlib.suppress(queue.Empty):
                found[self._answered.get(timeout=left) if left > 0 else self._answered.get_nowait()] = None
        self._drain(found)
        if wait and found:
            self._gather(found)
        now = time.monotonic()
        found |= {episode: None for episode in self._thinking if episode.env.due <= now}
        answered = [episode for episode in found if episode in self._thinking]  # not those that ran out of time before
        for episode in answered:
            del self._thinking[episode]
        return answered

    def _gather(self, found: dict[Episode, None]) -> None:
        """Those that answer soon after. This thread sleeps meanwhile: to be woken up by each would slow all of them."""
        last = time.monotonic()
        end = last + LONGEST
        while len(found) < len(self._thinking) and time.monotonic() < min(end, last + GATHER):
            before = len(found)
            time.sleep(NAP)
            self._drain(found)
            last = time.monotonic() if len(found) > before else last

    def _drain(self, found: dict[Episode, None]) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                found[self._answered.get_nowait()] = None


@dataclass(frozen=True)
class _OfModel:
    """The replies that are asked of one model (rollout/starts.py: Arrivals)."""

    arriving: Arriving
    who: str

    @property
    def rows(self) -> int:
        return self.arriving.rows

    def take(self, wait: bool) -> list[Reply]:
        return self.arriving.take(self.who, wait)

    def wrote(self, reply: Reply) -> None:
        self.arriving.wrote(reply)


def play_arriving(arriving: Arriving, step: Step) -> None:
    """Play episodes until they are over, or none asks for a reply: their models write in turn."""
    while (who := arriving.next_model()) is not None:
        write_arriving(_OfModel(arriving, who), who, step)


def _groups(episodes: list[Episode], paid: bool, tag: str) -> list[Group]:
    """The episodes of one task as groups: one for each seat of a model that learns, compared with itself alone."""
    task, who = episodes[0].task, episodes[0].who
    seats = list(dict.fromkeys(seat for episode in episodes for seat in episode.trained())) or [""]
    found = []
    for seat in seats:
        named = task if len(seats) == 1 else replace(task, key=f"{task.key} as {seat}")
        other = {episode.players[seat].who for episode in episodes if seat in episode.players} - {who}
        if other:  # a seat is played by one model in all episodes of a task
            named = replace(named, given={**named.given, SEAT_MODEL: other.pop()})
        asked = [episode.players[seat].asked for episode in episodes if seat in episode.players]
        prompt = _shared([messages for messages in asked if messages]) or named.prompt
        found.append(Group(replace(named, prompt=prompt), [episode.trace(paid, tag, seat) for episode in episodes]))
    return found


def _shared(prompts: list[tuple[Message, ...]]) -> tuple[Message, ...]:
    """What the first views of a seat have in common: they differ where another player began. Empty without any."""
    if len({str(prompt) for prompt in prompts}) < 2:
        return prompts[0] if prompts else ()
    common = os.path.commonprefix(["\n".join(map(text_of, prompt)) for prompt in prompts])
    return ({"role": "user", "content": f"{common.rstrip()} ..."},)


def note_episodes(episodes: Sequence[Episode], step: Step) -> None:
    """Metrics of the episodes: turns, how they ended. Raises ValueError where every environment failed."""
    failed = [episode.failure for episode in episodes if episode.failure]
    if episodes and len(failed) == len(episodes):
        raise ValueError(f"every environment failed; the first: {failed[0]}")
    for episode in episodes:
        for seat in episode.trained():
            player = episode.players[seat]
            step.notes.add("turns", player.replies)
            step.notes.add("cut_turns", sum(player.cut), max(1, player.replies))
        step.notes.add("episode_ended", float(episode.why == "done"))
        for name, value in episode.metrics.items():
            step.notes.add(f"env/{name}", value)
    if failed:
        step.notes.count("env_failures", len(failed))
