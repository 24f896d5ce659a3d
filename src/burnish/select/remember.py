"""A store of past groups, with a limit and a state that can be saved."""

from __future__ import annotations

from typing import Any

from burnish.nouns import Group
from burnish.parts import Part, supplies
from burnish.run.records import group_from_record, group_to_record
from burnish.step import Step


class Store:
    """The last `capacity` groups that were remembered, oldest first."""

    def __init__(self, name: str, capacity: int) -> None:
        self.name, self.capacity = name, capacity
        self.groups: list[Group] = []
        self.written = 0

    def add(self, groups: list[Group]) -> None:
        self.groups = (self.groups + groups)[-self.capacity :]
        self.written += len(groups)

    def state_dict(self) -> dict[str, Any]:
        return {"written": self.written, "groups": [group_to_record(group) for group in self.groups]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.written = state["written"]
        self.groups = [group_from_record(record) for record in state["groups"]]


@supplies("store:*")
def remember(store: Store, *reads: str) -> Part:
    """Put every group into the store; `reads` names what later walks will want of them ("turn_score:reward")."""

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
