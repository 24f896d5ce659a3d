"""A reward of proofs: each reply is checked by Lean in an isolated process of its own, with limits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import burnish
from burnish.core.call_syntax import Call
from burnish.core.task import Verdict
from burnish.reward_functions.call import Columns
from burnish.reward_functions.reward import Answer, Found, OneReward, combined
from burnish.reward_functions.sandboxed import row_of
from burnish.sandbox.lean_process import CANNOT
from burnish.util.failures import said
from burnish.util.paths import expanded
from burnish.util.processes import kill_group
from burnish.verifiers.lean import LeanOptions, NotProved, program_of, verdict_of
from burnish.verifiers.table import build_check

SECONDS = 60.0  # default time limit of one proof
_ASK = 60.0  # time limit for questions to Lean itself
_MOST_OUTPUT = 1 << 20


class LeanReward(OneReward):
    """1 for each reply whose proof Lean accepts within `seconds`, else 0."""

    def __init__(self, call: Call, seconds: float | None = None, name: str | None = None) -> None:
        options: LeanOptions = build_check(call)
        program = shutil.which(options["executable"])
        if program is None:
            raise ValueError(
                f"the reward 'lean' needs Lean 4, and there is no program {options['executable']!r}; install it "
                "(https://lean-lang.org/install), or give its path: lean(executable=/path/to/lean)"
            )
        self.call, self.name = call, name or call.name
        self.seconds = SECONDS if seconds is None else seconds
        self.lean = str(Path(program).absolute())
        self.unsafe, self.memory = bool(options["unsafe"]), int(options["memory"] * 2**30)
        prefix = _asked([self.lean, "--print-prefix"], None)
        self.path, self.readable = "", [prefix]
        if options["project"]:
            project = expanded(options["project"]).absolute()
            if not project.is_dir():
                raise ValueError(f"lean: there is no folder {str(project)!r}; name a Lake project that is built")
            lake = shutil.which("lake", path=f"{Path(self.lean).parent}:{os.environ.get('PATH', '')}") or "lake"
            self.path = _asked([lake, "env", "printenv", "LEAN_PATH"], project)
            self.readable += [str(project), *self.path.split(":")]
        self.program = str(Path(prefix) / "bin" / "lean") if (Path(prefix) / "bin" / "lean").exists() else self.lean

    def another(self) -> LeanReward:
        return self  # each reply has a process of its own

    def answers(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> list[Answer]:
        rows = [row_of(prompt, columns, i) for i, prompt in enumerate(prompts)]
        return [self.check(row, reply) for row, reply in zip(rows, replies, strict=True)]

    def check(self, row: dict[str, object], reply: str) -> Answer:
        """The verdict of one reply."""
        try:
            text, line = program_of(row, reply)
        except NotProved as error:
            return Verdict(0.0, False, str(error))
        settings = {"memory": self.memory, "seconds": self.seconds, "readable": self.readable, "unsafe": self.unsafe}
        settings["executable"] = [self.readable[0], self.program]
        command = [sys.executable, "-P", "-m", "burnish.sandbox.lean_process", json.dumps(settings)]
        output, status, late = self._run([*command, self.program, "--stdin", "--json"], text)
        if late:
            return Verdict(0.0, False, f"Lean had not ended after {self.seconds:g} s")
        if status == CANNOT:
            raise ValueError(
                f"{output.strip()[:300]}; run it unprotected by lean(unsafe=True), or use Linux 5.13 or later"
            )
        reason = verdict_of(output, line)
        if not reason and status == 0:
            return Verdict(1.0, True)
        return Verdict(0.0, False, f"Lean ended with status {status}" if status < 0 or not reason else reason)

    def _run(self, command: list[str], text: str) -> tuple[str, int, bool]:
        """(output, status, whether it was killed at the time limit)"""
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "LEAN_PATH": self.path,
            "LANG": "C.UTF-8",
            "HOME": "/nowhere",
        }
        environment["PYTHONPATH"] = str(Path(burnish.__file__).parents[1])
        with tempfile.TemporaryFile() as printed:  # a file, whose size the process limits
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
            try:
                process.communicate(text.encode(), timeout=self.seconds)
            except subprocess.TimeoutExpired:
                kill_group(process)
                return "", -1, True
            printed.seek(0)
            return printed.read(_MOST_OUTPUT).decode(errors="replace"), process.returncode, False

    def ask(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> Found:
        return [combined({self.name: (1.0, answer)}) for answer in self.answers(prompts, replies, columns)]

    def scores(self, prompts: Sequence[object], replies: Sequence[str], columns: Columns) -> list[float | None]:
        """Not used: `answers` has verdicts with their reasons."""
        raise NotImplementedError


def _asked(command: list[str], folder: Path | None) -> str:
    """What a command of Lean prints; raises ValueError if it fails."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_ASK, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(
            f"lean: `{' '.join(command)}` failed: {said(error)[:200]}; is Lean 4 installed whole?"
        ) from None
    return done.stdout.strip()
