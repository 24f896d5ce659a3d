"""The folder through which the nodes of a swarm share replies: one JSONL file for each step of each node.

A line is a question with all its replies, as text: {"key", "prompt", "given", "replies": [{"text", "finished"}]}.
Files are written whole under their final name and are then only read. Lines of others are data that is checked, never
code: what is not of this form is left out.
"""

from __future__ import annotations

import json
import platform
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.task import Task
from burnish.util.files import write_text
from burnish.util.plainfile import read_text

LARGEST = 1 << 26  # bytes of a file that is read
NOT_SHARED = frozenset({"env", "tools"})  # a question that comes with these is more than its text
NAME = re.compile(r"(?P<node>[\w.-]{1,100})\.(?P<step>\d{8})\.jsonl")


@dataclass(frozen=True)
class SharedGroup:
    """A question and its replies, each with whether it had come to its end."""

    task: Task
    replies: tuple[tuple[str, bool], ...]

    def line(self) -> str:
        """As one line of a file; ValueError where the task holds more than text and numbers (an environment)."""
        task, replies = self.task, [{"text": text, "finished": finished} for text, finished in self.replies]
        prompt = task.prompt if isinstance(task.prompt, str) else [dict(message) for message in task.prompt]
        try:
            return json.dumps({"key": task.key, "prompt": prompt, "given": dict(task.given), "replies": replies})
        except TypeError:
            raise ValueError(
                f"task {task.key[:60]!r} cannot be shared with a swarm: it holds more than text and numbers, as games "
                "do; leave out --swarm, or choose a task of questions and answers"
            ) from None

    @classmethod
    def of(cls, line: str) -> SharedGroup | None:
        """The group of a line; None where the line is not one."""
        try:
            found: Any = json.loads(line)
            prompt, given, key, replies = (found[name] for name in ("prompt", "given", "key", "replies"))
            told = prompt if isinstance(prompt, str) else tuple(prompt)
            texts = tuple((one["text"], bool(one["finished"])) for one in replies)
            words = [key, *(text for text, _ in texts), *([told] if isinstance(told, str) else _contents(told))]
            if not isinstance(given, dict) or given.keys() & NOT_SHARED or not all(isinstance(x, str) for x in words):
                return None
            return cls(Task("question", told, given, key), texts)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None


class SwarmFolder:
    """A node's view of the folder. Stateful: a resumed run is the same node.

    node    its name; by default the host's name and a random number
    recent  files of each other node that are read, the newest
    """

    name = "swarm"

    def __init__(self, folder: str, node: str | None = None, recent: int = 4) -> None:
        self.folder, self.recent = Path(folder), recent
        self.node = node or f"{re.sub(r'[^a-zA-Z0-9-]', '-', platform.node())[:60]}-{secrets.token_hex(4)}"
        if not NAME.fullmatch(f"{self.node}.{0:08d}.jsonl"):
            raise ValueError(f"--node is {self.node!r}; letters, digits, '-', '_' and '.' alone are names of nodes")

    def publish(self, groups: Iterable[SharedGroup], step: int) -> None:
        """Write a step's groups; a step that is repeated after a resume replaces its file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_text(self.folder / f"{self.node}.{step:08d}.jsonl", "".join(f"{group.line()}\n" for group in groups))

    def lines(self) -> list[str]:
        """The lines of the other nodes' newest files, by node and step. A file that goes away meanwhile is left out."""
        by_node: dict[str, list[Path]] = {}
        for file in sorted(self.folder.glob("*.jsonl")) if self.folder.is_dir() else ():
            name = NAME.fullmatch(file.name)
            if name is not None and name["node"] != self.node:
                by_node.setdefault(name["node"], []).append(file)
        found: list[str] = []
        for files in by_node.values():
            for file in files[-self.recent :]:
                found += _read(file)
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"node": self.node}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.node = str(state["node"])


def _contents(messages: Iterable[Any]) -> list[Any]:
    return [message["content"] for message in messages]


def _read(file: Path) -> list[str]:
    try:
        return [] if file.stat().st_size > LARGEST else read_text(file).splitlines()
    except (OSError, ValueError):
        return []
