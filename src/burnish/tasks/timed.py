"""A reward function with a time limit: it runs in a process of its own, which is killed when the time is over.

A failure is data: the reply gets a verdict that says what was waited for, how long, and where the function was.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from burnish.nouns import Verdict
from burnish.processes import kill_group
from burnish.refusal import NotFinite

START = 60.0  # seconds for the process to start and to load the function
GIVE_UP = 3  # replies in a row that hang, after which the rest of the batch is not asked for
DEAF = 3  # batches in a row without a single reward, after which the run stops


class Failed(Exception):
    """The function gave no answer: it took too long, raised, or its process died."""

    def __init__(self, why: str, *, hung: bool = False) -> None:
        super().__init__(why)
        self.hung = hung


class TimedReward:
    """Judges batches of replies by a function `path/to/file.py:name`, each call within `seconds`.

    A batch is asked for as a whole, as the function expects it. Where that fails, its replies are asked for one by one,
    so that only the guilty ones are without a reward.
    """

    def __init__(self, spec: str, seconds: float) -> None:
        if seconds <= 0:
            raise ValueError(f"a time limit of {seconds:g} s lets no reward function answer; pass --reward-timeout 10")
        self.spec, self.seconds = spec, seconds
        self._process: _Process | None = None
        self._silent = 0
        self._asking()  # a function that cannot be loaded is refused now

    def __call__(
        self, prompts: Sequence[Any], replies: Sequence[str], columns: Mapping[str, Sequence[Any]]
    ) -> list[Verdict]:
        """A verdict for each reply."""
        return self.heard(self.ask(prompts, replies, columns))

    def ask(
        self, prompts: Sequence[Any], replies: Sequence[str], columns: Mapping[str, Sequence[Any]]
    ) -> list[Verdict | Failed]:
        """A verdict for each reply, or why there is none."""
        try:
            return [_verdict(score) for score in self._scores(prompts, replies, columns)]
        except Failed as failure:
            return [failure] if len(replies) == 1 else self._one_by_one(prompts, replies, columns)

    def heard(self, found: list[Verdict | Failed]) -> list[Verdict]:
        """The verdicts of a whole batch, however many calls it took. A function that never works is for its author to mend."""
        failures = [one for one in found if isinstance(one, Failed)]
        if len(found) > 1 and len(failures) == len(found) and not any(failure.hung for failure in failures):
            raise ValueError(str(failures[0]))
        verdicts = [Verdict(0.0, False, str(one), failed=True) if isinstance(one, Failed) else one for one in found]
        self._silent = self._silent + 1 if verdicts and len(failures) == len(verdicts) else 0
        if self._silent >= DEAF:
            raise ValueError(
                f"the reward function gave no reward in {DEAF} batches in a row: {verdicts[-1].reason}; mend it, or raise "
                "--reward-timeout, and use --resume"
            )
        return verdicts

    def _one_by_one(
        self, prompts: Sequence[Any], replies: Sequence[str], columns: Mapping[str, Sequence[Any]]
    ) -> list[Verdict | Failed]:
        found: list[Verdict | Failed] = []
        hung = 0
        for i, reply in enumerate(replies):
            if hung >= GIVE_UP:
                found.append(Failed(f"not asked: the {GIVE_UP} replies before it hung", hung=True))
                continue
            try:
                alone = {name: [values[i]] for name, values in columns.items()}
                found.append(_verdict(self._scores([prompts[i]], [reply], alone)[0]))
                hung = 0
            except Failed as failure:
                hung = hung + 1 if failure.hung else 0
                found.append(failure)
        return found

    def _scores(
        self, prompts: Sequence[Any], replies: Sequence[str], columns: Mapping[str, Sequence[Any]]
    ) -> list[float]:
        asked = json.dumps({"prompts": prompts, "completions": replies, "columns": columns}, default=str)
        process = self._asking()
        try:
            answer = process.ask(asked, self.seconds)
        except TimeoutError:
            where = process.where()
            self._end()
            raise Failed(
                f"the reward function {self.spec} had not answered after {self.seconds:g} s{where}; its process was killed",
                hung=True,
            ) from None
        except EOFError:
            self._end()
            raise Failed(f"the process of the reward function {self.spec} died while it was asked") from None
        if "not_finite" in answer:
            raise NotFinite(answer["not_finite"])
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["scores"]

    def _asking(self) -> _Process:
        """The process, started anew where it was killed."""
        if self._process is None:
            process = _Process(self.spec)
            try:
                said = process.ask(None, START)
            except (TimeoutError, EOFError):
                process.end()
                raise ValueError(
                    f"the process of the reward function {self.spec} did not start within {START:g} s; does loading it wait "
                    "for something?"
                ) from None
            if "error" in said:
                process.end()
                raise ValueError(said["error"])
            self._process = process
        return self._process

    def _end(self) -> None:
        if self._process is not None:
            self._process.end()
        self._process = None


class _Process:
    """A grader process and the pipes to it; nothing waits longer than it is told to."""

    def __init__(self, spec: str) -> None:
        place, self.whereabouts = tempfile.mkstemp(prefix="burnish-grader-")
        os.close(place)
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "burnish.tasks.grader", spec, self.whereabouts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # what it starts is killed with it, and Ctrl-C is not its business
            env={**os.environ, "PYTHONPATH": path},
        )
        assert self.popen.stdin is not None and self.popen.stdout is not None
        self.to, self.back = self.popen.stdin.fileno(), self.popen.stdout.fileno()
        for pipe in (self.to, self.back):
            os.set_blocking(pipe, False)
        self.end = weakref.finalize(self, _kill, self.popen, self.whereabouts)

    def ask(self, line: str | None, seconds: float) -> dict[str, Any]:
        """Send a line, and wait for one. TimeoutError after `seconds`; EOFError where the process is gone."""
        deadline = time.monotonic() + seconds
        left, heard = (f"{line}\n".encode() if line is not None else b""), b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.back, selectors.EVENT_READ)
            if left:
                selector.register(self.to, selectors.EVENT_WRITE)
            while not heard.endswith(b"\n"):
                wait = deadline - time.monotonic()
                if wait <= 0:
                    raise TimeoutError
                for key, _ in selector.select(wait):
                    if key.fd == self.to:
                        left = left[self._send(left) :]
                        if not left:
                            selector.unregister(self.to)
                    else:
                        piece = os.read(self.back, 1 << 16)
                        if not piece:
                            raise EOFError
                        heard += piece
        return json.loads(heard)

    def where(self) -> str:
        """Where the function is, as ", at file.py:12 in name"; nothing where it cannot be told."""
        try:
            self.popen.send_signal(signal.SIGUSR1)
            for _ in range(20):
                time.sleep(0.02)
                found = Path(self.whereabouts).read_text().rpartition("\n")[0]  # whole lines: the rest is being written
                if "\n" in found.strip():
                    break
        except OSError:
            return ""
        lines = [line.split('"') for line in found.splitlines() if line.strip().startswith("File ")]
        if not lines:
            return ""
        _, file, rest = lines[0]
        words = rest.replace(",", " ").split()  # line 12 in name
        return f", at {Path(file).name}:{words[1]} in {words[-1]}"

    def _send(self, data: bytes) -> int:
        try:
            return os.write(self.to, data[: 1 << 16])
        except BrokenPipeError:
            raise EOFError from None


def _kill(popen: subprocess.Popen, whereabouts: str) -> None:
    kill_group(popen)
    Path(whereabouts).unlink(missing_ok=True)


def _verdict(score: float) -> Verdict:
    return Verdict(score, score > 0.5)
