"""Lines of JSON between a run and the processes of its environments, with descriptors where a line starts a process.

What arrives is another's: it is limited in size and depth (util/untrusted.py).
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Sequence
from typing import Any

from burnish.util.untrusted import LARGEST, parse_json


class Channel:
    """One end of a connection. `receive` raises EOFError where the other end is gone, or has written nonsense.

    descriptors: those that came with lines, in order; the one who takes it closes it
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._unread = bytearray()
        self.descriptors: list[int] = []

    @classmethod
    def of(cls, descriptor: int) -> Channel:
        """The end of this descriptor."""
        return cls(socket.socket(fileno=descriptor))

    @classmethod
    def pair(cls) -> tuple[Channel, int]:
        """Our end of a new connection, and the descriptor of the other one."""
        ours, theirs = socket.socketpair()
        return cls(ours), theirs.detach()

    def send(self, what: Any, descriptors: Sequence[int] = ()) -> None:
        """Send a line; EOFError where the other end is gone. Values that JSON does not have become text."""
        line = json.dumps(what, default=str).encode() + b"\n"
        try:
            self._connection.settimeout(None)
            if descriptors:
                sent = socket.send_fds(self._connection, [line], descriptors)
                line = line[sent:]
            self._connection.sendall(line)
        except OSError:
            raise EOFError from None

    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """The next line; TimeoutError where none comes within so many seconds, ValueError if it is over a limit."""
        try:
            self._connection.settimeout(seconds)
            at = 0
            while (end := self._unread.find(b"\n", at)) < 0:
                at = len(self._unread)
                if at > LARGEST:
                    raise ValueError(f"it has more than {LARGEST:,} characters")
                piece, descriptors, _, _ = socket.recv_fds(self._connection, 1 << 16, 4)
                self.descriptors += descriptors
                if not piece:
                    raise EOFError
                self._unread += piece
        except TimeoutError:
            raise
        except OSError:
            raise EOFError from None
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        found = parse_json(line)
        if not isinstance(found, dict):
            raise EOFError
        return found

    def end(self) -> None:
        """Cut the connection, also for a thread that waits for a line."""
        with contextlib.suppress(OSError):  # the other end has done so
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def end_here(self) -> None:
        """Close this process's copy of the connection, which its parent still has."""
        self._connection.close()
