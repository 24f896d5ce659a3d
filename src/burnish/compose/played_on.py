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
from burnish.core.step import UNFINISHED, Settings, Step
from burnish.core.types import Clock, Group, Task
from burnish.rollout.episode import Episode
from burnish.rollout.episode_records import bring_to, record_of
from burnish.rollout.play import Arriving, Playing, note_episodes
from burnish.rollout.starts import Reply, write_arriving

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
    """The groups that are being played, oldest first. Stateful: a checkpoint holds what was said in them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.groups: list[OpenGroup] = []
        self._stored: list[dict[str, Any]] = []

    def episodes(self) -> list[Episode]:
        """Those that are not over."""
        return [episode for group in self.groups for episode in group.episodes if not episode.over]

    def replies(self) -> int:
        """How many episodes are still being played."""
        return len(self.episodes())

    def state_dict(self) -> State:
        stored = [
            {
                "born": [group.born.step, group.born.tick],
                "place": group.place,
                "episodes": [record_of(episode) for episode in group.episodes],
            }
            for group in self.groups
        ]
        return {"groups": stored or self._stored}

    def load_state_dict(self, state: State) -> None:
        self._stored = list(state["groups"])

    def resume(self, step: Step, draw: Callable[[Step], list[Task]], playing: Playing) -> None:
        """After a resume: draw the tasks of the stored groups again, and play their episodes up to where they were."""
        stored, self._stored = self._stored, []
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
        if step.models.ranks.divides:
            raise ValueError(
                "episodes that wait for the next step do not work with several --ranks: environments answer each rank "
                "at another time; leave out --chunk, --train-when and --step-deadline, or --ranks"
            )
        opened.resume(step, draw, playing)
        for episode in opened.episodes():
            episode.models = step.models
        new = [OpenGroup(step.clock, i, episodes) for i, episodes in enumerate(playing.begin(tasks, step))]
        groups = [*opened.groups, *new]
        if any(episode.other is not None for group in new for episode in group.episodes):
            raise ValueError("episodes with --opponent are played in rounds; leave out --train-when, --chunk and so on")
        last = step.clock.step == step.clock.of - 1
        try:
            write_arriving(Enough(groups, step.settings, last=last), playing.who, step)
        except BaseException:
            for group in groups:
                for episode in group.episodes:
                    episode.env.close()
            raise
        done = [group for group in groups if group.over]
        opened.groups = [group for group in groups if not group.over]
        note_episodes([episode for group in done for episode in group.episodes], step)
        step.notes.count(UNFINISHED, opened.replies())
        return [seat for group in done for seat in playing.groups(group.episodes)]

    return replace(rollout, name=f"{rollout.name}, some played on", call=call, state=(*rollout.state, opened))


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
