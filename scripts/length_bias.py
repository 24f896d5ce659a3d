"""How much replies grow when the longer reply is preferred although it is not better.

`tiny` answers prompts of `path` 16 times. A pair is the longest and the shortest right reply to a prompt, so both are
equally good. The longer one is preferred in 50 or 100% of the pairs; at 50% the labels say nothing about length.

    OMP_NUM_THREADS=1 python scripts/length_bias.py
    python scripts/length_bias.py --draw
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from preference_rigs import (
    LENGTH,
    RIGHT,
    Rig,
    Size,
    dataset,
    drawn,
    flags,
    make_pairs,
    measured,
    shift_table,
    sized,
    table,
)

from burnish.tasks.flipped import flipped

ROOT = Path(__file__).parent.parent
OUT, SVG = ROOT / "benchmarks" / "results" / "length_bias.json", ROOT / "docs" / "length-bias.svg"
SIZE = Size(steps=12, prompts=8, lr=5e-5, seeds=5)
METHODS = ("dpo", "ld_dpo", "ipo", "simpo", "kto")
LONGER = {"50%": 0.5, "100%": 1.0}


def longest_and_shortest(row: dict[str, Any]) -> dict[str, Any] | None:
    """The longest right reply of a ranked list as preferred, the shortest as the other; None where all are as long."""
    listed = zip(row["lengths"], row["responses"], row["scores"], strict=True)
    right = sorted(((length, reply) for length, reply, score in listed if score == 1), key=lambda one: one[0])
    if len(right) < 2 or right[0][0] == right[-1][0]:
        return None
    return {"prompt": row["prompt"], "chosen": right[-1][1], "rejected": right[0][1]}


def rig(file: Path) -> Rig:
    pairs = [longest_and_shortest(json.loads(line)) for line in file.read_text().splitlines()]
    data = dataset([pair for pair in pairs if pair], "longer and shorter right replies", 0.02)
    sources = {name: flipped(data, 1 - share) for name, share in LONGER.items()}
    return Rig("path", METHODS, sources, about={"train": data.size("train")})


def picture(found: dict[str, Any]) -> str:
    title = f"Length of replies after training on pairs with a length bias, {found['seeds']} seeds"
    return drawn(found, LENGTH, title, "pairs that prefer the longer reply", LONGER.__getitem__)


def main() -> int:
    asked = flags(__doc__ or "", OUT, SVG, SIZE)
    if not asked.draw:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "lists.jsonl"
            make_pairs(file, "--task", "path", "--n", "16", "--count", str(asked.pairs), "--format", "lists")
            measured(rig(file), sized(asked, SIZE), asked.out)
    found = json.loads(asked.out.read_text())
    asked.svg.write_text(picture(found))
    tables = [table(found, measure, "prefer longer") for measure in (LENGTH, RIGHT)]
    print("\n\n".join("\n".join(lines) for lines in (*tables, shift_table(found, LENGTH))))
    return 0


if __name__ == "__main__":
    os.nice(5)
    sys.exit(main())
