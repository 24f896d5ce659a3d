"""Episodes that outlive a step: a step trains when enough of them are done, and the others play on beside the next.

    --train-when 0.5     a step ends when this share of the groups that are being played is done
    --step-deadline 30   a step waits for environments for at most this many seconds
    --chunk 64           an episode that has sampled so many tokens in a step waits for the next one after its turn

The groups whose episodes have all ended go on to score; the others wait, their environments working meanwhile, and are
played on in the next step, by the weights of then. The last step of a run plays all of them to their end. So every
episode that was started is learned from once, in no more and no fewer cases when it is long or slow: what is learned
from has the lengths that were played. With a share s and P tasks a step, P groups end in a step and P (1/s - 1) wait in
the long run: 1/s as many as are trained on are being played (over-provisioning).

Each token has the version of the weights that sampled it, and its log-prob under them. `--chunk` alone repeats itself
bit for bit; with the other two it is the clock on the wall that decides which step learns from an episode.

Of several ranks each plays the episodes of its portion of the tasks, and ends a step by these. After each step all know
how far the episodes of all are, so that the checkpoint of one holds them, and a resumed run divides them anew.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from burnish.core.method import Method, Phase
from burnish.core.parts import Rollout
from burnish.core.state import State
from burnish.core.step import UNFINISHED, Notes, Settings, Step
from burnish.core.types import Clock, Group, Task
from burnish.core.types_json import group_from_record, group_to_record
from burnish.models.ranks import Ranks
from burnish.rollout.episode import Episode
from burnish.rollout.episode_records import bring_to, record_of
from burnish.rollout.play import Arriving, Playing, note_episodes, play_arriving
from burnish.rollout.starts import Reply

_REPLAYS = 32  # episodes that are brought to their place at the same time when a run is resumed


@dataclass(eq=False)
class OpenGroup:
    """The episodes of one task that are being played.

    born: the clock of the step that drew it; place: its place among that step's tasks
    """

    born: Clock
    place: int
    episodes: list[Episode]

    @property
    def over(self) -> bool:
        return all(episode.over for episode in self.episodes)


class PlayedOn:
    """The groups that are being played, oldest first. Stateful: a checkpoint holds what was said in them.

    elsewhere: the records of those that other ranks play
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.groups: list[OpenGroup] = []
        self.elsewhere: list[dict[str, Any]] = []
        self._stored: list[dict[str, Any]] = []

    def episodes(self) -> list[Episode]:
        """Those that are not over."""
        return [episode for group in self.groups for episode in group.episodes if not episode.over]

    def replies(self) -> int:
        """How many episodes are still being played."""
        return len(self.episodes())

    def records(self) -> list[dict[str, Any]]:
        """The groups as plain values."""
        return [
            {
                "born": [group.born.step, group.born.tick],
                "place": group.place,
                "episodes": [record_of(episode) for episode in group.episodes],
            }
            for group in self.groups
        ]

    def state_dict(self) -> State:
        return {"groups": sorted([*self.records(), *self.elsewhere], key=_order) or self._stored}

    def load_state_dict(self, state: State) -> None:
        self._stored = list(state["groups"])

    def resume(self, step: Step, draw: Callable[[Step], list[Task]], playing: Playing) -> None:
        """After a resume: draw the tasks of the stored groups again, and play their episodes up to where they were.

        Each rank has its portion of them.
        """
        stored, self._stored = step.models.ranks.portion(self._stored), []
        resumed: list[tuple[Episode, dict[str, Any]]] = []
        tasks: dict[Clock, list[Task]] = {}
        for one in stored:
            born = replace(step.clock, step=one["born"][0], tick=one["born"][1])
            then = replace(step, clock=born)
            if born not in tasks:
                tasks[born] = draw(then)
            [episodes] = playing.begin([tasks[born][one["place"]]], then)
            self.groups.append(OpenGroup(born, one["place"], episodes))
            resumed += zip(episodes, one["episodes"], strict=True)
        if resumed:
            with ThreadPoolExecutor(min(_REPLAYS, len(resumed)), "resume") as pool:
                list(pool.map(lambda both: bring_to(*both), resumed))


def _order(record: dict[str, Any]) -> tuple[int, ...]:
    return (*record["born"], record["place"])


class Enough(Arriving):
    """Episodes of groups of which some may wait for the next step."""

    def __init__(self, groups: Sequence[OpenGroup], settings: Settings, *, last: bool) -> None:
        self.groups = groups
        self.wanted = len(groups) if last else math.ceil((settings.train_when or 1.0) * len(groups))
        self.most = math.inf if last or settings.chunk is None else settings.chunk
        self.spent: dict[Episode, int] = {}
        super().__init__([episode for group in groups for episode in group.episodes if not episode.over])
        if not last and settings.step_deadline is not None:
            self.deadline = time.monotonic() + settings.step_deadline

    def ends(self) -> bool:
        if time.monotonic() >= self.deadline:
            return True
        return self.wanted < len(self.groups) and sum(group.over for group in self.groups) >= self.wanted

    def waits(self, episode: Episode) -> bool:
        """One that has sampled its tokens hears whether it is over, and says nothing more in this step."""
        if self.spent.get(episode, 0) < self.most:
            return False
        episode.hear()
        episode.goes_on()
        return True

    def wrote(self, reply: Reply) -> None:
        assert reply.said is not None
        episode = self._of[reply]
        self.spent[episode] = self.spent.get(episode, 0) + len(reply.said)
        super().wrote(reply)


def playing_on(rollout: Rollout, playing: Playing, opened: PlayedOn, draw: Callable[[Step], list[Task]]) -> Rollout:
    """The rollout with episodes that may wait; evaluations play theirs to the end."""

    def call(tasks: list[Task], step: Step) -> list[Group]:
        if step.measures:
            return rollout.call(tasks, step)
        ranks = step.models.ranks
        if not ranks.divides:
            return [seat for group in play(list(enumerate(tasks)), step) for seat in playing.groups(group.episodes)]
        own, notes = replace(step, notes=Notes()), step.notes
        with ranks.apart():
            done = play(ranks.portion(list(enumerate(tasks))), own)
        return _of_all(ranks, [(group, playing.groups(group.episodes)) for group in done], own.notes, notes)

    def play(numbered: list[tuple[int, Task]], step: Step) -> list[OpenGroup]:
        """The groups that are done in this step; the others wait."""
        opened.resume(step, draw, playing)
        for episode in opened.episodes():
            episode.models = step.models
        begun = playing.begin([task for _, task in numbered], step)
        new = [OpenGroup(step.clock, i, episodes) for (i, _), episodes in zip(numbered, begun, strict=True)]
        groups = [*opened.groups, *new]
        last = step.clock.step == step.clock.of - 1
        try:
            play_arriving(Enough(groups, step.settings, last=last), step)
        except BaseException:
            for group in groups:
                for episode in group.episodes:
                    episode.env.close()
            raise
        done = [group for group in groups if group.over]
        opened.groups = [group for group in groups if not group.over]
        note_episodes([episode for group in done for episode in group.episodes], step)
        step.notes.count(UNFINISHED, opened.replies())
        return done

    def _of_all(ranks: Ranks, done: list[tuple[OpenGroup, list[Group]]], own: Notes, notes: Notes) -> list[Group]:
        """The groups that are done on any rank, in the order of one process; notes gets what all ranks noted."""
        finished = [[*_place(group), [group_to_record(seat) for seat in seats]] for group, seats in done]
        mine = {_place(group): seats for group, seats in done}
        by_place: dict[tuple[int, ...], list[Group]] = {}
        opened.elsewhere = []
        told: dict[str, Any] = {"done": finished, "open": opened.records(), "notes": own.state_dict()}
        for rank, (head, _) in enumerate(ranks.gather_values(told)):
            notes.absorb(head["notes"])
            opened.elsewhere += head["open"] if rank != ranks.rank else []
            for *place, seats in head["done"]:
                at = tuple(place)
                by_place[at] = mine[at] if rank == ranks.rank else [group_from_record(seat) for seat in seats]
        return [seat for at in sorted(by_place) for seat in by_place[at]]

    return replace(rollout, name=f"{rollout.name}, some played on", call=call, state=(*rollout.state, opened))


def _place(group: OpenGroup) -> tuple[int, ...]:
    """Where a group stands among all: by the step that drew it, and its place there."""
    return group.born.step, group.born.tick, group.place


def played_on(method: Method) -> Method:
    """The method whose episodes may outlive a step. Refused where it plays none, or does more with them."""
    phases = tuple(_played_on(method, phase) for phase in method.phases)
    if not any(waiting_in(phase) for phase in phases):
        raise ValueError(
            f"{method.name} plays no episodes that could outlive a step; leave out --train-when and --step-deadline"
        )
    return replace(method, phases=phases)


def waiting_in(phase: Phase) -> list[PlayedOn]:
    """What waits in a phase's rollout."""
    return [item for item in phase.rollout.state if isinstance(item, PlayedOn)]


def _played_on(method: Method, phase: Phase) -> Phase:
    rollout = phase.rollout
    if rollout.playing is None or waiting_in(phase):
        return phase
    if phase.draw.state:
        raise ValueError(
            f"{method.name} cannot leave episodes for the next step: its tasks are drawn by what was seen before "
            f"({phase.draw.name}), so a resumed run could not draw them again; leave out --train-when, --step-deadline "
            "and --chunk"
        )
    opened = PlayedOn(f"played-on-{phase.name}")
    return replace(phase, rollout=playing_on(rollout, rollout.playing, opened, phase.draw.call))
