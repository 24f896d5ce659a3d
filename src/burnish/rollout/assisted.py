"""Episodes in which some replies are written by a stronger model: help that is asked for at random, or by a gate."""

from __future__ import annotations

from collections.abc import Callable

from burnish.core import randomness
from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Trace, Turn
from burnish.rollout.episode import PLAY, Episode
from burnish.rollout.play import note_episodes
from burnish.rollout.sample import continue_from
from burnish.score.reading import end_scores

Gate = Callable[[list[Episode], Step], list[bool]]


@supplies("tokens:expert", "turn_score:reward", "score:reward")
def assisted(
    n: int, *, share: float = 0.5, gate: str | None = None, expert: str = "expert", temperature: float = 1.0
) -> Rollout:
    """n episodes per task; each reply is the expert's where help is asked for, else the policy's.

    gate: the model with one output that asks for help where its score of the state is above 0; without one, help is
    asked for with probability `share`. The environment rewards as in `play`. Metrics: help_asked and assisted_reward
    with a gate, random_help_asked and random_help_reward without one.
    """

    def call(tasks: list[Task], step: Step) -> list[Group]:
        episodes = [Episode(task, i, step, "policy") for task in tasks for i in range(n)]
        for episode in episodes:
            episode.begin()
        asked = 0
        for _ in range(step.settings.turns):
            running = [episode for episode in episodes if not episode.over]
            if not running:
                break
            wants = _at_random(running, share, step) if gate is None else _by_gate(running, gate, step)
            asked += sum(wants)
            for who, helped in (("policy", False), (expert, True)):
                some = [episode for episode, want in zip(running, wants, strict=True) if want == helped]
                starts = [(one.task, tuple(one.turns), one.number()) for one in some]
                said = continue_from(starts, who, step, tag="play", temperature=temperature) if some else []
                for episode, trace in zip(some, said, strict=True):
                    episode.reply(trace.turns[-1])
            for episode in running:
                episode.answer()
        note_episodes(episodes, step)
        traces = [episode.trace(True, PLAY) for episode in episodes]
        names_of = ("random_help_asked", "random_help_reward") if gate is None else ("help_asked", "assisted_reward")
        step.notes.add(names_of[0], asked, max(1, len(episodes)))
        step.notes.add(names_of[1], sum(trace.scores["reward"] for trace in traces), len(traces))
        return [Group(task, traces[k * n : (k + 1) * n]) for k, task in enumerate(tasks)]

    earned = frozenset({"turn_score:reward", "score:reward"} if gate is None else ())  # with a gate it is measured only
    asks = {"model:policy.generate", f"model:{expert}.generate"} | ({f"model:{gate}.score"} if gate else set())
    return Rollout(
        name=f"assisted({n}, {gate or share})",
        call=call,
        reads=frozenset({"task:prompt", "given:env"} | asks),
        writes=names("tokens", ("task", "env", "policy", expert)) | names("mu", "policy") | earned | {f"tag:{PLAY}"},
    )


def _at_random(running: list[Episode], share: float, step: Step) -> list[bool]:
    clock = step.clock
    return [
        randomness.rng(clock.seed, "help", clock.step, clock.tick, one.task.key, one.number()).random() < share
        for one in running
    ]


def _by_gate(running: list[Episode], gate: str, step: Step) -> list[bool]:
    traces = [Trace(tuple(one.turns)) for one in running]
    return [float(score) > 0 for score in end_scores(traces, step.models[gate], step.settings.token_budget)]


@supplies("tokens:task")
def states() -> Rollout:
    """The stored episode of each task up to the reply that it names: one trace, whose last token ends the state."""

    def call(tasks: list[Task], step: Step) -> list[Group]:
        found = []
        for task in tasks:
            past: tuple[Turn, ...] = task.given["trace"].turns[: task.given["turn"]]
            found.append(Group(task, [Trace(past)]))
        return found

    return Rollout(
        name="states", call=call, reads=names("given", ("trace", "turn")), writes=names("tokens", ("task", "env"))
    )
