"""How preference methods bear wrong labels: training on right labels and on 40% flipped ones, measured on clean ones.

Pairs are the best and the worst of 8 replies of `tiny` to `sort` (burnish pairs); the held-out pairs keep their labels.
`cdpo` and `rdpo` are given the share of wrong labels.

    OMP_NUM_THREADS=1 python scripts/label_noise.py
    python scripts/label_noise.py --draw
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from preference_rigs import PAIRS, RIGHT, Rig, Size, drawn, flags, make_pairs, measured, sized, table

from burnish.tasks.data import Dataset
from burnish.tasks.flipped import flipped

ROOT = Path(__file__).parent.parent
OUT, SVG = ROOT / "benchmarks" / "results" / "label_noise.json", ROOT / "docs" / "label-noise.svg"
SIZE = Size(steps=24, prompts=8, lr=5e-5, seeds=5)
METHODS = ("dpo", "cdpo", "rdpo", "ipo", "lcpo")
FLIPS = {"0%": 0.0, "40%": 0.4}
KNOWS_SHARE = {"cdpo", "rdpo"}  # these have an option for the share of wrong labels, which is given to them


def options(method: str, condition: str) -> dict[str, Any]:
    return {"eps": FLIPS[condition]} if method in KNOWS_SHARE else {}


def rig(file: Path) -> Rig:
    data = Dataset(str(file), heldout=0.4)
    sources = {name: flipped(data, share) for name, share in FLIPS.items()}
    tasks = [data.task("train", i) for i in range(data.size("train"))]
    wrong = {name: round(sum(map(source.is_flipped, tasks)) / len(tasks), 4) for name, source in sources.items()}
    about = {"train": data.size("train"), "heldout": data.size("heldout"), "wrong": wrong}
    return Rig("sort", METHODS, sources, options, clean=data, about=about)


def picture(found: dict[str, Any]) -> str:
    title = f"Clean held-out pairs after training on wrong labels, {found['seeds']} seeds"
    return drawn(found, PAIRS, title, "labels flipped", FLIPS.__getitem__)


def main() -> int:
    asked = flags(__doc__ or "", OUT, SVG, SIZE)
    if not asked.draw:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "pairs.jsonl"
            make_pairs(file, "--task", "sort", "--n", "8", "--count", str(asked.pairs))
            measured(rig(file), sized(asked, SIZE), asked.out)
    found = json.loads(asked.out.read_text())
    asked.svg.write_text(picture(found))
    print("\n".join([*table(found, PAIRS, "flipped"), "", *table(found, RIGHT, "flipped")]))
    return 0


if __name__ == "__main__":
    os.nice(5)
    sys.exit(main())
