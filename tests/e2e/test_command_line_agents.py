"""Coding agents that are programs of a terminal, trained through the endpoint as they are installed.

aider (pip install aider-chat) and mini-swe-agent pin packages that others need in other versions, so they have
environments of their own: BURNISH_AIDER and BURNISH_MINI name the programs, else those on the PATH are taken. Their
prompts are longer than what the embedded model was trained for: the copy here takes more, and understands none of it.
What counts is that the program asks, is answered, and that every reply is recorded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from test_harnesses import long_tiny as long_tiny
from test_harnesses import played

pytestmark = pytest.mark.extras
WAIT = 200.0  # seconds of one program


def program(name: str) -> str:
    found = os.environ.get(f"BURNISH_{name.upper()}") or shutil.which(name)
    if not found:
        pytest.skip(f"could not import {name}: it is not installed")
    return found


def run(command: list[str], folder: Path, **environment: str) -> str:
    """What a program says; its home is the folder, so that nothing of the user is read or written."""
    own = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "NO_COLOR": "1", **environment}
    nobody = subprocess.DEVNULL  # a program that asks its user gets the end of the file, and does not wait
    done = subprocess.run(
        command, cwd=folder, env=own, stdin=nobody, capture_output=True, text=True, timeout=WAIT, check=False
    )
    return done.stdout + done.stderr


def test_aider_edits_files(tmp_path: Path, long_tiny: Path) -> None:
    aider = program("aider")
    said: list[str] = []

    def agent(task: dict[str, Any], base_url: str, api_key: str) -> float:
        folder = tmp_path / base_url.rpartition("sessions/")[2].partition("/")[0]
        folder.mkdir()
        (folder / "sums.py").write_text("def add(a, b):\n    return a - b\n")
        flags = ["--no-git", "--yes-always", "--no-check-update", "--analytics-disable", "--no-show-model-warnings"]
        flags += ["--no-stream", "--no-pretty", "--map-tokens", "0", "--no-suggest-shell-commands", "--no-fancy-input"]
        access = ["--model", "openai/policy", "--openai-api-base", base_url, "--openai-api-key", api_key]
        said.append(run([aider, *access, *flags, "--message", "add must add", "sums.py"], folder))
        return float("return a + b" in (folder / "sums.py").read_text())

    group = played(agent, model=long_tiny)
    assert all("sums.py" in one for one in said), said
    prompts = [trace.turns[0] for trace in group.traces]
    assert all(len(prompt) > 500 for prompt in prompts)  # aider's own instructions came through


def test_mini_swe_agent_works_in_its_own_shell(tmp_path: Path, long_tiny: Path) -> None:
    """It asks for a key at the first start, unless it is told that it is configured: without a user it would wait for
    ever. It ends by itself after three replies without a tool call, which is what the embedded model writes.
    """
    mini = program("mini")
    said: list[str] = []

    def agent(task: dict[str, Any], base_url: str, api_key: str) -> float:
        folder = tmp_path / base_url.rpartition("sessions/")[2].partition("/")[0]
        folder.mkdir()
        (folder / "sums.py").write_text("def add(a, b):\n    return a - b\n")
        access = {"OPENAI_BASE_URL": base_url, "OPENAI_API_BASE": base_url, "OPENAI_API_KEY": api_key}
        alone = {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors"}
        alone |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1"}
        flags = ["--yolo", "--exit-immediately", "--output", str(folder / "trajectory.json")]
        said.append(run([mini, "-m", "openai/policy", "-t", "add must add", *flags], folder, **access, **alone))
        return float("return a + b" in (folder / "sums.py").read_text())

    group = played(agent, model=long_tiny)
    assert all("Saved trajectory" in one for one in said), said
    replies = sum(turn.author == "policy" for trace in group.traces for turn in trace.turns)
    assert replies == 6, said  # it drops a reply that it cannot read, so that each is a conversation of its own
