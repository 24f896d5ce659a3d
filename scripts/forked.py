"""pytest in a fork of this process, which has imported already what takes seconds: for scripts that run
it many times.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy  # noqa: E402, F401  - imported once, for all the forks
import pytest  # noqa: E402
import torch  # noqa: E402, F401
import transformers  # noqa: E402, F401
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: E402, F401

SCRIPTS = Path(__file__).resolve().parent


class _Note:
    """Writes down which test failed."""

    def __init__(self, file: Path | None) -> None:
        self.file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.file is not None:
            self.file.write_text(report.nodeid)


def run_pytest(
    tree: Path, arguments: list[str], limit: float, *, failed: Path | None = None, extra: dict[str, str] | None = None
) -> int:
    """pytest's exit status in this tree; -9 where it ran past the limit and was killed with all that it started.

    tree    the checkout whose tests run, with its own src first on the path
    failed  a file that gets the id of a test that fails
    """
    sys.stdout.flush()
    process = os.fork()
    if not process:
        os.setsid()
        silence = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(silence, number)
        os.chdir(tree)
        path = os.pathsep.join([str(tree / "src"), str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        os.environ.update({"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", **(extra or {})})
        # Python compiles a file again when its size or its second changes, and a change may leave both
        sys.dont_write_bytecode = True
        sys.path[:0] = [str(tree / "src"), str(SCRIPTS)]
        code = 3
        try:
            code = int(pytest.main(["-q", "-p", "no:cacheprovider", *arguments], plugins=[_Note(failed)]))
        finally:
            os._exit(code)
    end, done = time.monotonic() + limit, 0
    while not done and time.monotonic() < end:
        done, status = os.waitpid(process, os.WNOHANG)
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)  # and whatever a test may have left behind
    if not done:
        os.waitpid(process, 0)
        return -9
    return os.waitstatus_to_exitcode(status)
