"""A method is a cast of models and a few phases; each phase is one walk through the seven rooms.

Building a Method checks its wiring. A part that reads what nobody before it writes, a second writer of one name, a
stream that nobody reads: each is refused in a sentence that says what is missing and who could supply it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from burnish.cast.roles import Role
from burnish.learn.learn import Learn
from burnish.nouns import Clock
from burnish.parts import Draw, Part, Rollout, Room, Stateful, everything, flatten, suppliers

_MUST_BE_READ = ("stream:", "member:", "score:", "pairs", "lists")


@dataclass(frozen=True, kw_only=True)
class Phase:
    """draw -> rollout -> score -> select -> credit -> learn (-> publish), walked `times` times in each step."""

    draw: Draw
    rollout: Rollout
    score: Part = everything
    select: Part = everything
    credit: Part = everything
    learn: Learn
    name: str = "main"
    times: int | Callable[[Clock], float] = 1

    def rooms(self) -> list[Room]:
        return flatten({room: getattr(self, room) for room in ("draw", "rollout", "score", "select", "credit")})


@dataclass(frozen=True)
class Method:
    """A cast and its phases, checked when built.

    product   the member that the run is for
    lr_share  where the user names no learning rate: the share of the model's default that suits this method
    """

    cast: Mapping[str, Role]
    phases: tuple[Phase, ...]
    product: str = "policy"
    name: str = "method"
    lr_share: float = 1.0

    def __post_init__(self) -> None:
        if self.product not in self.cast:
            raise ValueError(f"{self.name}: its product {self.product!r} is not in its cast ({', '.join(self.cast)})")
        _check_roles(self)
        stores = {
            name
            for phase in self.phases
            for room in phase.rooms()
            for name in room.part.writes
            if name.startswith("store:")
        }
        for phase in self.phases:
            _check_phase(self, phase, stores)

    def stateful(self) -> dict[str, Stateful]:
        """Everything with memory, by name, once: what a checkpoint must hold besides the cast."""
        found: dict[str, Stateful] = {}
        for phase in self.phases:
            for room in phase.rooms():
                for item in room.part.state:
                    if found.setdefault(item.name, item) is not item:
                        raise ValueError(
                            f"{self.name}: two parts with memory are both called {item.name!r}; name one of them otherwise"
                        )
        return found


def method(*, cast: Mapping[str, Role], product: str = "policy", lr_share: float = 1.0, **rooms: object) -> Method:
    """A method of one phase: method(draw=..., rollout=..., ..., learn=..., cast=...)."""
    return Method(cast=cast, phases=(Phase(**rooms),), product=product, lr_share=lr_share)  # type: ignore[arg-type]


def _check_roles(method: Method) -> None:
    for name, role in method.cast.items():
        if role.follows is not None and role.follows not in method.cast and role.follows != "base":
            raise ValueError(
                f"{method.name}: cast member {name!r} is {role.liveness} from {role.follows!r}, which is not in the cast "
                f"({', '.join(method.cast)})"
            )


def _check_phase(method: Method, phase: Phase, stores: set[str]) -> None:
    where = f"{method.name}, phase {phase.name!r}"
    if phase.draw is None or phase.rollout is None:
        missing = "draw" if phase.draw is None else "rollout"
        raise ValueError(f"{where}: there is no part in room {missing!r}; {_who(missing)}")
    have = {f"cast:{name}.{can}" for name, role in method.cast.items() for can in role.can} | stores
    wrote: dict[str, Room] = {}
    read: set[str] = set()
    for room in phase.rooms():
        for name in sorted(room.part.reads):
            if name not in have:
                raise ValueError(f"{where}: {room} reads {name!r}, which nothing before it writes; {_who(name)}")
        for name in sorted(room.part.writes):
            if name in wrote and name not in room.part.updates and not name.startswith("store:"):
                raise ValueError(
                    f"{where}: {room} writes {name!r}, which {wrote[name]} wrote already; rename one or drop one"
                )
            wrote[name] = room
        read |= room.part.reads
        have |= room.part.writes
    for name in sorted(phase.learn.reads - have):
        raise ValueError(f"{where}: learn reads {name!r}, which nothing in credit writes; {_who(name)}")
    read |= phase.learn.reads
    for term in phase.learn.terms:
        for name in sorted(term.reads):
            if name not in have:
                raise ValueError(
                    f"{where}: term {term.name!r} reads {name!r}, which nothing in credit or the cast supplies; {_who(name)}"
                )
        read |= term.reads
        if method.cast[term.trainee].liveness != "trained":
            raise ValueError(
                f"{where}: term {term.name!r} trains {term.trainee!r}, which is {method.cast[term.trainee].liveness}, not trained"
            )
    for name, room in wrote.items():
        if name.startswith(_MUST_BE_READ) and name not in read:
            raise ValueError(
                f"{where}: {room} writes {name!r}, but nothing after it reads it; add the part or term that does, or drop {room.part.name}"
            )


def _who(name: str) -> str:
    if name.startswith("cast:"):
        member, can = name.removeprefix("cast:").split(".")
        return f"add {member}=... with the capability {can!r} to the cast, e.g. cast=stage({member}=frozen('policy'))"
    if name.startswith("given:"):
        column = name.removeprefix("given:")
        return (
            f"the task gives no {column!r}: choose a task or dataset that has it (a column {column!r}, for a dataset)"
        )
    found = suppliers(name)
    return f"it could come from {', '.join(found)}" if found else "no part of burnish supplies it"
