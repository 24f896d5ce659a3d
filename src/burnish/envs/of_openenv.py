"""`openenv:URL`: an environment that an OpenEnv server runs; one WebSocket session of the server is one episode.

The protocol: messages {"type": "reset" | "step" | "close", "data": {...}} to URL/ws, answered by {"type":
"observation", "data": {"observation": {...}, "reward": ..., "done": ...}} or {"type": "error", ...}. GET URL/schema
gives the fields of an action. The reply goes into the one text field of the action (or `field=NAME`); where an action
has other fields, the reply is read as a JSON object.
"""

from __future__ import annotations

import importlib
import json
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.error import URLError

from burnish.envs.protocol import Outcome
from burnish.util.failures import said

SECONDS = 60.0  # for one answer of the server
LARGEST = 16 << 20  # bytes of one message
_OURS = ("metadata",)  # fields of every action that are not the model's to fill
_TEXT = ("text", "message", "prompt", "response", "content", "observation", "output")  # fields that a reader needs


class OpenEnvClient:
    """One episode. url: http://127.0.0.1:8000; field: the field of an action that the reply fills."""

    foreign = True

    def __init__(self, url: str, field: str | None = None, **options: Any) -> None:
        try:
            connect = importlib.import_module("websockets.sync.client").connect
        except ImportError:
            raise ValueError("openenv tasks need websockets; install it with: pip install 'burnish[openenv]'") from None
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"openenv:{url} is no address; write openenv:http://127.0.0.1:8000")
        self.url, self.options = url.rstrip("/"), options
        self.action = _schema(self.url)
        self.field = field or _text_field(self.action)
        try:
            self.socket = connect("ws" + self.url.removeprefix("http") + "/ws", max_size=LARGEST, open_timeout=SECONDS)
        except (OSError, TimeoutError) as error:
            raise ValueError(f"no OpenEnv server answers at {self.url}: {error}") from error

    def reset(self, seed: int) -> str:
        """What the server observes at the beginning."""
        return _text(self._ask("reset", {**self.options, "seed": seed}).get("observation"))

    def step(self, action: str) -> Outcome:
        """One action. A reply that is no action, or that the server refuses, is answered by the reason."""
        if self.field:
            chosen: Any = {self.field: action}
        else:
            try:
                chosen = json.loads(action[action.index("{") : action.rindex("}") + 1])
            except (ValueError, RecursionError):
                fields = ", ".join(name for name in self.action if name not in _OURS)
                return Outcome(f"Reply with a JSON object with the fields: {fields}.", 0.0)
        try:
            found = self._ask("step", chosen)
        except ValueError as error:
            return Outcome(said(error)[:300], 0.0)
        return Outcome(_text(found.get("observation")), found.get("reward"), bool(found.get("done")))

    def close(self) -> None:
        self.socket.send(json.dumps({"type": "close"}))
        self.socket.close()

    def _ask(self, kind: str, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """The data of the server's answer; ValueError where it refuses, RuntimeError where it talks nonsense."""
        self.socket.send(json.dumps({"type": kind, "data": data}))
        answer = json.loads(self.socket.recv(timeout=SECONDS))
        found = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(found, dict):
            raise RuntimeError(f"the server answered {str(answer)[:80]!r}")
        if answer.get("type") == "error":
            raise ValueError(
                f"the server refused: {found.get('message', 'no reason')} {found.get('errors', '')}".strip()
            )
        return found


def _schema(url: str) -> Mapping[str, object]:
    """The fields of an action."""
    try:
        with urllib.request.urlopen(f"{url}/schema", timeout=SECONDS) as answer:  # noqa: S310 - http(s) was checked
            found = json.loads(answer.read(LARGEST))
        fields: Mapping[str, object] = found["action"]["properties"]
        return fields
    except (URLError, OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"no OpenEnv server answers at {url}/schema: {said(error)[:200]}") from error


def _text_field(fields: Mapping[str, Any]) -> str | None:
    """The one field of an action, if that is a text."""
    own = [name for name in fields if name not in _OURS]
    return own[0] if len(own) == 1 and fields[own[0]].get("type") == "string" else None


def _text(seen: Any) -> str:
    """An observation for the policy: its text, or its fields as JSON."""
    if isinstance(seen, Mapping):
        seen = {key: value for key, value in seen.items() if key not in ("metadata", "done", "reward")}
        if len(seen) == 1 and isinstance(only := next(iter(seen.values())), str):
            return only
        if text := [seen[key] for key in _TEXT if isinstance(seen.get(key), str)]:
            return str(text[0])
    return seen if isinstance(seen, str) else json.dumps(seen, ensure_ascii=False, default=str)
