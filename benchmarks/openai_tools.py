"""An agent with a tool, on the package openai, trained through the endpoint: accuracy before and after, by seed.

    python benchmarks/openai_tools.py             writes results/openai_tools.json (20 minutes on two cores)

The commands are those of examples/openai_tools.py: SFT on some conversations, then GRPO on episodes that the agent
pulls. A seed whose run is finished in the folder is not run again.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
AGENT = HERE.parent / "examples" / "openai_tools.py"
BURNISH = [sys.executable, "-m", "burnish"]
SFT = ["--steps", "120", "--lr", "2e-3", "--prompts", "16", "--max-new-tokens", "48", "--eval-tasks", "0"]
GRPO = ["--steps", "24", "--lr", "2e-4", "--prompts", "8", "--n", "8", "--max-new-tokens", "48", "--eval-tasks", "100"]


def prepare(folder: Path) -> None:
    """The rows, and the model that has seen some conversations with the tool."""
    if (folder / "sft" / "model").is_dir():
        return
    subprocess.run([sys.executable, str(AGENT), "rows", str(folder)], check=True)
    template = ["--chat-template", str(folder / "template.jinja")]
    words = ["train", "sft", "--task", str(folder / "demos.jsonl"), *template, *SFT, "--out", str(folder / "sft")]
    subprocess.run([*BURNISH, *words, "--quiet"], check=True)


def train(folder: Path, seed: int) -> Path:
    """One run, and the agent beside it."""
    out = folder / f"seed{seed}"
    if "after" in read(out):
        return out
    words = ["serve", str(folder / "sft" / "model"), "--train", "grpo", "--task", str(folder / "questions.jsonl")]
    words += [*GRPO, "--port", "0", "--seed", str(seed), "--out", str(out), "--quiet"]
    env = {**os.environ, "BURNISH_API_KEY": f"a-key-of-the-benchmark-{time.time_ns()}"}
    with subprocess.Popen([*BURNISH, *words], stdout=subprocess.PIPE, text=True, env=env) as run:
        assert run.stdout is not None
        url = run.stdout.readline().split()[1].removesuffix("/episodes")
        with subprocess.Popen([sys.executable, str(AGENT), url], env=env) as agent:
            for _ in run.stdout:
                pass
            agent.terminate()
    return out


def read(out: Path) -> dict[str, Any]:
    """The held-out accuracies of a run: at temperature 0 and 1, before and after."""
    file = out / "evaluation.json"
    found = json.loads(file.read_text()) if file.is_file() else {}
    return {
        when: {
            "greedy": (entry.get("greedy") or entry["value"])["mean"],
            "sampled": entry["sampled"]["accuracy"]["mean"],
        }
        for when, entry in found.items()
        if when in ("before", "after") and entry
    }


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--folder", type=Path, default=HERE.parent / ".bench" / "openai_tools")
    reader.add_argument("--seeds", default="21,22,23,24,25")
    told = reader.parse_args()
    prepare(told.folder)
    runs = [{"seed": seed, **read(train(told.folder, seed))} for seed in map(int, told.seeds.split(","))]
    middle = {
        f"{when} {how}": round(statistics.mean(run[when][how] for run in runs), 4)
        for when in ("before", "after")
        for how in ("greedy", "sampled")
    }
    content = {
        "script": "benchmarks/openai_tools.py",
        "model": "tiny",
        "openai": importlib.metadata.version("openai"),
        "sft": " ".join(SFT),
        "grpo": " ".join(GRPO),
        "mean": middle,
        "runs": runs,
    }
    (HERE / "results" / "openai_tools.json").write_text(json.dumps(content, indent=1) + "\n")
    print(json.dumps(middle))


if __name__ == "__main__":
    main()
