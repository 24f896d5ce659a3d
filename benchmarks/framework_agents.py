"""Agents of frameworks, as their users write them, trained through the endpoint: accuracy before and after, by seed.

    python benchmarks/framework_agents.py            writes results/framework_agents.json (20 minutes on two cores)

LangGraph, the Agents SDK of OpenAI and pydantic-ai, each with the tool and the questions of examples/openai_tools.py,
from the same model after some SFT (benchmarks/openai_tools.py makes it). A seed whose run is finished is not run again.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

from openai_tools import BURNISH, HERE, prepare, read

AGENTS = {  # a program, and its first seed: with equal seeds all three get the same replies, so they would be one run
    "langgraph": ("langgraph_boxes.py:run", 21),
    "openai-agents": ("agents_sdk_boxes.py:run", 31),
    "pydantic-ai-slim": ("pydantic_ai_boxes.py:run", 41),
}
GRPO = ["--steps", "8", "--lr", "2e-4", "--prompts", "8", "--n", "8", "--max-new-tokens", "48", "--eval-tasks", "60"]


def train(folder: Path, package: str, seed: int) -> dict[str, Any]:
    """One run: its held-out accuracies."""
    out = folder / f"{package}-seed{seed}"
    if "after" not in read(out):
        words = ["train", "grpo", "--model", str(folder / "sft" / "model"), "--task", str(folder / "questions.jsonl")]
        words += ["--agent", str(HERE.parent / "examples" / AGENTS[package][0]), "--agent-pays", *GRPO]
        subprocess.run([*BURNISH, *words, "--seed", str(seed), "--out", str(out), "--quiet"], check=True)
    return {"seed": seed, **read(out)}


def interval(gains: list[float]) -> list[float]:
    """The mean gain with a 95% interval over seeds, by Student's t."""
    t = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}[len(gains)]
    half = t * statistics.stdev(gains) / len(gains) ** 0.5
    middle = statistics.mean(gains)
    return [round(middle, 4), round(middle - half, 4), round(middle + half, 4)]


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--folder", type=Path, default=HERE.parent / ".bench" / "openai_tools")
    reader.add_argument("--seeds", type=int, default=3, help="seeds for each agent")
    told = reader.parse_args()
    prepare(told.folder)
    found = {}
    for package in AGENTS:
        first = AGENTS[package][1]
        runs = [train(told.folder, package, seed) for seed in range(first, first + told.seeds)]
        gains = [run["after"]["sampled"] - run["before"]["sampled"] for run in runs]
        found[package] = {"version": importlib.metadata.version(package), "gain": interval(gains), "runs": runs}
        print(package, found[package]["gain"], flush=True)
        content = {"script": "benchmarks/framework_agents.py", "model": "tiny", "grpo": " ".join(GRPO), "agents": found}
        (HERE / "results" / "framework_agents.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
