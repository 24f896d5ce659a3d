"""A store of past groups, with a limit and a state that can be saved."""

from __future__ import annotations

from collections.abc import Callable

from burnish.core.parts import Part, supplies
from burnish.core.state import State
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.core.types_json import group_from_record, group_to_record


def one(group: Group) -> int:
    """The size of a group in a store that counts groups."""
    return 1


def turns_by(author: str) -> Callable[[Group], int]:
    """The size of a group in a store that counts transitions: the turns by this author."""
    return lambda group: sum(turn.author == author for trace in group.traces for turn in trace.turns)


class Store:
    """The newest groups that were remembered, oldest first, as many as have a size of at most `capacity` together.

    size  what a group counts. The newest group stays whatever its size.
    """

    def __init__(self, name: str, capacity: int, size: Callable[[Group], int] = one) -> None:
        self.name, self.capacity, self.size = name, capacity, size
        self.groups: list[Group] = []
        self.written = 0

    def add(self, groups: list[Group]) -> None:
        self.groups = self.groups + groups
        self.written += len(groups)
        total, oldest = sum(self.size(group) for group in self.groups), 0
        while total > self.capacity and oldest < len(self.groups) - 1:
            total -= self.size(self.groups[oldest])
            oldest += 1
        self.groups = self.groups[oldest:]

    def state_dict(self) -> State:
        return {"written": self.written, "groups": [group_to_record(group) for group in self.groups]}

    def load_state_dict(self, state: State) -> None:
        self.written = state["written"]
        self.groups = [group_from_record(record) for record in state["groups"]]


@supplies("store:*")
def remember(store: Store, *reads: str) -> Part:
    """Put every group into the store; `reads` names what later passes will want of them ("turn_score:reward")."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        store.add(groups)
        return groups

    return Part(
        name=f"remember({store.name})",
        call=call,
        reads=frozenset(reads),
        writes=frozenset({f"store:{store.name}"}),
        state=(store,),
    )
