"""A shell in the sandbox, and `--tools bash`: real programs on files that exist in memory only.

A call runs one command line of bash (or sh) in a process of its own (sandbox/code/shell.py): without network, without
files of the machine but its programs and libraries, which are read-only, within limits of time, memory, processes and
output. The files that it leaves, and the folder that it ended in, are where the next call begins. Variables of the
shell are not kept, and no process outlives its call. A command that is ended by a limit leaves the files as they were.

The state is the files themselves, so an episode can be copied, and two copies go their own ways.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from burnish.envs.tools import Tool
from burnish.sandbox.code.box import Child
from burnish.sandbox.code.limits import Limits
from burnish.sandbox.code.pool import pool
from burnish.sandbox.code.root import SCRATCH
from burnish.sandbox.code.shell import Entry
from burnish.util.json_types import Json
from burnish.util.paths import expanded
from burnish.verifiers.code.grade import reported

SECONDS = 10.0
LIMITS = Limits(seconds=SECONDS, cpu=SECONDS, scratch=4 << 20, files=1024, open=128, threads=32, output=8 << 20)
LONGEST = 20_000  # characters of a command
SHOWN = 3_000  # characters of output that the model reads
MOST_BYTES = 2 << 20  # of the files of a folder that is given


@dataclass(frozen=True)
class Did:
    """What a command did. problem: why it was ended, empty where it ended by itself."""

    printed: str
    status: int
    problem: str = ""

    @property
    def shown(self) -> str:
        """What a model reads."""
        text = self.printed
        if len(text) > SHOWN:
            text = f"{text[: SHOWN // 2]}\n[{len(text) - SHOWN} more characters]\n{text[-SHOWN // 2 :]}"
        if self.problem:
            return f"{text}error: {self.problem}"
        ending = f"[exit status {self.status}]" if self.status else ""
        return f"{text.rstrip()}\n{ending}".strip() or "ok"


@dataclass(frozen=True)
class BoxShell:
    """A state of the shell: files by path, and the working folder. `run` gives the next one."""

    files: Mapping[str, Entry]
    folder: str = SCRATCH
    seconds: float = SECONDS

    @classmethod
    def of(cls, texts: Mapping[str, str | bytes | None], seconds: float = SECONDS) -> BoxShell:
        """A shell over files with these contents; None is a folder."""
        return cls({path: _entry(content) for path, content in texts.items()}, seconds=seconds)

    def run(self, command: str) -> tuple[BoxShell, Did]:
        """The state after a command line, and what it did."""
        if len(command) > LONGEST:
            return self, Did("", 1, f"the command has {len(command)} characters; at most {LONGEST} are run")
        if "\x00" in command:
            return self, Did("", 1, "a command cannot have a NUL character")
        data = {"files": self.files, "folder": self.folder, "command": command.encode("utf-8", "replace").decode()}
        run = pool(LIMITS.within(self.seconds), programs=True).run([Child("command", data)])
        child = run.children[0]
        printed = child.printed.decode("utf-8", "replace").replace("\x00", "")
        if run.late:
            return self, Did(printed, 1, f"not finished after {self.seconds:g} s")
        if run.much:
            return self, Did(printed, 1, f"more than {LIMITS.output >> 20} MiB were written")
        if run.large:
            return self, Did(printed, 1, f"its processes had more than {LIMITS.together >> 20} MiB of memory together")
        told = next((line for line in reported(child.report) if "files" in line), None)
        files = _files(told["files"]) if told is not None else None
        if told is None or files is None:
            return self, Did(printed, 1, "its process was ended")
        folder, status = told.get("folder"), told.get("status")
        inside = isinstance(folder, str) and f"{folder}/".startswith(f"{SCRATCH}/")
        after = replace(self, files=files, folder=str(folder) if inside else SCRATCH)
        return after, Did(printed, status if isinstance(status, int) else 1)

    def text(self, path: str) -> str | None:
        """The text of a file; None where there is none."""
        entry = self.files.get(path, {})
        return base64.b64decode(entry["data"]).decode("utf-8", "replace") if "data" in entry else None

    def texts(self) -> dict[str, str | None]:
        """All texts by path; None is a folder. Links are left out."""
        return {path: self.text(path) for path, entry in self.files.items() if "link" not in entry}


def _entry(content: str | bytes | None) -> Entry:
    if content is None:
        return {}
    raw = content.encode() if isinstance(content, str) else content
    return {"data": base64.b64encode(raw).decode()}


def _files(told: Json) -> dict[str, Entry] | None:
    """The files that a process reported, which is not trusted; None where they are none."""
    if not isinstance(told, dict):
        return None
    found: dict[str, Entry] = {}
    for path, entry in told.items():
        if not isinstance(entry, dict) or posixpath.isabs(path) or ".." in path.split("/") or "\x00" in path:
            return None
        kept: Entry = {}
        if isinstance(link := entry.get("link"), str):
            kept["link"] = link
        elif isinstance(data := entry.get("data"), str):
            try:
                base64.b64decode(data, validate=True)
            except (ValueError, binascii.Error):
                return None
            kept["data"] = data
            if entry.get("executable") is True:
                kept["executable"] = True
        found[path] = kept
    return found


def shell_tools(place: str) -> list[Tool]:
    """The tool `bash`. place: a folder whose files each episode begins with; empty for none."""
    start = BoxShell.of(_folder(place) if place else {})

    class Shell:
        """A shell of one episode."""

        def __init__(self) -> None:
            self._state = start

        def bash(self, command: str) -> str:
            """Run a command line of bash. Files stay for the next call; variables do not.

            Args:
                command: The command line.
            """
            self._state, did = self._state.run(command)
            return did.shown

    Shell.bash.__annotations__ = {"command": str, "return": str}
    return Tool.all_of(Shell)


def _folder(place: str) -> dict[str, str | bytes | None]:
    root = expanded(place)
    if not root.is_dir():
        raise ValueError(f"--tools bash:{place} is no folder; give one whose files the shell begins with")
    found: dict[str, str | bytes | None] = {}
    size = 0
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or ".git" in path.parts:
            continue
        name = path.relative_to(root).as_posix()
        found[name] = _read(path) if path.is_file() else None
        size += path.stat().st_size if path.is_file() else 0
        if size > MOST_BYTES or len(found) > LIMITS.files // 2:
            raise ValueError(
                f"--tools bash:{place} has more than {MOST_BYTES >> 20} MiB or {LIMITS.files // 2} files; give a "
                "smaller folder: each call of the shell copies it"
            )
    return found


def _read(path: Path) -> bytes:
    return path.read_bytes()
