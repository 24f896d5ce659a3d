"""What happens to a method between the moment it is built and the moment it runs: one list of passes, in order.

A method is built once, from its arguments and its task. What a run adds (an environment of several turns, an opponent,
a curriculum, swapped parts, rewards and shapes, chunks) does not belong into 270 signatures: each is a pass, a function
from a method to a method. A pass finds its parts by what they declare (`Part.kind`, `Rollout.plain`), not by their
names. Each result is checked as a new method is, so a pass that breaks the wiring is refused in a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from burnish.compose.chunked import chunked
from burnish.compose.curricula import drawn
from burnish.compose.idle import without_idle_models
from burnish.compose.multi_turn import SEVERAL_TURNS, played
from burnish.compose.oracle import with_oracle
from burnish.compose.own_seats import learned_apart
from burnish.compose.played_on import played_on
from burnish.compose.rewards import with_scorers
from burnish.compose.seats import Opponent, seated
from burnish.compose.swap import swapped
from burnish.core.method import Method
from burnish.core.scorer import Named
from burnish.tasks.source import Source


@dataclass(frozen=True)
class Additions:
    """What a run adds to its method.

    name       of the method, for messages and metrics
    source     the tasks, with the tools, the agent and the opponent that they are played with
    opponent   of --opponent
    draw       the curriculum of --draw
    swap       the parts of --swap
    rewards    scorers of --reward with their weights; shapes: those of --shape, in order
    oracle     the preference of --preference
    drop       whether replies without a reward are dropped (--on-reward-failure drop)
    chunk      tokens of a reply that are sampled in one step (--chunk)
    waits      whether episodes may wait for the next step (--train-when, --step-deadline)
    """

    name: str
    source: Source
    opponent: Opponent | None = None
    draw: str | None = None
    swap: str | None = None
    rewards: Sequence[Named] = ()
    shapes: Sequence[Named] = ()
    oracle: Named | None = None
    drop: bool = False
    chunk: int | None = None
    waits: bool = False


@dataclass(frozen=True)
class Pass:
    """One rewriting of a method, and when it has something to do."""

    what: str
    when: Callable[[Method, Additions], object]
    apply: Callable[[Method, Additions], Method]


PASSES = (
    Pass(
        "episodes in place of replies",
        lambda _, run: SEVERAL_TURNS & run.source.gives,
        lambda method, run: played(method, run.source),
    ),
    Pass(
        "an opponent at the other seats",
        lambda _, run: run.opponent,
        lambda method, run: seated(method, run.opponent) if run.opponent else method,
    ),
    Pass("prompts by a curriculum", lambda _, run: run.draw, lambda method, run: drawn(method, run.draw, run.source)),
    Pass("swapped parts", lambda _, run: run.swap, lambda method, run: swapped(method, run.swap or "")),
    Pass(
        "rewards and shapes",
        lambda _, run: True,
        lambda method, run: with_scorers(method, run.rewards, run.shapes, run.drop),
    ),
    Pass(
        "a preference oracle",
        lambda _, run: run.oracle,
        lambda method, run: with_oracle(method, run.oracle, run.drop),
    ),
    Pass("no model that nothing reads", lambda _, run: True, lambda method, run: without_idle_models(method)),
    Pass(
        "models of their own for other seats",
        lambda _, run: run.opponent and run.opponent.learners,
        lambda method, run: learned_apart(method, run.opponent) if run.opponent else method,
    ),
    Pass(  # --train-when and --step-deadline ask for it, and --chunk where the method plays episodes
        "episodes that outlive a step",
        lambda method, run: run.waits or (run.chunk is not None and _plays(method)),
        lambda method, run: played_on(method),
    ),
    Pass("replies in chunks", lambda _, run: run.chunk is not None, lambda method, run: chunked(method)),
)


def _plays(method: Method) -> bool:
    return any(phase.rollout.playing is not None for phase in method.phases)


def composed(method: Method, run: Additions) -> Method:
    """The method of a run: what was built, after every pass that has something to do."""
    method = replace(method, name=run.name)
    for one in PASSES:
        if one.when(method, run):
            method = replace(one.apply(method, run), name=run.name)
    return method
