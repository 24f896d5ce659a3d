"""The open connections of an HTTP server, and which of them make room for a new one."""

from __future__ import annotations

import socket
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from burnish.util.http_limits import Limits
from burnish.util.http_message import Refused, Request


class State(Enum):
    """Of a connection: reading a head or a body, being answered, a wrong token's answer delayed, or drained."""

    HEAD, BODY, WORK, DELAY, LINGER = range(5)


@dataclass(eq=False)
class Connection:
    """One client's connection.

    deadline  of its state
    known     it has sent a request that was admitted; until then it is a stranger's
    refusal   that is being delayed
    closing   its last answer ends it;  gone: its client hung up, or did not read its answer
    dropped   bytes that were read after its last answer
    """

    socket: socket.socket
    client: str
    deadline: float
    state: State = State.HEAD
    known: bool = False
    buffer: bytearray = field(default_factory=bytearray)
    request: Request | None = None
    refusal: Refused | None = None
    closing: bool = False
    gone: bool = False
    dropped: int = 0


class Connections:
    """A limited number of connections. One that is being answered, or whose body arrives, never makes room."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.open: set[Connection] = set()
        # those that may be closed for others, oldest first, by whether they are known
        self._idle: dict[bool, dict[Connection, None]] = {False: {}, True: {}}
        self._of: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.open)

    def __contains__(self, connection: Connection) -> bool:
        return connection in self.open

    def room(self, client: str) -> tuple[bool, list[Connection]]:
        """Whether there is room for a connection of a client, once these connections have been closed."""
        limits, leave = self.limits, []
        if self._of[client] >= limits.per_client:
            leave.append(self.oldest(client))
        elif len(self._idle[False]) >= limits.strangers:
            leave.append(next(iter(self._idle[False]), None))
        elif len(self.open) >= limits.connections:
            leave.append(self.oldest())
        leaving = [one for one in leave if one is not None]
        return len(leaving) == len(leave), leaving

    def oldest(self, client: str | None = None) -> Connection | None:
        """The connection that has been idle longest, a stranger's if there is one; None if none is idle."""
        return next((c for order in self._idle.values() for c in order if client in (None, c.client)), None)

    def add(self, connection: Connection) -> None:
        self.open.add(connection)
        self._of[connection.client] += 1
        self.enter(connection, State.HEAD)

    def enter(self, connection: Connection, state: State) -> None:
        """Change the state of a connection, and its place among those that may be closed."""
        self._forget(connection)
        connection.state = state
        if state in (State.HEAD, State.LINGER):
            self._idle[connection.known and state is State.HEAD][connection] = None

    def remove(self, connection: Connection) -> None:
        self._forget(connection)
        if connection in self.open:
            self.open.discard(connection)
            self._of[connection.client] -= 1
            if not self._of[connection.client]:
                del self._of[connection.client]

    def _forget(self, connection: Connection) -> None:
        for order in self._idle.values():
            order.pop(connection, None)
