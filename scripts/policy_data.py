"""On- and off-policy pairs: the same methods on pairs that the policy sampled itself, and on pairs that others wrote.

    own    the best and the worst of 8 replies of `tiny`, the policy at its start, to `sort`
    other  the same of a `tiny` that SFT has trained on `reverse`, and that sorts worse

Both conditions have pairs of the same prompts, and as many of them. The measure is the share of right replies to
held-out problems.

    OMP_NUM_THREADS=1 python scripts/policy_data.py
    python scripts/policy_data.py --draw
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from preference_rigs import RIGHT, Rig, Size, dataset, drawn, flags, make_pairs, measured, shift_table, sized, table

from burnish.cli import main as burnish

ROOT = Path(__file__).parent.parent
OUT, SVG = ROOT / "benchmarks" / "results" / "policy_data.json", ROOT / "docs" / "policy-data.svg"
SIZE = Size(steps=12, prompts=8, lr=5e-5, seeds=5)
METHODS = ("dpo", "wpo", "ipo", "simpo")
TRAINED = {"other": ("sft", "reverse", 10)}  # name -> method, task, steps


def sampled(name: str, folder: Path, count: int) -> list[dict[str, Any]]:
    """The best and the worst reply of a model to prompts of `sort`."""
    model = "tiny"
    if name in TRAINED:
        method, task, steps = TRAINED[name]
        out = folder / name
        words = ["--model", "tiny", "--task", task, "--steps", str(steps), "--out", str(out), "--device", "cpu"]
        if burnish(["train", method, *words, "--eval-tasks", "0", "--save-every", "0", "--quiet"]):
            raise SystemExit(f"the model {name!r} could not be trained")
        model = str(out / "model")
    file = folder / f"{name}.jsonl"
    make_pairs(file, "--model", model, "--task", "sort", "--n", "8", "--count", str(count))
    return [json.loads(line) for line in file.read_text().splitlines()]


def common(pairs: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """The pairs of the prompts that all conditions have."""
    shared = set.intersection(*({_key(row) for row in rows} for rows in pairs.values()))
    return {name: [row for row in rows if _key(row) in shared] for name, rows in pairs.items()}


def _key(row: dict[str, Any]) -> str:
    return json.dumps(row["prompt"])


def rig(folder: Path, count: int) -> Rig:
    pairs = common({name: sampled(name, folder, count) for name in ("own", *TRAINED)})
    sources = {name: dataset(_unscored(rows), f"{name} pairs", 0.02) for name, rows in pairs.items()}
    return Rig("sort", METHODS, sources, about={"train": sources["own"].size("train")})


def _unscored(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in ("prompt", "chosen", "rejected")} for row in rows]


def picture(found: dict[str, Any]) -> str:
    names = ", ".join(f"{i} {name}" for i, name in enumerate(found["conditions"], start=1))
    return drawn(
        found, RIGHT, f"Right replies after training on pairs by different authors, {found['seeds']} seeds", names
    )


def main() -> int:
    asked = flags(__doc__ or "", OUT, SVG, SIZE)
    if not asked.draw:
        with tempfile.TemporaryDirectory() as folder:
            measured(rig(Path(folder), asked.pairs), sized(asked, SIZE), asked.out)
    found = json.loads(asked.out.read_text())
    asked.svg.write_text(picture(found))
    print("\n".join([*table(found, RIGHT, "pairs"), "", *shift_table(found, RIGHT)]))
    return 0


if __name__ == "__main__":
    os.nice(5)
    sys.exit(main())
