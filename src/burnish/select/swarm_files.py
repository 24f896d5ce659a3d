"""The folder through which the nodes of a swarm share replies: one JSONL file for each step of each node.

A line is a question with all its replies, as text: {"key", "prompt", "given", "replies": [{"text", "finished"}]}.
Files are written whole under their final name and are then only read. Lines of others are data that is checked, never
code: what is not of this form, or over a limit, is left out. The limits are far above what honest nodes write, and
hold before anything is parsed or tokenised: no file may cost a node its memory.
"""

from __future__ import annotations

import heapq
import json
import os
import platform
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.core.messages import Message
from burnish.core.task import Task
from burnish.util.files import write_text
from burnish.util.plainfile import read_bytes
from burnish.util.untrusted import parse_json

NODES = 1024  # of which files are read in a step
LARGEST = 1 << 26  # bytes of a file that is read
TOTAL = 1 << 27  # bytes of all files that are read in a step; the newest file of every node goes before the second one
LINES = 4096  # questions in a file
LONGEST_LINE = 1 << 23  # bytes
BRACKETS = 1 << 18  # opening ones in a line: a list takes 28 times the memory of its two characters
REPLIES = 256  # to a question
VALUES = 10_000  # numbers, texts, lists and mappings in a question, and in what comes with it
KEY = 1000  # characters
SCORED = 1 << 25  # characters that a verifier is given for a question: its replies, each with what came with it
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
    def of(cls, line: str | bytes) -> SharedGroup | None:
        """The group of a line; None where the line is not one, or is over a limit."""
        try:
            found: Any = parse_json(line, largest=LONGEST_LINE)
            prompt, given, key, replies = (found[name] for name in ("prompt", "given", "key", "replies"))
            if len(replies) > REPLIES or not isinstance(given, dict) or given.keys() & NOT_SHARED:
                return None
            told = prompt if isinstance(prompt, str) else tuple(map(_message, prompt))
            texts = tuple((one["text"], bool(one["finished"])) for one in replies)
            if not all(isinstance(one, str) for one in (key, *(text for text, _ in texts))) or len(key) > KEY:
                return None
            said = _characters([text for text, _ in texts])
            if _characters([key, told, given]) * len(texts) + said > SCORED:
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

    def lines(self) -> tuple[list[bytes], int]:
        """The lines of the other nodes' newest files, sorted; and how many files and lines are over a limit.

        A file that goes away meanwhile is left out.
        """
        by_node = self._newest()
        found: list[bytes] = []
        refused, room = 0, TOTAL
        for age in range(self.recent):  # the newest of every node first: one node cannot take the room of the others
            for files in by_node.values():
                if age >= len(files):
                    continue
                try:
                    size = files[age].stat().st_size
                    content = read_bytes(files[age], min(LARGEST, room)) if size <= min(LARGEST, room) else None
                except FileNotFoundError:
                    continue
                except (OSError, ValueError):
                    content = None
                if content is None or content.count(b"\n") > LINES:
                    refused += 1
                    continue
                lines = [line for line in content.split(b"\n") if line]
                fit = [line for line in lines if len(line) <= LONGEST_LINE and _brackets(line) <= BRACKETS]
                refused += len(lines) - len(fit)
                room -= len(content)
                found += fit
        return sorted(found), refused

    def _newest(self) -> dict[str, list[Path]]:
        """The newest files of each other node, newest first. The folder may hold the files of many steps."""
        steps: dict[str, list[int]] = {}
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    name = NAME.fullmatch(entry.name)
                    if name is None or name["node"] == self.node:
                        continue
                    known = steps.get(name["node"])
                    if known is None and len(steps) >= NODES:
                        continue
                    if known is None:
                        known = steps[name["node"]] = []
                    (heapq.heappush if len(known) < self.recent else heapq.heappushpop)(known, int(name["step"]))
        except OSError:
            return {}
        return {
            node: [self.folder / f"{node}.{step:08d}.jsonl" for step in sorted(steps[node], reverse=True)]
            for node in sorted(steps)
        }

    def state_dict(self) -> dict[str, Any]:
        return {"node": self.node}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.node = str(state["node"])


def _brackets(line: bytes) -> int:
    return line.count(b"[") + line.count(b"{")


def _message(given: Any) -> Message:
    """A message of text; ValueError for others (tool calls), which not every reader of a message expects."""
    for name, value in given.items():
        if name != "content" and not isinstance(value, str | int | float | None):
            raise ValueError(f"a message has {name!r}, which is more than text")
    if not isinstance(given["role"], str) or "tool_calls" in given:
        raise ValueError("a message has a role that is no word, or tool calls")
    message: Message = given
    return message


def _characters(value: Any) -> int:
    """The characters of all texts in lists and mappings; ValueError where there are more than VALUES of them, and for
    lone surrogates, which no tokenizer encodes and no file holds. Uses no recursion."""
    level, values, found = [value], 0, 0
    while level:
        below: list[Any] = []
        for one in level:
            values += 1
            if isinstance(one, str):
                one.encode()  # UnicodeEncodeError is a ValueError
                found += len(one)
            elif isinstance(one, dict):
                below += [*one, *one.values()]
            elif isinstance(one, list | tuple):
                below += one
            if values + len(below) > VALUES:
                raise ValueError(f"it has more than {VALUES:,} values")
        level = below
    return found
