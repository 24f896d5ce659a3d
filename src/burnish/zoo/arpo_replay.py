"""ARPO:End-to-End Policy Optimization for GUI Agents with Experience Replay (arXiv 2505.16282)."""

from __future__ import annotations

import statistics
from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.core import randomness
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.select.task_replay import PAST, TaskStore, played_before

ARPO_REPLAY = Paper(
    "arpo-replay", "2505.16282", "ARPO:End-to-End Policy Optimization for GUI Agents with Experience Replay"
)

Episodes = Annotated[int, Option("Episodes of each task, which are compared with each other.", at_least=2)]


@supplies("tag:refilled")
def replay_where_failed(
    store: TaskStore, *, above: float = 0.1, flat: float = 0.05, low: float = 0.2, score: str = "reward"
) -> Part:
    """ARPO's replay (arXiv 2505.16282): a group without success gets one of the task's past successes.

    In a group whose scores have a deviation below `flat` and a mean below `low`, the first trace is replaced by a
    stored one, drawn at random (tag "replayed"). Then the traces that score more than `above` are stored; one that
    came from the store is not stored again. All traces get the tag "refilled".
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        replaced = sum([_refill(group, step) for group in groups])
        for group in groups:
            new = [trace for trace in group.traces if PAST not in trace.tags and trace.scores[score] > above]
            store.add(group, new)
            for trace in group.traces:
                trace.tags = trace.tags | {"refilled"}
        step.notes.add("replayed", replaced, max(1, len(groups)))
        step.notes.add("replay_store", len(store))
        return groups

    def _refill(group: Group, step: Step) -> bool:
        scores = [trace.scores[score] for trace in group.traces]
        known = store.of(group.task.key)
        if not known or not scores or statistics.fmean(scores) >= low or _deviation(scores) >= flat:
            return False
        clock = step.clock
        dice = randomness.rng(clock.seed, "replay", store.name, clock.step, clock.tick, group.task.key)
        group.traces[0] = played_before(dice.choice(known), group.traces[0].index)
        return True

    return Part(
        name=f"replay_where_failed({store.name})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"tag:refilled"}),
        updates=frozenset({"tokens:policy"}),
        state=(store,),
    )


def _deviation(scores: list[float]) -> float:
    """Their sample deviation; 0 of one."""
    return statistics.stdev(scores) if len(scores) > 1 else 0.0


@register(
    ARPO_REPLAY,
    family="agents",
    summary="GRPO over episodes; a group without success gets one of the task's past successes.",
    when="Most groups fail as a whole, and tasks come back: a dataset or a fixed set of environments.",
    example="burnish train arpo_replay --task guess:1",
    trial={"task": "guess", "n": 3},
)
def arpo_replay(
    task: draw.Source,
    *,
    n: Episodes = 8,
    per_task: Annotated[int, Option("Past episodes that are kept of each task.", at_least=1)] = 8,
    above: Annotated[float, Option("An episode that scores more than this is kept.")] = 0.1,
    flat: Annotated[float, Option("A group is refilled if the deviation of its scores is below this.")] = 0.05,
    low: Annotated[float, Option("A group is refilled if the mean of its scores is below this.")] = 0.2,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.3,
) -> Method:
    """ARPO: GRPO with an experience replay by task.

    Of a task's last `per_task` episodes with R > above, one takes the place of the first episode of a group whose
    scores have a deviation < flat and a mean < low.  A = (R - mean R) / std R over the group after that
    L = mean over episodes of the mean over tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A); no KL

    An empty store is GRPO with that clip. The constants are the released code's; its reward has 0.5 for the format,
    which belongs to the environment here. Its rho of a replayed episode is against log-probs that are computed again
    under the current policy, so it begins at 1 although another policy played it: a bias. That is the default here;
    --swap "streams=behaviour()" takes the log-probs with which the episode was sampled. Departures: an episode that
    came from the store is not stored a second time; the store holds at most 10,000 tasks. The paper trains on tasks
    that the starting model solves at least once, which is a choice of data.
    """
    store = select.TaskStore("successes", per_task)
    return method(
        draw=draw.prompts(task, "env"),
        rollout=rollout.play(n),
        select=replay_where_failed(store, above=above, flat=flat, low=low),
        credit=chain(credit.group_relative(), credit.old(), credit.claim("pg", "policy", tag="refilled")),
        learn=learn.Learn(learn.pg_clip(eps_low, eps_high, norm=learn.seq_mean, on=learn.CLAIMED)),
        models=roles(),
    )
