"""The C kernels under AddressSanitizer and UndefinedBehaviorSanitizer: their own tests, NaN weights among them, without
a report.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from burnish.kernels.cpu import build

HERE = Path(__file__).parents[1]
COMPILER = """#!/bin/sh
exec cc "$@" -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
"""
OVERRUN = """
import torch
from burnish.kernels.cpu import build
x, weight, y = torch.ones(4, 64), torch.ones(64), torch.empty(4, 64)
build.there().norm(x.data_ptr(), None, weight.data_ptr(), y.data_ptr(), ROWS, 64, 1e-6)
print("done")
"""


def preloaded() -> str | None:
    """What must be loaded before Python for sanitized libraries to work; None where gcc has no sanitizers."""
    if build.kernels() is None or shutil.which("gcc") is None:
        return None
    asked = [["gcc", f"-print-file-name={name}"] for name in ("libasan.so", "libubsan.so")]
    found = [subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() for words in asked]
    return " ".join(found) if all(Path(file).is_absolute() for file in found) else None


pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1860),
    pytest.mark.skipif(preloaded() is None, reason="gcc's sanitizers or the kernels are not here"),
]


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the kernels are built with the sanitizers."""
    place = tmp_path_factory.mktemp("sanitized")
    (place / "cc").write_text(COMPILER)
    (place / "cc").chmod(0o700)
    ours = {
        "CC": str(place / "cc"),
        "BURNISH_HOME": str(place),
        "LD_PRELOAD": preloaded() or "",
        "OMP_NUM_THREADS": "2",
    }
    # Python itself leaks by design, and torch's own libraries are not what is tested
    ours |= {"ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
    return {**{name: value for name, value in os.environ.items() if name != "BURNISH_COMPILE"}, **ours}


def ran(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, timeout=1800)


def test_the_sanitizers_notice_an_overrun(sanitized: dict[str, str]) -> None:
    """Else the silence of the other tests would say nothing."""
    fine = ran(sanitized, "-c", OVERRUN.replace("ROWS", "4"))
    assert fine.returncode == 0 and fine.stdout == "done\n", fine.stderr
    wrong = ran(sanitized, "-c", OVERRUN.replace("ROWS", "5"))
    assert wrong.returncode and "AddressSanitizer: heap-buffer-overflow" in wrong.stderr


@pytest.mark.parametrize(
    "file", ["engine/test_sanity.py", "kernels/test_cpu_layers.py", "kernels/test_shared_decode.py"]
)
def test_the_kernels_own_tests_run_without_a_report(file: str, sanitized: dict[str, str]) -> None:
    done = ran(sanitized, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(HERE / file))
    said = done.stdout[-2000:] + done.stderr[-4000:]
    assert done.returncode == 0 and "Sanitizer" not in said and "runtime error" not in said, said
