"""Episodes that an outside program pulls: it asks for the next one, works on it through the endpoint, posts a reward.

    POST URL/episodes          -> {"id", "base_url", "task": {"prompt", ...}, "evaluation"}, {"id": null} where there is
                                  none for now, or {"done": true} after the run
    BASE_URL                      the model, for the calls of this episode
    POST BASE_URL/reward          {"value": 1.0} pays and ends the episode; BASE_URL/end ends it for the verifier

The server is the same for all steps of a run. URL/v1 answers requests that belong to no episode, for evaluation.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from functools import cache

from burnish.serve.server import HOST, ChatServer, Session

PREFIX = "serve:"  # of an --agent that is pulled: serve:PORT
KEY = "BURNISH_API_KEY"  # an environment variable with the API key, for programs that cannot read what is printed
ADDRESS = "BURNISH_HOST"  # an environment variable with the address that endpoints of agents listen on
PATIENCE = 20.0  # seconds that a request for an episode waits for one


class Pulled:
    """An agent (rollout/hosted.py) whose episodes wait for a program that pulls them. The server opens at first use."""

    def __init__(self, port: int) -> None:
        self.port, self._server = port, None  # type: tuple[int, ChatServer | None]
        self._waiting: queue.Queue[tuple[Session, dict[str, object]]] = queue.Queue()
        self.done = False
        self._asking: set[int] = set()  # threads that wait for an episode

    @property
    def server(self) -> ChatServer:
        """The server, which listens from now on."""
        if self._server is None:
            key = os.environ.get(KEY)
            if key is not None and len(key) < 16:
                raise ValueError(f"the key in {KEY} has {len(key)} characters; give it at least 16")
            self._server = ChatServer(port=self.port, token=key, host=os.environ.get(ADDRESS, HOST))
            self._server.open(name="default")
            self._server.offer = self._offer
            print(f"episodes:  {self._server.url}/episodes\nAPI key:   {self._server.token}", flush=True)
        return self._server

    def wait_for(self, session: Session, row: dict[str, object], evaluation: bool) -> None:
        """Offer an episode, and return when it has ended. The caller's thread waits."""
        self._waiting.put((session, {"task": _plain(row), "evaluation": evaluation}))
        session.ended.wait()

    def close(self) -> None:
        """No more episodes: every request for one says so. Those that wait now get their answer before this returns."""
        self.done = True
        deadline = time.monotonic() + 2.0
        while self._asking and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.1)  # for the last answer to be sent

    def _offer(self) -> dict[str, object]:
        """The next episode, as JSON."""
        self._asking.add(threading.get_ident())
        try:
            return self._next()
        finally:
            self._asking.discard(threading.get_ident())

    def _next(self) -> dict[str, object]:
        deadline = time.monotonic() + PATIENCE
        while not self.done and (left := deadline - time.monotonic()) > 0:
            try:
                session, what = self._waiting.get(timeout=min(left, 0.2))
            except queue.Empty:
                continue
            if not session.ended.is_set():
                session.begun = time.monotonic()
                return {"id": session.id, "base_url": self.server.base_url(session), **what}
        return {"id": None, "done": self.done}


@cache
def pulled(port: int) -> Pulled:
    """The one of this port."""
    return Pulled(port)


def read_pulled(spec: str) -> Pulled | None:
    """What --agent serve:PORT says; None where it says something else."""
    if not spec.startswith(PREFIX):
        return None
    port = spec.removeprefix(PREFIX)
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"--agent {spec}: {port!r} is no port; write for instance --agent {PREFIX}8765")
    return pulled(int(port))


def _plain(row: dict[str, object]) -> dict[str, object]:
    """What JSON can hold of a row."""
    plain = {}
    for key, value in row.items():
        try:
            plain[key] = json.loads(json.dumps(value))
        except (TypeError, ValueError):
            continue
    return plain
