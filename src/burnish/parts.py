"""What a part is, how parts chain, and how a name is traced back to the parts that could supply it.

The names that parts read and write:
  task:prompt  given:NAME         what `draw` brings
  tokens:AUTHOR  mu:AUTHOR        turns by an author, and their behaviour log-probs, from `rollout`
  score:NAME  turn_score:NAME     numbers on traces and turns, from `score`
  pairs  lists                    explicit comparisons, from `select`
  stream:NAME  member:TERM        one number per token, and the tokens a term claims, from `credit`
  cast:MEMBER.CAPABILITY          what a member of the cast can do
  store:NAME                      what a store remembers between walks
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from burnish.nouns import Group, Task, Trace

if TYPE_CHECKING:
    from burnish.rollout.starts import Start
    from burnish.step import Step

Asks = Callable[[list[Task], "Step"], "list[list[Start]]"]


class Stateful(Protocol):
    """A thing with memory. Its state is JSON-able values and tensors; the loop saves and restores it."""

    name: str

    def state_dict(self) -> dict: ...

    def load_state_dict(self, state: dict) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Wired:
    """What any part declares: its name, what it reads and writes, what it changes in place, and its memory."""

    name: str
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    updates: frozenset[str] = frozenset()
    state: tuple[Stateful, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Draw(Wired):
    """Brings tasks. `heldout` brings tasks that are never trained on; `saw` hears how the groups ended, for curricula."""

    call: Callable[[Step], list[Task]]
    heldout: Callable[[Step], list[Task]] | None = None
    saw: Callable[[list[Group], Step], None] | None = None


@dataclass(frozen=True, kw_only=True)
class Rollout(Wired):
    """Turns tasks into groups of traces. The only room that generates.

    asks: the replies that it wants, task by task, where that is all it does: such replies can be written in chunks.
    None where what is asked depends on how other replies end, or where nobody samples.
    """

    call: Callable[[list[Task], Step], list[Group]]
    asks: Asks | None = None


@dataclass(frozen=True, kw_only=True)
class Part(Wired):
    """A part of score, select or credit: groups in, groups out.

    begin: for a part of score that waits for somebody: what it can set going for a group as soon as the group is written, while
    others are not. `call` comes later, for all groups, and finds what was begun.
    """

    call: Callable[[list[Group], Step], list[Group]]
    begin: Callable[[Group, Step], None] | None = None
    parts: tuple[Part, ...] = ()

    def __iter__(self) -> Iterator[Part]:
        """The atoms of a chain, in order; a part that is not a chain is its own atom."""
        return iter(self.parts) if self.name == "chain" else iter((self,))


@dataclass(frozen=True, kw_only=True)
class Room:
    """What stands in one room of a phase, for messages: 'credit / group_relative'."""

    room: str
    part: Wired = field()

    def __str__(self) -> str:
        return f"{self.part.name} (in {self.room})"


def chain(*parts: Part) -> Part:
    """The parts one after the other: a part again."""
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


everything = chain()  # the part that changes nothing: every group goes on as it is

_SUPPLIERS: dict[str, list[str]] = {}
_Factory = TypeVar("_Factory", bound=Callable)


def supplies(*names: str) -> Callable[[_Factory], _Factory]:
    """Marks a factory of parts as one that can write these names, so that an error can say who could supply them.

    A name may end in '*': `supplies("stream:*")` can write any stream.
    """

    def mark(factory: _Factory) -> _Factory:
        for name in names:
            _SUPPLIERS.setdefault(name, []).append(f"{factory.__module__.split('.')[1]}.{factory.__name__}")
        return factory

    return mark


def suppliers(name: str) -> list[str]:
    """The factories that could write a name, the specific before the general."""
    exact = _SUPPLIERS.get(name, [])
    general = [
        s
        for pattern, found in _SUPPLIERS.items()
        if pattern.endswith("*") and name.startswith(pattern[:-1])
        for s in found
    ]
    return list(dict.fromkeys([*exact, *general]))


def names(kind: str, items: str | Iterable[str]) -> frozenset[str]:
    """names("stream", ("adv", "old")) is {"stream:adv", "stream:old"}."""
    return frozenset(f"{kind}:{item}" for item in ([items] if isinstance(items, str) else items))


def per_trace(
    function: Callable[[Trace, Group, Step], None], *, name: str, reads: frozenset[str], writes: frozenset[str]
) -> Part:
    """A part that treats each trace alone: function(trace, group, step) writes on the trace."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for trace in group.traces:
                function(trace, group, step)
        return groups

    return Part(name=name, call=call, reads=reads, writes=writes)


def flatten(mapping: Mapping[str, Wired | None]) -> list[Room]:
    """Every atom of every room, in walking order."""
    found: list[Room] = []
    for room, part in mapping.items():
        if isinstance(part, Part):
            found += [Room(room=room, part=atom) for atom in part]
        elif part is not None:
            found.append(Room(room=room, part=part))
    return found
