"""Child processes: one that is killed is gone, with its pipes, when the call returns."""

from __future__ import annotations

import subprocess
import sys

from burnish.util.processes import how_ended, kill_group


def test_a_killed_process_is_reaped_and_its_pipes_are_closed() -> None:
    """Its exit status is known: it is no zombie. A second call changes nothing."""
    pipe = subprocess.PIPE
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, start_new_session=True) as popen:
        kill_group(popen)
        assert popen.returncode == -9 and how_ended(popen.returncode) == "killed by SIGKILL"
        assert popen.stdin is not None and popen.stdin.closed and popen.stdout is not None and popen.stdout.closed
        kill_group(popen)
