"""Part types, chains of parts, and the registry of which factories can supply a name.

The names that parts read and write:
  task:prompt  given:NAME         written by `draw`
  tokens:AUTHOR  mu:AUTHOR        turns by an author, and their behaviour log-probs, from `rollout`
  score:NAME  turn_score:NAME     numbers on traces and turns, from `score`
  pairs  lists                    explicit comparisons, from `select`
  stream:NAME  claim:TERM         one number per token, and the tokens that a term trains on, from `credit`
  model:NAME.CAPABILITY           a capability of one of the run's models
  store:NAME                      a replay buffer, kept between passes
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from burnish.core.state import State
from burnish.core.types import Group, Task, Trace
from burnish.util.lazy import load_lazy_packages

if TYPE_CHECKING:
    from burnish.core.step import Step
    from burnish.rollout.play import Playing
    from burnish.rollout.starts import Start
    from burnish.tasks.source import Source

Asks = Callable[[list[Task], "Step"], "list[list[Start]]"]


class Stateful(Protocol):
    """An object with state (JSON-able values and tensors), which checkpoints save and restore."""

    name: str

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Wired:
    """What any part declares: its name, the names that it reads, writes and updates in place, and its state.

    whole: for rollout and score: what becomes of a task depends on the others of the batch, or on its place among them,
    so that all are passed in one call. Several ranks then divide its model calls, not its tasks.
    """

    name: str
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    updates: frozenset[str] = frozenset()
    state: tuple[Stateful, ...] = ()
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class Draw(Wired):
    """Draws tasks. `heldout` draws tasks that are never trained on; `saw` gets the scored groups, for curricula.

    source: where the tasks come from, if they are others than those of the run's source; it judges held-out replies
    ahead: the tasks of a step depend on its clock and the settings alone, so a thread may draw them before the step.
    """

    call: Callable[[Step], list[Task]]
    ahead: bool = False
    heldout: Callable[[Step], list[Task]] | None = None
    saw: Callable[[list[Group], Step], None] | None = None
    source: Source | None = None


@dataclass(frozen=True, kw_only=True)
class Rollout(Wired):
    """Turns tasks into groups of traces. The only stage that generates.

    asks: the replies to sample for each task, if the rollout does nothing else; such replies can be sampled in chunks.
    None if later requests depend on earlier replies, or if nothing is sampled.
    plain: replies per task, where it samples replies of the policy as the run says and does nothing else.
    playing: how it plays episodes, if it does nothing else; such episodes can outlive a step.
    ahead: the groups depend on the tasks, the settings and the tokenizer alone, so a thread may make them before the
    step.
    """

    call: Callable[[list[Task], Step], list[Group]]
    ahead: bool = False
    asks: Asks | None = None
    plain: int | None = None
    playing: Playing | None = None


@dataclass(frozen=True, kw_only=True)
class Part(Wired):
    """A part of score, select or credit: groups in, groups out.

    begin: for a slow part of score (a reward function): starts scoring a group as soon as it is sampled, while others
    are still being sampled. `call` runs later, for all groups, and collects the results.
    kind: what it is to the passes that rewrite a built method (compose/): "task_reward" asks the task for the reward,
    "words" has a model read replies in tokens of its own (models/same_tokens.py).
    idle: for a part of credit one of whose coefficients is the constant 0: a part that writes the same and reads
    nothing that only the 0 multiplies.
    """

    call: Callable[[list[Group], Step], list[Group]]
    begin: Callable[[Group, Step], None] | None = None
    kind: str = ""
    idle: Part | None = None
    parts: tuple[Part, ...] = ()

    def __iter__(self) -> Iterator[Part]:
        """The parts of a chain, in order; a part that is not a chain yields itself."""
        return iter(self.parts) if self.name == "chain" else iter((self,))


class Trained(Protocol):
    """What the wiring check needs from a term: its name, the model that it trains, the authors whose
    tokens it trains on, and the names that it reads."""

    @property
    def name(self) -> str: ...

    @property
    def trainee(self) -> str: ...

    @property
    def authors(self) -> tuple[str, ...]: ...

    @property
    def reads(self) -> frozenset[str]: ...


def tokens_read(term: Trained, have: Collection[str]) -> frozenset[str]:
    """The name that says which tokens a term trains on: its claim where a part writes one, else its authors' tokens."""
    claim = f"claim:{term.name}"
    return frozenset({claim}) if claim in have or not term.authors else names("tokens", term.authors)


class Learning(Protocol):
    """The interface of the learn stage (`learn.Learn`).

    `call` updates the weights of the models named in `trainees`.
    """

    @property
    def terms(self) -> Sequence[Trained]: ...

    @property
    def reads(self) -> frozenset[str]: ...

    @property
    def trainees(self) -> tuple[str, ...]: ...

    def call(self, groups: list[Group], step: Step) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Publish(Wired):
    """The last stage: sends the new weights of the trained models to engines and followers."""

    call: Callable[[tuple[str, ...], Step], None]


def _publish(trained: tuple[str, ...], step: Step) -> None:
    step.models.publish(trained, step.clock, step.notes)


to_followers = Publish(name="to_followers", call=_publish)  # to engines, EMA and snapshot models, by their roles


@dataclass(frozen=True, kw_only=True)
class StagePart:
    """A part and its stage; as text 'group_relative (in credit)'."""

    stage: str
    part: Wired = field()

    def __str__(self) -> str:
        return f"{self.part.name} (in {self.stage})"


def chain(*parts: Part) -> Part:
    """One part that calls these parts in order."""
    atoms = tuple(atom for part in parts for atom in part)

    def call(groups: list[Group], step: Step) -> list[Group]:
        for atom in atoms:
            groups = atom.call(groups, step)
        return groups

    written: set[str] = set()
    reads: set[str] = set()
    for atom in atoms:
        reads |= atom.reads - written
        written |= atom.writes
    return Part(
        name="chain",
        call=call,
        parts=atoms,
        reads=frozenset(reads),
        writes=frozenset(written),
        updates=frozenset(name for atom in atoms for name in atom.updates),
        state=tuple(item for atom in atoms for item in atom.state),
    )


def split_score(score: Iterable[Part]) -> tuple[list[Part], list[Part]]:
    """The parts of score that can run anywhere, on some of the groups; and those that need all groups in one place:
    from the first part on that has a state or is `whole`.
    """
    parts = list(score)
    first = next((i for i, part in enumerate(parts) if part.state or part.whole), len(parts))
    return parts[:first], parts[first:]


everything = chain()  # the identity: every group passes unchanged

_SUPPLIERS: dict[str, list[str]] = {}
_Factory = TypeVar("_Factory", bound=Callable[..., object])


def supplies(*names: str) -> Callable[[_Factory], _Factory]:
    """Register a factory of parts as one that can write these names, for errors that name possible suppliers.

    A name may end in '*': `supplies("stream:*")` can write any stream.
    """

    def mark(factory: _Factory) -> _Factory:
        for name in names:
            stage, *file = factory.__module__.split(".")[1:]
            where = f"zoo.{file[0]}" if stage == "zoo" else stage
            _SUPPLIERS.setdefault(name, []).append(f"{where}.{factory.__name__}")
        return factory

    return mark


def suppliers(name: str) -> list[str]:
    """The factories that could write a name, exact matches before patterns."""
    load_lazy_packages()
    exact = _SUPPLIERS.get(name, [])
    general = [
        factory
        for pattern, factories in _SUPPLIERS.items()
        if pattern.endswith("*") and name.startswith(pattern[:-1])
        for factory in factories
    ]
    return list(dict.fromkeys([*exact, *general]))


def names(kind: str, items: str | Iterable[str]) -> frozenset[str]:
    """names("stream", ("adv", "old")) is {"stream:adv", "stream:old"}."""
    return frozenset(f"{kind}:{item}" for item in ([items] if isinstance(items, str) else items))


def per_trace(
    function: Callable[[Trace, Group, Step], None],
    *,
    name: str,
    reads: frozenset[str],
    writes: frozenset[str] = frozenset(),
    updates: frozenset[str] = frozenset(),
    idle: Part | None = None,
) -> Part:
    """A part that handles each trace separately: function(trace, group, step) modifies the trace."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for trace in group.traces:
                function(trace, group, step)
        return groups

    return Part(name=name, call=call, reads=reads, writes=writes, updates=updates, idle=idle)


def flatten(mapping: Mapping[str, Wired | None]) -> list[StagePart]:
    """The parts of all stages, in order, with chains expanded."""
    parts: list[StagePart] = []
    for stage, part in mapping.items():
        if isinstance(part, Part):
            parts += [StagePart(stage=stage, part=atom) for atom in part]
        elif part is not None:
            parts.append(StagePart(stage=stage, part=part))
    return parts
